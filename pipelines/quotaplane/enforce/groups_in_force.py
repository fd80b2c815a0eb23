"""Tracks which groups' limits are enforced on all of their topics, and as of which decision.

Take-over waits for this before it removes a quota from the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.model import PUBLISH, BoolArray, FloatArray
from quotaplane.topics.topic_layout import KINDS, Layout

_DIMENSIONS: Final = 2
_PUBLISH_KIND: Final = KINDS.index("publish")


class GroupsInForce(NamedTuple):
    """For each group, the decision time up to which its publish limits are enforced on every topic.

    Kept from one division to the next, per dimension (messages, bytes).
    """

    since_ms: Mapping[str, FloatArray] = MappingProxyType({})
    """(2,) of each group of which a dimension is in force; -inf = this dimension is not."""

    def after(
        self, layout: Layout, wanted: FloatArray, rates: Rates, moves: Moves, decided_ms: FloatArray
    ) -> GroupsInForce:
        """Those after a division.

        Args:
            layout: the topics and groups.
            wanted: (u, 4) the rates that the division asks for.
            rates: the rates in force.
            moves: the writes that are still to be made.
            decided_ms: (g,) when the newest limits of each group were decided.
        """
        in_force = rates.in_force[:, PUBLISH]
        above = _above_wanted(wanted, rates, moves)
        finite = np.isfinite(wanted[:, PUBLISH])
        # Unlimited: the broker is not enforced (enforcement_percent). NaN on a topic whose parts
        # all have a broker: the broker has received no limit yet.
        free = np.isposinf(wanted[:, PUBLISH]) | (~finite & layout.owned[:, None])
        never = np.full(_DIMENSIONS, -np.inf)
        known = [self.since_ms.get(group, never) for group in layout.groups]
        since_ms = np.array(known).reshape(-1, _DIMENSIONS)
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
            newest_ms = np.where(late, since_ms[:, d], decided_ms)
            since_ms[:, d] = np.where(limited & ~unlimited, newest_ms, -np.inf)
        some = np.flatnonzero((since_ms > -np.inf).any(axis=1)).tolist()
        return GroupsInForce({layout.groups[at]: since_ms[at] for at in some})


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
