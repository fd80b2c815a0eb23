"""Which groups' limits are in force on all their topics: what take-over waits for."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.model import PUBLISH, FloatArray
from quotaplane.topic_layout import KINDS, Layout

_DIMENSIONS: Final = 2


class GroupsInForce:
    """Which limits are in force on all publishers of a group: those told until when."""

    def __init__(self) -> None:
        self._groups: tuple[str, ...] = ()
        self._since_ms: FloatArray = np.zeros((0, _DIMENSIONS))

    def note(
        self, layout: Layout, wanted: FloatArray, rates: Rates, moves: Moves, told_ms: FloatArray
    ) -> None:
        """How it stands: rates (u, 4) are wanted, and ``moves`` were left to make; groups were told
        limits last at ``told_ms`` (g,).
        """
        if layout.groups != self._groups:
            before = dict(zip(self._groups, self._since_ms, strict=True))
            never = np.full(_DIMENSIONS, -np.inf)
            self._since_ms = np.array([before.get(group, never) for group in layout.groups])
            self._since_ms = self._since_ms.reshape(-1, _DIMENSIONS)
            self._groups = layout.groups
        in_force, going = rates.in_force[:, PUBLISH], rates.going[:, PUBLISH]
        # What is under way or failed may have to come down still.
        kind = KINDS.index("publish")
        unsure = ~rates.free[:, kind] | moves.unread[:, kind]
        comes_down = (going < in_force) | (unsure[:, None] & (wanted[:, PUBLISH] < in_force))
        lower = (moves.kind == KINDS.index("publish")) & (moves.rates < in_force[moves.topic]).any(
            axis=1
        )
        comes_down[moves.topic[lower]] = True
        finite = np.isfinite(wanted[:, PUBLISH])
        # Of brokers that are not limited (enforcement_percent), or were told nothing so far.
        free = np.isposinf(wanted[:, PUBLISH]) | (~finite & layout.owned[:, None])
        for d in range(_DIMENSIONS):
            some, lacking, late = (
                np.bincount(layout.group[which], minlength=len(layout.groups)) > 0
                for which in (
                    finite[:, d],
                    free[:, d] | (finite[:, d] & ~np.isfinite(in_force[:, d])),
                    finite[:, d] & comes_down[:, d],
                )
            )
            # While some still come down, what was in force before is.
            since_ms = np.where(late, self._since_ms[:, d], told_ms)
            self._since_ms[:, d] = np.where(some & ~lacking, since_ms, -np.inf)

    def groups(self) -> dict[str, FloatArray]:
        """Those of which some limit is in force: messages and bytes (2,), told so long ago at
        most, in ms; -inf = none.
        """
        some = np.flatnonzero((self._since_ms > -np.inf).any(axis=1))
        return {self._groups[at]: self._since_ms[at].copy() for at in some.tolist()}
