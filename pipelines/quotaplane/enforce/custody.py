"""Custody of a group's publish quota: the meaning of -1 in a cluster, and what to do next.

The stock calculator of the brokers throttles each group that has a publish quota in the cluster, in
addition to our rates. So the enforcer hides the quota: the cluster has -1, and a copy in a group of
its own. ``quota`` is the only place that says what -1 means, ``act`` the only one that decides when
a quota is hidden or given back. All that they need is in the cluster and in the table, so after a
crash anywhere the same call goes on from there (docs/adr/0024-custody.md).

Arrays are (2,) messages and bytes per second: inf = unlimited, which is -1 in the cluster; NaN = no
such group, row or copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray

NONE: Final = np.full(2, np.nan)
"""No such group, row or copy."""
NEVER: Final = np.full(2, -np.inf)
"""Decision times of limits of which none is in force."""


def quota(cluster: FloatArray, table: FloatArray, copy: FloatArray) -> FloatArray:
    """Publish quotas (..., 2): the cluster's number, else the table's, else the copy's.

    Where none of them has a number, the quota is unlimited (inf). A row of the table decides for
    both dimensions: without a number in the row it is unlimited, whatever the copy has.

    >>> quota(np.array([200.0, np.inf]), np.array([100.0, 50.0]), NONE)
    array([200.,  50.])
    >>> quota(np.full(2, np.inf), NONE, np.array([100.0, np.inf]))
    array([100.,  inf])
    """
    hidden = np.where(np.isnan(table), copy, table)
    hidden = np.where(np.isnan(hidden), np.inf, hidden)
    return np.where(np.isinf(cluster), hidden, cluster)


class Seen(NamedTuple):
    """A group as the cluster has it."""

    quota: FloatArray
    copy: FloatArray


class Recorded(NamedTuple):
    """A group as the table has it."""

    publish: FloatArray
    """In the whole numbers that the cluster can have (``to_cluster``)."""
    updated_at_ms: float
    """When the row was written."""


class Wish(Enum):
    """The side that shall limit a group."""

    TAKE = "our rates alone: the quota is hidden"
    GIVE = "the cluster: it has the quota"


class KeepCopy(NamedTuple):
    """Write the copy."""

    quota: FloatArray


class Hide(NamedTuple):
    """Set the cluster's quotas to -1 where ``which`` (2,) says so."""

    which: BoolArray


class Give(NamedTuple):
    """Write the cluster's quotas where ``which`` (2,) says so."""

    quota: FloatArray
    which: BoolArray


@dataclass(frozen=True)
class DropCopy:
    """Delete the copy."""


Act = KeepCopy | Hide | Give | DropCopy


def act(seen: Seen, row: Recorded | None, wish: Wish, decided_ms: FloatArray = NEVER) -> Act | None:
    """The next act for a group; None: nothing is to be done.

    ===================== ======================= =====================================
    the cluster has       TAKE                    GIVE
    ===================== ======================= =====================================
    -1 for a known number the copy, if it differs the number, then the copy is deleted
    another number        nothing: the sync       the copy is deleted
                          copies it to the table
    the row's number      once limits are in      the copy is deleted
                          force: the copy, then
                          -1
    -1, no number known   nothing                 the copy is deleted
    no such group         nothing                 nothing
    ===================== ======================= =====================================

    Without a row nothing is taken. ``decided_ms`` (2,): up to when limits are in force on every
    topic of the group (``GroupsInForce``). They follow the row if they were decided after it was
    written.
    """
    if np.isnan(seen.quota).any():
        return None
    numbers = np.isfinite(seen.quota)
    known = quota(seen.quota, NONE if row is None else row.publish, seen.copy)
    hidden = ~numbers & np.isfinite(known)
    if wish is Wish.GIVE:
        if hidden.any():
            return Give(known, hidden)
        return None if np.isnan(seen.copy).any() else DropCopy()
    if row is None or (numbers & (seen.quota != row.publish)).any():
        return None
    takes = numbers.any() and bool((decided_ms > row.updated_at_ms)[numbers].all())
    if (takes or hidden.any()) and not np.array_equal(seen.copy, row.publish):
        return KeepCopy(row.publish)
    return Hide(numbers) if takes else None


def cluster_limits(seen: Seen, row: Recorded | None) -> bool:
    """Whether the cluster limits the group by all that is known of its quota: our rates may go.

    Without a row, a copy or a number in the cluster nobody knows, so our rates have to stay.
    """
    known = quota(seen.quota, NONE if row is None else row.publish, seen.copy)
    unknown = row is None and np.isinf(known).all()
    return not (unknown or (np.isinf(seen.quota) & np.isfinite(known)).any())
