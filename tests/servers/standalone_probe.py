"""A job for test_standalone: prints which Python and package its executors use."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd

from quotaplane.streams.session import build_session


def look(rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    import os
    import sys

    import pyarrow

    import quotaplane

    for _ in rows:
        yield pd.DataFrame(
            {
                "cwd": [os.getcwd()],
                "package": [quotaplane.__file__],
                "library": [pyarrow.__file__],
                "prefix": [sys.prefix],
                "daemon": [sys.modules["__main__"].__file__],
            }
        )


def main() -> None:
    spark = build_session("standalone-probe")
    schema = "cwd string, package string, library string, prefix string, daemon string"
    frame = spark.range(0, 8, 1, 8).mapInPandas(look, schema)
    print(json.dumps([row.asDict() for row in frame.collect()]))
    spark.stop()


if __name__ == "__main__":
    main()
