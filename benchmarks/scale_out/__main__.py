"""Measures the quota job on one and on two executors, and writes docs/measured/scale-out.md.

Each run has a Kafka, a cluster and a job of its own. All its reports are written before the job
starts. Figures are kept after each run, so that those of an aborted series are not lost.

    python -m benchmarks.scale_out            (half an hour, 20 GB of memory, 20 GB in /tmp)
    python -m benchmarks.scale_out --only 2   (the run of that number)
    python -m benchmarks.scale_out --store    (a run with the history on an object store)
    python -m benchmarks.scale_out --page     (writes the page from the figures that are kept)
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from benchmarks.machine import machine, machine_on
from benchmarks.scale_out.page import page
from benchmarks.scale_out.runs import Run, measured
from quotaplane.console.option_parser import OptionParser, whole_number
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import QuotaplaneError
from quotaplane.history.store import open_table
from quotaplane.settings import History
from quotaplane.streams.script import run_job
from tests.servers.s3_proxy import S3Proxy
from tests.servers.stores import connector_jars

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/measured/scale-out.md"
KEPT: Final = ROOT / "docs/measured/scale-out.json"
_FEW: Final = {"cold_rounds": 3, "whole_rounds": 3, "active_rounds": 2}
SERIES: Final = (
    Run(100_000, 0),
    Run(100_000, 1),
    Run(100_000, 2),
    Run(100_000, 2, driver_writes=True, **_FEW),
    Run(300_000, 2, **_FEW),
    Run(300_000, 1, **_FEW),
    Run(100_000, 2, spread=20, **_FEW),
    Run(1_000_000, 2, cold_rounds=2, whole_rounds=3, active_rounds=2),
    Run(1_000_000, 1, cold_rounds=2, whole_rounds=2, active_rounds=2),
    Run(3_000_000, 2, cold_rounds=2, whole_rounds=1, active_rounds=1),
)
"""In rising order."""
ON_STORE: Final = Run(100_000, 1, cold_rounds=2, whole_rounds=3, active_rounds=1)


def main(argv: Sequence[str]) -> None:
    """Measure, and write the page."""
    parser = OptionParser(prog="make bench-scale-out", description=__doc__)
    parser.add_argument("--only", type=whole_number, help="the run of this number, from 0 on")
    parser.add_argument("--store", action="store_true", help="only the run on an object store")
    parser.add_argument("--page", action="store_true", help="only the page")
    args = parser.parse_args(argv)
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    numbers = range(len(SERIES)) if args.only is None else [args.only]
    if args.page or args.store:
        numbers = []
    for number in numbers:
        run = SERIES[number]
        with tempfile.TemporaryDirectory(prefix="scale-out-") as folder:
            found = measured(run, Path(folder))
        rows = found.pop("rows", None)
        about = asdict(run) | {"shards": run.shards, "entries": run.load.entries(0)}
        kept[str(number)] = {
            **about,
            **found,
            **({} if rows is None else run.median_rounds(rows)),
        }
        _keep(kept)
        print(json.dumps({**kept[str(number)], "rounds": [row["round, s"] for row in rows or ()]}))
    if args.store:
        kept["store"] = _on_store(ON_STORE)
        _keep(kept)
        print(json.dumps(kept["store"]))
    if args.page or (args.only is None and not args.store):
        runs = [kept[str(number)] for number in range(len(SERIES)) if str(number) in kept]
        about = machine_on(PAGE) if args.page and PAGE.exists() else machine("pyspark")
        PAGE.write_text(page(runs, kept.get("store"), about), encoding="utf-8")


def _keep(kept: Mapping[str, Any]) -> None:
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def _on_store(run: Run) -> dict[str, Any]:
    """A run with the history on an object store: are its rows those of the reports?

    Raises:
        QuotaplaneError: rows are missing or are too many, or tasks could not write.
    """
    with tempfile.TemporaryDirectory(prefix="scale-out-") as name, _store(Path(name)) as store:
        place = {"path": store.place("history"), "storage_options": store.options()}
        (folder := Path(name, "run")).mkdir()
        found = measured(run, folder, {**place, "spark": ["--jars", connector_jars()]})
        if "rows" not in found:
            raise QuotaplaneError(found["stopped"])
        rows_of = {table: _by_round(History(**place), table) for table in ("usage", "limits")}
        wanted = [run.load.entries(number) for number in range(len(run.load.shares))]
    if sorted(rows_of["usage"].values()) != sorted(wanted):
        raise QuotaplaneError(f"usage has {rows_of['usage']}, the reports had {wanted}")
    if any(row["tasks that could not write"] for row in found["rows"]):
        raise QuotaplaneError("tasks could not write")
    kept = run.median_rounds(found["rows"])
    return {**asdict(run), "rows": rows_of, "peak_gb": found["peak_gb"], **kept}


def _store(folder: Path) -> S3Proxy:
    (folder / "store").mkdir()
    return S3Proxy(folder / "store")


def _by_round(history: History, table: str) -> dict[int, int]:
    """Rows of a table by the seq of their round."""
    rows = read_rows(open_table(history, table), ["seq"])
    counts = pc.value_counts(rows["seq"].combine_chunks())
    return {each["values"].as_py(): each["counts"].as_py() for each in counts}


if __name__ == "__main__":
    run_job(main)
