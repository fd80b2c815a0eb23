"""The part of the results page about wishes: how many are met, and where the default law fails."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.arena.wishes import Measured, Verdict, Wish


def section(verdicts: Sequence[Verdict], default: str) -> list[str]:
    """Its part of the page; ``default`` is the law of which each miss is named."""
    by_law: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_law.setdefault(verdict.law, []).append(verdict)
    return [
        "| law | wishes met | in harder places |",
        "|---|---|---|",
        *(
            f"| {law} | {_count(group, False)} | {_count(group, True)} |"
            for law, group in by_law.items()
        ),
        "",
        f"Wishes that *{default}* does not meet:",
        "",
        "| wish | not met in |",
        "|---|---|",
        *_missed(by_law[default]),
        "",
    ]


def _missed(verdicts: Sequence[Verdict]) -> list[str]:
    by_wish: dict[str, list[str]] = {}
    for verdict in verdicts:
        by_wish.setdefault(verdict.wish.name, []).extend(
            f"{place.key.scenario}, {place.key.condition}: "
            f"{number(verdict.wish, place.found.value)}"
            for place in verdict.missed
        )
    return [f"| {wish} | {'; '.join(places)} |" for wish, places in by_wish.items() if places]


def _count(verdicts: Sequence[Verdict], harder: bool) -> str:
    some = [verdict for verdict in verdicts if verdict.harder == harder]
    met = sum(verdict.met for verdict in some)
    return f"{met} of {met + sum(len(verdict.missed) for verdict in some)}"


def bound(wish: Wish, found: Measured) -> str:
    """Bound of a wish, in words."""
    return f"{'at most' if wish.at_most else 'at least'} {number(wish, found.wanted)}"


def number(wish: Wish, value: float | None) -> str:
    """A figure in the wish's unit."""
    if value is None:
        return "never"
    return {"rounds": f"{value:.0f}", "part": f"{value:.4f}", "percent": f"{100 * value:.2f} %"}[
        wish.unit
    ]
