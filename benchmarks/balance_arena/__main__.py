"""Run the balance arena and write docs/measured/balance-arena.md, its plots and its table."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.balance_arena.bounds import least_bytes
from benchmarks.balance_arena.contenders import OURS, STOCK
from benchmarks.balance_arena.grid import Table, fill, rows
from benchmarks.balance_arena.known import needed
from benchmarks.balance_arena.page import page, slug
from benchmarks.balance_arena.plots import planes, story
from benchmarks.balance_arena.scenarios import Scenario, scenarios
from benchmarks.balance_arena.verdicts import Bounds, judge
from quotaplane.console.option_parser import OptionParser
from quotaplane.streams.script import run_job

DOCS = Path(__file__).resolve().parents[2] / "docs/measured"
FOLDER = "balance-arena"


def results_csv(table: Table) -> str:
    """The table as CSV, a row for each run; inf: never."""
    out = io.StringIO()
    flat = list(rows(table))
    writer = csv.DictWriter(out, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def write(
    docs: Path, table: Table, scenes: Sequence[Scenario], bounds: Bounds, known: Table
) -> None:
    """Write the page and what it shows."""
    files = {f"{slug(scene)}.svg": story(table, scene) for scene in scenes}
    files |= {"results.csv": results_csv(table), "planes.svg": planes(table, scenes)}
    (docs / FOLDER).mkdir(exist_ok=True)
    for name, text in files.items():
        (docs / FOLDER / name).write_text(text, encoding="utf-8")
    words = page(table, scenes, judge(table, scenes, bounds), bounds, known, FOLDER)
    (docs / f"{FOLDER}.md").write_text(words, encoding="utf-8")


def main(argv: Sequence[str]) -> None:
    """Some ten minutes on two cores."""
    parser = OptionParser(prog="make balance-arena", description=__doc__)
    parser.add_argument("--processes", type=int, default=2, help="each has a JVM beside it")
    parser.add_argument("--seeds", type=int, default=99, help="at most so many of a scenario")
    chosen = parser.parse_args(argv)
    begun = time.perf_counter()
    scenes = scenarios()
    bounds = least_bytes(scenes, chosen.seeds, chosen.processes)
    table = fill((*STOCK, *OURS), scenes, chosen.processes, chosen.seeds)
    known = fill(*needed(), chosen.processes, chosen.seeds)
    write(DOCS, table, scenes, bounds, known)
    runs = sum(len(cell.runs) for cell in table.values())
    print(f"{runs} runs in {time.perf_counter() - begun:.0f} s: {DOCS / FOLDER}.md")


if __name__ == "__main__":
    run_job(main)
