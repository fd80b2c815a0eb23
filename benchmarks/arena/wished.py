"""The part of the results page about wishes: met or missed, by how much, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.arena.scenarios import CONDITIONS, HARDER, Scenario
from benchmarks.arena.wishes import Measured, Verdict, Wish


def section(verdicts: Sequence[Verdict], scenes: Sequence[Scenario]) -> list[str]:
    """Its part of the page: first the count, then the first places, then the harder ones."""
    by_law: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_law.setdefault(verdict.law, []).append(verdict)
    verdicts = [verdict for group in by_law.values() for verdict in group]
    first = [scene.name for scene in scenes if scene.name not in HARDER]
    conditions = [condition.name for condition in CONDITIONS if condition.name not in HARDER]
    lines = [
        "## Wanted of our default law",
        "",
        "Rounds to settle are those of the worst shift and seed. The movement that noise causes is",
        "assumed to be that of the causal optimum's limits, which only follow demand. Wishes met,",
        "of all wishes in all scenarios. Harder scenarios and conditions came later, and are",
        "counted by themselves, so that the first number compares with that of earlier versions:",
        "",
        f"| law | first {len(first)} scenarios, {', '.join(conditions)} | harder |",
        "|---|---|---|",
        *(
            f"| {law} | {_count(group, False)} | {_count(group, True)} |"
            for law, group in by_law.items()
        ),
        "",
        f"Harder are {', '.join(_quoted(scenes))} under all conditions, and all scenarios under",
        f'{" and ".join(name for name in _names() if name in HARDER)} ("few counts"). r is the',
        "standard deviation of a small broker's demand in a round, by its mean.",
        "",
    ]
    for harder, title in ((False, "First scenarios and conditions"), (True, "Harder ones")):
        some = [verdict for verdict in verdicts if verdict.harder == harder]
        if some:
            lines += [f"### {title}", "", *_table(some), *_all_missed(some)]
    return lines


def _names() -> list[str]:
    return [condition.name for condition in CONDITIONS]


def _quoted(scenes: Sequence[Scenario]) -> list[str]:
    return [f'"{scene.name}"' for scene in scenes if scene.name in HARDER]


def _count(verdicts: Sequence[Verdict], harder: bool) -> str:
    some = [verdict for verdict in verdicts if verdict.harder == harder]
    met = sum(verdict.met for verdict in some)
    return f"{met} of {met + sum(len(verdict.missed) for verdict in some)}"


def _table(verdicts: Sequence[Verdict]) -> list[str]:
    lines = ["| wish | law | met in | worst |", "|---|---|---|---|"]
    for verdict in verdicts:
        places = verdict.met + len(verdict.missed)
        word = "all" if not verdict.missed else f"{verdict.met}"
        lines.append(
            f"| {verdict.wish.name} | {verdict.law} | {word} of {places} | {_worst(verdict)} |"
        )
    return [*lines, ""]


def _worst(verdict: Verdict) -> str:
    if not verdict.missed:
        return ""
    wish = verdict.wish

    def by(found: Measured) -> float:
        if found.value is None:
            return np.inf
        return found.value - found.wanted if wish.at_most else found.wanted - found.value

    worst = max(verdict.missed, key=lambda place: by(place.found))
    return f"{number(wish, worst.found.value)} ({worst.key.scenario}, {worst.key.condition})"


def _all_missed(verdicts: Sequence[Verdict]) -> list[str]:
    lines = []
    if any(verdict.missed for verdict in verdicts):
        lines += [
            "Wishes that are not met, by how much, and the reason as far as the figures show it:",
            "",
        ]
    for verdict in verdicts:
        if verdict.missed:
            lines += _missed(verdict)
    return lines


def _missed(verdict: Verdict) -> list[str]:
    wish = verdict.wish
    return [
        f"**{wish.name}** ({verdict.law}):",
        "",
        "| scenario | condition | found | wanted | causal optimum | |",
        "|---|---|---|---|---|---|",
        *(
            f"| {place.key.scenario} | {place.key.condition} | {number(wish, place.found.value)} "
            f"| {bound(wish, place.found)} | {number(wish, place.found.best)} | {place.why} |"
            for place in verdict.missed
        ),
        "",
    ]


def bound(wish: Wish, found: Measured) -> str:
    """What is wanted, in words."""
    return f"{'at most' if wish.at_most else 'at least'} {number(wish, found.wanted)}"


def number(wish: Wish, value: float | None) -> str:
    """A figure in the wish's unit."""
    if value is None:
        return "never"
    return {"rounds": f"{value:.0f}", "part": f"{value:.4f}", "percent": f"{100 * value:.2f} %"}[
        wish.unit
    ]
