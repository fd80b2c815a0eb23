"""Run the proof and write docs/balance-proof.md and its plots. Run by ``make balance-proof``.

Each contender has a fresh cluster of its own; about nine minutes each. What was measured is kept
in data/balance-proof, and a page can be written from it again.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.balance_proof.contenders import CONTENDERS
from benchmarks.balance_proof.page import write
from benchmarks.balance_proof.record import read_records, write_records
from benchmarks.balance_proof.run import run
from benchmarks.pulsar_proof.load import ROOT
from quotaplane.option_parser import OptionParser
from quotaplane.streams.script import run_job

_BY_NAME = {contender.name: contender for contender in CONTENDERS}


def main(argv: Sequence[str]) -> None:
    """Measure, then write the page from all that was measured."""
    parser = OptionParser(
        prog="make balance-proof",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "contenders",
        nargs="*",
        metavar="CONTENDER",
        help=f"{', '.join(_BY_NAME)}, or none: only write the page again; default: all",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "data" / "balance-proof")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    asked = parser.parse_args(argv)
    chosen = asked.contenders or list(_BY_NAME)
    for name in chosen:  # not argparse's `choices`: with `*` it refuses an empty list
        if name not in (*_BY_NAME, "none"):
            parser.error(f"{name!r}: must be one of {', '.join(_BY_NAME)}, none")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops what was started, too
    begun = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - begun:4.0f} s  {words}", flush=True)

    for name in chosen:
        if name in _BY_NAME:
            folder = asked.folder.resolve() / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_records(folder / "records.jsonl", run(_BY_NAME[name], folder, say))
    files = [asked.folder / name / "records.jsonl" for name in _BY_NAME]
    records = [record for file in files if file.exists() for record in read_records(file)]
    say(f"written: {write(asked.docs, records, CONTENDERS)}")


if __name__ == "__main__":
    run_job(main)
