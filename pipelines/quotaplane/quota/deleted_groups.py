"""Quota that stays reserved for deleted groups; only with ``transition: strict``.

A broker that missed the deletion of a group may use its old limit until the lease ends. Until then
that amount is subtracted from the quota of the nearest existing ancestor, or from the group's own
if it is created again.
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
    """The reservations of n deleted groups."""

    names: tuple[str, ...] = ()
    """The groups; a group that was deleted twice may be there twice."""
    until_ms: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """(n,) when the last lease ends."""
    held: FloatArray = field(default_factory=lambda: np.empty((len(DIMENSIONS), 0)))
    """(dimensions, n) per second: what the brokers may be using together; inf = unlimited."""

    def next(
        self, groups: Groups, lost: Leases | None, round_: Round, config: StepConfig
    ) -> DeletedReservations:
        """Drop reservations that are over, and add those of the groups deleted in this round.

        ``lost``: the leases of deleted groups; ``groups``: before the deletions.
        """
        valid = self.until_ms > round_.now_ms
        kept = self
        if not valid.all():
            names = tuple(n for n, keep in zip(self.names, valid.tolist(), strict=True) if keep)
            kept = DeletedReservations(names, self.until_ms[valid], self.held[:, valid])
        if lost is None or config.transition is Transition.FAST or not lost.has_limit.any():
            return kept
        lost = lost.take(lost.has_limit).in_dimensions(range(len(DIMENSIONS)))
        deleted, index = np.unique(lost.group, return_inverse=True)
        # A broker was notified that it is unlimited where limits are not enforced: no bound.
        held = np.where(lost.enforced, lost.max_in_force, np.where(lost.notified, np.inf, 0.0))
        sums = [np.bincount(index, weights=rates, minlength=len(deleted)) for rates in held]
        until_ms = config.lease.reserved_until_ms(round_.now_ms)
        return DeletedReservations(
            (*kept.names, *groups.names.take(pa.array(deleted)).to_pylist()),
            np.concatenate([kept.until_ms, np.full(len(deleted), until_ms)]),
            np.concatenate([kept.held, np.stack(sums)], axis=1),
        )

    def reserved(self, groups: Groups, dimensions: Sequence[int]) -> FloatArray | None:
        """(d, g) the part of each quota that is reserved; None: nothing is.

        A reservation counts for the group of its name, else for the nearest existing ancestor.
        """
        if not self.names:
            return None
        group = nearest([[name, *ancestors(name)] for name in self.names], groups.names)
        found = group >= 0
        if not found.any():
            return None
        return np.stack(
            [
                np.bincount(group[found], weights=rates[found], minlength=len(groups))
                for rates in self.held[list(dimensions)]
            ]
        )
