"""Tables of the load balancer's answers, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions
from quotaplane.console.answers import table_text


def decisions_table(decided: Sequence[tuple[ClusterLoad, Decisions]], *, explain: bool) -> str:
    """All rounds of a case for a terminal."""
    rows: list[tuple[Any, ...]] = []
    for number, (_, each) in enumerate(decided, 1):
        rows += [
            (
                number,
                "move",
                move.bundle,
                move.source,
                move.target or "(placement)",
                round(move.bytes_per_s / 1e6, 3),
                move.label,
                move.reason,
            )
            for move in each.moves
        ]
        rows += [
            (
                number,
                "split",
                split.bundle,
                split.owner,
                " ".join(map(hex, split.boundaries)),
                None,
                split.label,
                split.reason,
            )
            for split in each.splits
        ]
        if explain:
            rows += [
                (number, "skip", skip.subject or "(cluster)", "", "", None, skip.label, skip.reason)
                for skip in each.skips
            ]
    columns = ("round", "action", "bundle", "from", "to", "MB/s", "label", "reason")
    return "\n".join([table_text(columns, rows), *_summaries(decided)])


def _summaries(decided: Sequence[tuple[ClusterLoad, Decisions]]) -> Iterator[str]:
    """A line for each round: the imbalance of the brokers' bytes, now and after the moves."""
    for number, (load, each) in enumerate(decided, 1):
        moved = sum(move.bytes_per_s for move in each.moves)
        after = predicted(load, each)
        yield (
            f"round {number}: {len(each.moves)} moves of {moved / 1e6:.1f} MB/s, "
            f"{len(each.splits)} splits; most loaded broker / mean {load.max_by_mean():.3f}"
            + (f" -> {after.max_by_mean():.3f}" if after else "")
        )


def predicted(load: ClusterLoad, decided: Decisions) -> ClusterLoad | None:
    """The load once every move is made; None if a move has no target yet."""
    brokers = {name: place for place, name in enumerate(load.brokers)}
    bundles = {name: place for place, name in enumerate(load.bundles)}
    owner = load.owner.copy()
    for move in decided.moves:
        if move.target not in brokers:
            return None
        owner[bundles[move.bundle]] = brokers[move.target]
    return replace(load, owner=owner)


def placements_table(answers: Sequence[Mapping[str, Sequence[str]]]) -> str:
    """The possible brokers for each bundle, round by round."""
    rows = [
        (number, bundle, " ".join(brokers) or "(none)")
        for number, answer in enumerate(answers, 1)
        for bundle, brokers in answer.items()
    ]
    return table_text(("round", "bundle", "brokers"), rows)


def splits_table(answer: Sequence[Any]) -> str:
    """Boundaries of one bundle, or the bundles that are split in each round."""
    if all(isinstance(each, int) for each in answer):
        return table_text(("boundary",), [(hex(each),) for each in answer])
    rows = [
        (number, bundle, " ".join(map(hex, boundaries)) or "(none)")
        for number, round_ in enumerate(answer, 1)
        for bundle, boundaries in round_.items()
    ]
    return table_text(("round", "bundle", "boundaries"), rows)
