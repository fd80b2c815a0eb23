"""Tables as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any


def csv_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows with the same columns as CSV; there must be one at least.

    >>> csv_of([{"law": "static", "rounds": None}]).splitlines()
    ['law,rounds', 'static,']
    """
    lines = list(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
