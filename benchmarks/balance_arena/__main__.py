"""Run the balance arena and write docs/measured/balance-arena.md, its plots and its table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.balance_arena.bounds import least_bytes
from benchmarks.balance_arena.contenders import OURS, STOCK
from benchmarks.balance_arena.grid import Table, fill
from benchmarks.balance_arena.page import page, slug
from benchmarks.balance_arena.plots import planes, story
from benchmarks.balance_arena.results import minimum_csv, read_minimum, read_table, table_csv
from benchmarks.balance_arena.scenarios import scenarios
from benchmarks.balance_arena.verdicts import Bounds, minimum
from quotaplane.console.option_parser import OptionParser
from quotaplane.streams.script import run_job

DOCS = Path(__file__).resolve().parents[2] / "docs/measured"
FOLDER = "balance-arena"


def write(docs: Path, table: Table, bounds: Bounds) -> None:
    """Write the tables, the plots and the page."""
    scenes = scenarios()
    files = {f"{slug(scene)}.svg": story(table, scene) for scene in scenes}
    files |= {
        "results.csv": table_csv(table),
        "minimum.csv": minimum_csv(minimum(table, bounds)),
        "planes.svg": planes(table, scenes),
    }
    (docs / FOLDER).mkdir(exist_ok=True)
    for name, text in files.items():
        (docs / FOLDER / name).write_text(text, encoding="utf-8")
    write_page(docs)


def write_page(docs: Path) -> None:
    """Write the page again, from the tables in its folder."""
    (docs / f"{FOLDER}.md").write_text(page_of(docs / FOLDER), encoding="utf-8")


def page_of(folder: Path) -> str:
    """The page, made of the tables in a folder."""
    table = read_table((folder / "results.csv").read_text(encoding="utf-8"))
    least = read_minimum((folder / "minimum.csv").read_text(encoding="utf-8"))
    return page(table, scenarios(), least, FOLDER)


def main(argv: Sequence[str]) -> None:
    """Some half an hour on two cores."""
    parser = OptionParser(prog="make balance-arena", description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=99, help="at most so many of a scenario")
    parser.add_argument("--page", action="store_true", help="write the page of the last run again")
    chosen = parser.parse_args(argv)
    if chosen.page:
        write_page(DOCS)
        return
    begun = time.perf_counter()
    scenes = scenarios()
    bounds = least_bytes(scenes, chosen.seeds, chosen.processes)
    table = fill((*STOCK, *OURS), scenes, chosen.processes, chosen.seeds)
    write(DOCS, table, bounds)
    runs = sum(len(cell.runs) for cell in table.values())
    print(f"{runs} runs in {time.perf_counter() - begun:.0f} s: {DOCS / FOLDER}.md")


if __name__ == "__main__":
    run_job(main)
