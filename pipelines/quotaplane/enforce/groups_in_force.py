"""Tracks which groups' limits are enforced on all of their topics, and as of which decision.

Take-over waits for this before it removes a quota from the cluster.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.model import PUBLISH, BoolArray, FloatArray
from quotaplane.topics.topic_layout import KINDS, Layout

_DIMENSIONS: Final = 2
_PUBLISH_KIND: Final = KINDS.index("publish")


class GroupsInForce:
    """For each group, the decision time up to which its publish limits are enforced on every topic.

    Kept per dimension (messages, bytes).
    """

    def __init__(self) -> None:
        self._groups: tuple[str, ...] = ()
        self._since_ms: FloatArray = np.zeros((0, _DIMENSIONS))

    def note(
        self, layout: Layout, wanted: FloatArray, rates: Rates, moves: Moves, decided_ms: FloatArray
    ) -> None:
        """Record the state after a tick.

        Args:
            layout: the topics and groups.
            wanted: (u, 4) the rates that the division asks for.
            rates: the rates in force.
            moves: the writes that are still to be made.
            decided_ms: (g,) when the newest limits of each group were decided.
        """
        self._match(layout)
        in_force = rates.in_force[:, PUBLISH]
        above = _above_wanted(wanted, rates, moves)
        finite = np.isfinite(wanted[:, PUBLISH])
        # Unlimited: the broker is not enforced (enforcement_percent). NaN on a topic whose parts
        # all have a broker: the broker has received no limit yet.
        free = np.isposinf(wanted[:, PUBLISH]) | (~finite & layout.owned[:, None])
        for d in range(_DIMENSIONS):
            limited, unlimited, late = (
                np.bincount(layout.group[topics], minlength=len(layout.groups)) > 0
                for topics in (
                    finite[:, d],
                    free[:, d] | (finite[:, d] & ~np.isfinite(in_force[:, d])),
                    finite[:, d] & above[:, d],
                )
            )
            # While one topic still has a higher rate, only the earlier limits are in force.
            since_ms = np.where(late, self._since_ms[:, d], decided_ms)
            self._since_ms[:, d] = np.where(limited & ~unlimited, since_ms, -np.inf)

    def _match(self, layout: Layout) -> None:
        """Order the rows as the layout orders its groups; new groups start at -inf."""
        if layout.groups == self._groups:
            return
        previous = dict(zip(self._groups, self._since_ms, strict=True))
        never = np.full(_DIMENSIONS, -np.inf)
        since_ms = [previous.get(group, never) for group in layout.groups]
        self._since_ms = np.array(since_ms).reshape(-1, _DIMENSIONS)
        self._groups = layout.groups

    def groups(self) -> dict[str, FloatArray]:
        """Groups with at least one dimension in force, and the decision times (2,) of messages and
        bytes, in ms; -inf = this dimension is not in force.
        """
        some = np.flatnonzero((self._since_ms > -np.inf).any(axis=1))
        return {self._groups[at]: self._since_ms[at].copy() for at in some.tolist()}


def _above_wanted(wanted: FloatArray, rates: Rates, moves: Moves) -> BoolArray:
    """(u, 2) publish rates that are, or may be, higher than wanted."""
    in_force, after_writes = rates.in_force[:, PUBLISH], rates.after_writes[:, PUBLISH]
    # A write in flight or failed leaves either of two rates in force.
    uncertain = ~rates.idle[:, _PUBLISH_KIND] | moves.unread[:, _PUBLISH_KIND]
    above: BoolArray = after_writes < in_force
    above |= uncertain[:, None] & (wanted[:, PUBLISH] < in_force)
    lowers = (moves.rates < in_force[moves.topic]).any(axis=1)
    above[moves.topic[(moves.kind == _PUBLISH_KIND) & lowers]] = True
    return above
