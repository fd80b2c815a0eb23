"""Keeps a plan small enough for a message. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.balance.decisions import Decisions, Skip

PLAN_BYTES: Final = 900_000
"""A larger plan loses its last moves: Kafka accepts 1 MB by default."""


def fitting(decisions: Decisions, most_bytes: int = PLAN_BYTES) -> Decisions:
    """The decisions without the last moves and splits that would not fit into a message."""
    texts = [sum(map(len, map(str.encode, (*move[:3], *move[4:])))) for move in decisions.moves]
    texts += [
        sum(map(len, map(str.encode, (each.bundle, each.owner, each.label, each.reason))))
        + 5 * len(each.boundaries)
        for each in decisions.splits
    ]
    room = np.cumsum(np.array([*texts], np.int64) + 40) <= most_bytes
    if room.all():
        return decisions
    kept, moves = int(room.sum()), len(decisions.moves)
    left_out = len(room) - kept
    reason = f"{left_out} moves and splits do not fit into a plan's message"
    skip = Skip("", "PlanTooLarge", reason, left_out)
    return Decisions(
        decisions.moves[: min(kept, moves)],
        decisions.splits[: max(kept - moves, 0)],
        (*decisions.skips, skip),
    )
