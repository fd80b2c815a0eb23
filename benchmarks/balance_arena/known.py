"""Whether the arena is right: figures of Pulsar's classes that were measured before, elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from benchmarks.balance_arena.contenders import STOCK, Contender
from benchmarks.balance_arena.grid import Key, Table
from benchmarks.balance_arena.scenarios import Scenario, reproductions
from benchmarks.balance_arena.verdicts import rounds

_THRESHOLD, _LEAST_USE, _UNIFORM, _OVERLOAD, _AVG = (law.name for law in STOCK[:5])
_NEW, _HOT, _NOISE = (scene.name for scene in reproductions())


class Known(NamedTuple):
    """A row of the earlier measurement, as it was written down; "" = not measured."""

    moves: str
    moved: str
    again: str
    final: str
    rounds: str


KNOWN: Final = {
    Key(_THRESHOLD, _NEW): Known("11", "0.17", "0.2", "1.21", "144"),
    Key(_LEAST_USE, _NEW): Known("18-20", "0.22-0.25", "1-2", "1.20-1.23", "123-never"),
    Key(_UNIFORM, _NEW): Known("13", "0.09", "0", "1.145", "75"),
    Key(_OVERLOAD, _NEW): Known("0.2", "0.02", "0", "1.485", "never"),
    Key(_AVG, _NEW): Known("18", "0.10", "0", "1.113", "51"),
    Key(_AVG, _HOT): Known("14", "0.09", "0", "1.143", "50"),
    Key(_THRESHOLD, _NOISE): Known("28", "0.44", "1.8", "", ""),
    Key(_LEAST_USE, _NOISE): Known("31", "0.69", "9", "", ""),
    Key(_UNIFORM, _NOISE): Known("367", "1.82", "174", "", ""),
    Key(_OVERLOAD, _NOISE): Known("53", "0.86", "11", "", ""),
    Key(_AVG, _NOISE): Known("25", "0.14", "2.2", "", ""),
}


def needed() -> tuple[Sequence[Contender], Sequence[Scenario]]:
    """The runs that are needed."""
    return STOCK[:5], reproductions()


def section(table: Table) -> list[str]:
    """The comparison as lines of the page."""
    lines = [
        "## Is the arena right?",
        "",
        "The same classes were measured before by another program, in a closed loop without",
        "staleness and with bundles of another distribution (ten brokers, 300 bundles; its noise",
        "case did not begin balanced). The arena in the same loop, earlier figures in brackets:",
        "",
        "| case | strategy | moves | bytes moved | moved again | final max/mean | rounds to 1.15 |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, old in KNOWN.items():
        cell = table[key]
        lines.append(
            f"| {key.scenario.removeprefix('direct: ')} | {key.contender} "
            f"| {cell.mean('moves'):.1f}{_old(old.moves)} "
            f"| {cell.mean('moved'):.2f}{_old(old.moved)} "
            f"| {cell.mean('again'):.1f}{_old(old.again)} "
            f"| {cell.mean('final'):.3f}{_old(old.final)} "
            f"| {rounds(cell.rounds(0)[0])}{_old(old.rounds)} |"
        )
    return [
        *lines,
        "",
        "The other program's clusters are not known bundle by bundle, so amounts differ; the order",
        "of the strategies and their weaknesses should not.",
        "",
    ]


def _old(text: str) -> str:
    return f" ({text})" if text else ""
