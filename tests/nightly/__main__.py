"""``make nightly``: what ``make test`` leaves out, from where the last night stopped.

Ctrl-C ends it; the turn under way is then not counted. Output of a turn is in build/nightly.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from tests.job import environment
from tests.nightly.page import page, page_file
from tests.nightly.parts import PARTS, TURN_S, Part, next_turn
from tests.nightly.record import Record, Row
from tests.unit.repo.pages import ROOT

_END_S: Final = 60.0


def main() -> int:
    """Returns 1 if a turn failed."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all, or of {', '.join(names)}")
    parser.add_argument("--hours", type=float, default=8.0)
    options = parser.parse_args()
    if unknown := {*options.parts} - {*names}:
        parser.error(f"no part {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _night(Record(ROOT), options.parts or names, time.monotonic() + options.hours * 3600)
    except KeyboardInterrupt:
        return 130


def _night(record: Record, names: list[str], until_s: float) -> int:
    record.drop_all_but({(part.name, item) for part in PARTS for item in part.items})
    spent_s: dict[str, float] = {}
    failed: set[tuple[str, str]] = set()
    turns = 0
    while time.monotonic() + TURN_S < until_s:
        endless = {part.name for part in PARTS if part.endless}
        done = {key for key in record.passed_now() if key[0] not in endless}
        minutes = {key: row.minutes for key, row in record.read().items()}
        turn = next_turn(names, spent_s, minutes, done | failed)
        if turn is None:
            break
        row, took_s = run_turn(record, *turn)
        turns += 1
        spent_s[row.part] = spent_s.get(row.part, 0.0) + took_s
        if not row.passed:
            failed.add(row.key)
    names_failed = "".join(f"; {part}: {item}" for part, item in sorted(failed))
    print(f"{turns} turns, {len(failed)} failed{names_failed}")
    return 1 if failed else 0


def run_turn(record: Record, part: Part, item: str) -> tuple[Row, float]:
    """Run a turn and record it; returns the new row and the seconds of the turn."""
    first = record.read().get((part.name, item), Row(part.name, item)).next_seed
    name = f"{part.name}-{item}".replace("/", "-").replace(" ", "-")
    log = record.root / "build/nightly" / f"{name}.log"
    commit, begun_s = record.commit_now(), time.monotonic()
    code = _ended(part.command(item, first), record.root, log)
    took_s, output = time.monotonic() - begun_s, log.read_text(encoding="utf-8", errors="replace")
    count, passed = part.count(output), code == 0

    def add(row: Row) -> Row:
        return replace(
            row,
            count=row.count + count,
            minutes=round(row.minutes + took_s / 60, 1),
            failures=row.failures + (not passed),
            # The next turn of an item that failed repeats its seeds.
            next_seed=first + part.seeds_used(output) * passed,
            passed=passed,
            commit=commit,
            date=f"{datetime.now(timezone.utc):%Y-%m-%d}",
        )

    rows = record.change(part.name, item, add)
    page_file(record).write_text(page(rows), "utf-8")
    how = f"{count:,} {part.unit}" if passed else f"FAILED with exit code {code}: {log}"
    print(f"{datetime.now():%H:%M} {part.name}: {item}: {how}, {took_s / 60:.1f} min", flush=True)
    return rows[part.name, item], took_s


def _ended(command: list[str], root: Path, log: Path) -> int:
    """Run a command in a folder to its end; its exit code."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        try:
            return process.wait()
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise


if __name__ == "__main__":
    sys.exit(main())
