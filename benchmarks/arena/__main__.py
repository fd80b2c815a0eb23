"""Run the whole arena and write docs/measured/arena.md, its plots and its table: ``make arena``.

With --page, write only the page, from the tables of the last run. With --brief, print a summary
of our laws and write nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.arena.brief import brief
from benchmarks.arena.contenders import CAUSAL, STATIC, Contender, contenders
from benchmarks.arena.grid import Table, fill
from benchmarks.arena.held import HELD_LAWS, SCENARIO, measure
from benchmarks.arena.page import page
from benchmarks.arena.plots import innocents, settling, story
from benchmarks.arena.results import held_csv, read_held, read_table, table_csv
from benchmarks.arena.scenarios import CONDITIONS, FEW, Condition, Scenario, scenarios
from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import ConfigError
from quotaplane.sim.broker_throttle import BY_DEFAULT
from quotaplane.streams.script import run_job

DOCS = Path(__file__).resolve().parents[2] / "docs/measured"
FOLDER = "arena"
_STORY_LAWS = (
    "pip82 each, stealing",
    "proportional",
    "Doorman FAIR_SHARE",
    "TiKV",
    CAUSAL,
)


def write(docs: Path, table: Table, laws: tuple[Contender, ...]) -> None:
    """Write the tables, the plots and the page."""
    ours = [law for law in laws if law.transition is not None]
    told = [ours[0], *(law for law in laws if law.name in _STORY_LAWS)]
    by_name = {scene.name: scene for scene in scenarios()}
    held = measure(tuple(law for law in ours if law.name in HELD_LAWS), by_name[SCENARIO])
    files = {
        "results.csv": table_csv(table),
        "throttle.csv": held_csv(held),
        "settling.svg": settling(table, laws, CONDITIONS[0].name),
        "innocents.svg": innocents(table, laws, FEW),
        "idle_wakes.svg": story(told, by_name["idle wakes"]),
    }
    (docs / FOLDER).mkdir(exist_ok=True)
    for name, text in files.items():
        (docs / FOLDER / name).write_text(text, encoding="utf-8")
    write_page(docs)


def write_page(docs: Path) -> None:
    """Write the page again, from the tables in its folder."""
    (docs / "arena.md").write_text(page_of(docs / FOLDER), encoding="utf-8")


def page_of(folder: Path) -> str:
    """The page, made of the tables in a folder."""
    table = read_table((folder / "results.csv").read_text(encoding="utf-8"))
    held = read_held((folder / "throttle.csv").read_text(encoding="utf-8"))
    played = {key.scenario for key in table}
    scenes = [scene for scene in scenarios() if scene.name in played]
    return page(table, contenders(), scenes, held, FOLDER)


Named = TypeVar("Named", Contender, Scenario, Condition)


def chosen(every: Iterable[Named], names: Sequence[str] | None, option: str) -> list[Named]:
    """Those with one of the names, in the order of the page; None: all.

    Raises:
        ConfigError: there is no such name.
    """
    by_name = {one.name: one for one in every}
    if unknown := set(names or ()) - set(by_name):
        raise ConfigError(
            f"{option}: there is no {sorted(unknown)[0]!r} (there are: {'; '.join(by_name)})"
        )
    return [one for name, one in by_name.items() if names is None or name in names]


def summary(
    laws: Sequence[str] | None = None,
    scenes: Sequence[str] | None = None,
    conditions: Sequence[str] | None = None,
    *,
    ideal: bool = False,
    jobs: int = 1,
) -> str:
    """Output of ``--brief``: means of the scenarios, and wishes that are not met.

    Args:
        laws: names of contenders; None: ours.
        scenes: names of scenarios; None: all.
        conditions: names of conditions; None: all.
        ideal: brokers use min(demand, limit) in each round; else they have buckets.
        jobs: number of processes.

    Raises:
        ConfigError: a name is wrong.
    """
    every = contenders()
    ours = [law.name for law in every if law.transition is not None]
    playing = chosen(every, ours if laws is None else laws, "--laws")
    measures = [law for law in every if law.name in (CAUSAL, STATIC) and law not in playing]
    table = fill(
        [*playing, *measures],
        chosen(scenarios(), scenes, "--scenarios"),
        chosen(CONDITIONS, conditions, "--conditions"),
        throttle=None if ideal else BY_DEFAULT,
        jobs=jobs,
    )
    return brief(table, playing)


def main(argv: Sequence[str]) -> None:
    """Some five minutes on one core."""
    parser = OptionParser(prog="python -m benchmarks.arena", description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the page of the last run again")
    parser.add_argument("--brief", action="store_true", help="print a summary, write nothing")
    for name, which in (("laws", "ours"), ("scenarios", "all"), ("conditions", "all")):
        words = f"with --brief: {name} by name (default: {which})"
        parser.add_argument(f"--{name}", nargs="+", metavar="NAME", help=words)
    parser.add_argument(
        "--ideal",
        action="store_true",
        help="with --brief: brokers use min(demand, limit) in each round; they have no buckets",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    args = parser.parse_args(argv)
    if args.jobs < 1:
        raise ConfigError(f"--jobs: must be at least 1, not {args.jobs}")
    begun = time.perf_counter()
    if args.brief:
        names = (args.laws, args.scenarios, args.conditions)
        print(summary(*names, ideal=args.ideal, jobs=args.jobs))
        return
    if args.laws or args.scenarios or args.conditions or args.ideal:
        raise ConfigError("--laws, --scenarios, --conditions and --ideal are only for --brief")
    if args.page:
        write_page(DOCS)
        return
    laws = contenders()
    table = fill(laws, scenarios(), CONDITIONS, jobs=args.jobs)
    write(DOCS, table, laws)
    print(f"{len(table)} cells in {time.perf_counter() - begun:.0f} s: {DOCS / 'arena.md'}")


if __name__ == "__main__":
    run_job(main)
