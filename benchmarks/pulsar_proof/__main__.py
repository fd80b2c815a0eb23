"""Run the proof and write docs/pulsar-proof.md and its plots. Run by ``make pulsar-proof``.

Each contender has a fresh cluster of its own; about four minutes each. What was measured is kept
in data/pulsar-proof, and a page can be written from it again.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pulsar_proof.contenders import OURS, STOCK
from benchmarks.pulsar_proof.load import ROOT
from benchmarks.pulsar_proof.page import write
from benchmarks.pulsar_proof.record import read_records, write_records
from benchmarks.pulsar_proof.run import run
from quotaplane.option_parser import OptionParser
from quotaplane.streams.script import run_job

CONTENDERS = {contender.name: contender for contender in (STOCK, OURS)}


def main(argv: Sequence[str]) -> None:
    """Measure, then write the page from all that was measured."""
    parser = OptionParser(
        prog="make pulsar-proof",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "contenders",
        nargs="*",
        metavar="CONTENDER",
        help=f"{', '.join(CONTENDERS)}, or none: only write the page again; default: all",
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "data" / "pulsar-proof")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    asked = parser.parse_args(argv)
    contenders = asked.contenders or list(CONTENDERS)
    for name in contenders:  # not argparse's `choices`: with `*` it refuses an empty list
        if name not in (*CONTENDERS, "none"):
            parser.error(f"{name!r}: must be one of {', '.join(CONTENDERS)}, none")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops what was started, too
    begun = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - begun:4.0f} s  {words}", flush=True)

    for name in contenders:
        if name in CONTENDERS:
            folder = asked.folder / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_records(folder / "records.jsonl", run(CONTENDERS[name], folder, say))
    files = [asked.folder / name / "records.jsonl" for name in CONTENDERS]
    records = [record for file in files if file.exists() for record in read_records(file)]
    say(f"written: {write(asked.docs, records, list(CONTENDERS.values()))}")


if __name__ == "__main__":
    run_job(main)
