"""Run the whole arena and write docs/arena.md, its plots and its table. Run by ``make arena``."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.arena.contenders import CAUSAL, Contender, contenders
from benchmarks.arena.grid import Table, fill, rows
from benchmarks.arena.held import SCENARIO, measure
from benchmarks.arena.page import page
from benchmarks.arena.plots import over, settling, story, use
from benchmarks.arena.scenarios import CONDITIONS, scenarios
from benchmarks.arena.wishes import judge
from quotaplane.option_parser import OptionParser
from quotaplane.streams.script import run_job

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = "arena"
_STORY_LAWS = (
    "pip82 each, stealing",
    "proportional",
    "Doorman FAIR_SHARE",
    "TiKV",
    CAUSAL,
)


def results_csv(table: Table) -> str:
    """The table as CSV; empty: never settled."""
    out = io.StringIO()
    flat = rows(table)
    writer = csv.DictWriter(out, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def write(docs: Path, table: Table, laws: tuple[Contender, ...]) -> None:
    """Write the page and what it shows."""
    scenes = scenarios()
    ours = [law for law in laws if law.transition is not None]
    quiet = CONDITIONS[0].name
    told = [ours[0], *(law for law in laws if law.name in _STORY_LAWS)]
    by_name = {scene.name: scene for scene in scenes}
    files = {
        "results.csv": results_csv(table),
        "settling.svg": settling(table, laws, quiet),
        "use.svg": use(table, laws, quiet),
        "over.svg": over(table, laws, quiet),
        "idle_wakes.svg": story(told, by_name["idle wakes"]),
        "flash_crowd.svg": story(told, by_name["flash crowd"]),
    }
    (docs / FOLDER).mkdir(exist_ok=True)
    for name, text in files.items():
        (docs / FOLDER / name).write_text(text, encoding="utf-8")
    fast = tuple(law for law in ours if law.transition == "fast")
    held = measure(fast, by_name[SCENARIO])
    words = page(table, laws, scenes, judge(table, ours), held, FOLDER)
    (docs / "arena.md").write_text(words, encoding="utf-8")


def main(argv: Sequence[str]) -> None:
    """Some two minutes on one core."""
    OptionParser(prog="make arena", description=__doc__).parse_args(argv)
    begun = time.perf_counter()
    laws = contenders()
    table = fill(laws, scenarios(), CONDITIONS)
    write(DOCS, table, laws)
    print(f"{len(table)} cells in {time.perf_counter() - begun:.0f} s: {DOCS / 'arena.md'}")


if __name__ == "__main__":
    run_job(main)
