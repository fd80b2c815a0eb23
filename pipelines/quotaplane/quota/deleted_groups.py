"""What deleted groups had given: nobody else may use it until the leases are over.

Of interest to ``transition: strict`` only. A broker of a deleted group hears that it is gone or,
out of reach, goes on using its limits for a lease: for so long that much less is there of the
quotas above, or of the group's own if it is put again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from quotaplane.groups.hierarchy import ancestors, nearest
from quotaplane.model import DIMENSIONS, FloatArray, IntArray, Round, Transition
from quotaplane.quota.config import StepConfig
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases


@dataclass(frozen=True)
class DeletedReservations:
    """Of n deleted groups: ``names``, ``until_ms`` (n,), and ``held`` (dimensions, n).

    What was held is inf where it was unlimited.
    """

    names: tuple[str, ...] = ()
    until_ms: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    held: FloatArray = field(default_factory=lambda: np.empty((len(DIMENSIONS), 0)))

    def next(
        self, groups: Groups, lost: Leases | None, round_: Round, config: StepConfig
    ) -> DeletedReservations:
        """Without what is over, and with what this round's deletions leave.

        ``lost`` are the rows of deleted groups, numbered as in ``groups``, before the deletions.
        """
        still = self.until_ms > round_.now_ms
        kept = self
        if not still.all():
            names = tuple(n for n, keep in zip(self.names, still.tolist(), strict=True) if keep)
            kept = DeletedReservations(names, self.until_ms[still], self.held[:, still])
        if lost is None or config.transition is Transition.FAST or not lost.has_limit.any():
            return kept
        lost = lost.take(lost.has_limit).in_dimensions(range(len(DIMENSIONS)))
        gone, place = np.unique(lost.group, return_inverse=True)
        # Who was told that it is not limited may use anything.
        held = np.where(lost.enforced, lost.max_in_force, np.where(lost.notified, np.inf, 0.0))
        sums = [np.bincount(place, weights=one, minlength=len(gone)) for one in held]
        until_ms = config.lease.reserved_until_ms(round_.now_ms)
        return DeletedReservations(
            (*kept.names, *groups.names.take(pa.array(gone)).to_pylist()),
            np.concatenate([kept.until_ms, np.full(len(gone), until_ms)]),
            np.concatenate([kept.held, np.stack(sums)], axis=1),
        )

    def reserved(self, groups: Groups, dimensions: Sequence[int]) -> FloatArray | None:
        """(dimensions, groups): what is not there to be given; None: nothing is.

        It counts for the group of that name, or else for the nearest one above it that exists.
        """
        if not self.names:
            return None
        place = nearest([[name, *ancestors(name)] for name in self.names], groups.names)
        here = place >= 0
        if not here.any():
            return None
        return np.stack(
            [
                np.bincount(place[here], weights=one[here], minlength=len(groups))
                for one in self.held[list(dimensions)]
            ]
        )
