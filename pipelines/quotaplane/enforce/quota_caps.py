"""Caps limits so that they stay within the quota of their group and of each of its ancestors."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.groups.hierarchy import ancestors
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray

_ROUNDING: Final = 1e-6
"""The limits of a group add up to its quota except for rounding errors of this relative size."""
_REPORTED_CUT: Final = 0.01
"""A relative cut above this is more than rounding and is reported."""


class TableQuotas(NamedTuple):
    """The n groups of the table ``resource_groups``."""

    place: dict[str, int]
    """Each group's index, by name."""
    quota: FloatArray
    """(n, 4) per second; inf = unlimited."""
    hard: BoolArray
    """(n,) the group's limits are enforced."""
    in_part: BoolArray
    """(n,) they are enforced on some of the brokers only (``enforcement_percent``)."""
    updated_at_ms: FloatArray
    """(n,) when each row was written."""


class QuotaCaps(NamedTuple):
    """The c quotas that cap g groups: each group's own and those of its ancestors."""

    names: tuple[str, ...]
    """(c,) the group that each quota belongs to."""
    quota: FloatArray
    """(c, 4) per second; inf = unlimited."""
    group: IntArray
    """(m,) index of the capped group; pair i says that ``cap[i]`` caps ``group[i]``."""
    cap: IntArray
    """(m,) index of the quota."""
    in_part: BoolArray
    """(g,) enforced on some of the brokers only: an unlimited broker is correct."""


def caps_of(groups: tuple[str, ...], quotas: TableQuotas | None) -> QuotaCaps:
    """Collect the quotas that cap these groups; none if the table could not be read (None).

    A group that is missing from the table or not enforced is not capped. A group that is not
    enforced does not cap its descendants.

    >>> quotas = TableQuotas({"a": 0, "a::b": 1, "c": 2}, np.full((3, 4), 7.0),
    ...     np.array([True, True, False]), np.zeros(3, np.bool_), np.zeros(3))
    >>> caps = caps_of(("a", "a::b", "c", "d"), quotas)
    >>> caps.names, caps.group.tolist(), caps.cap.tolist()
    (('a', 'a::b'), [0, 1, 1], [0, 1, 0])
    """
    in_part = np.zeros(len(groups), np.bool_)
    if quotas is None:
        none = np.zeros(0, np.int64)
        return QuotaCaps((), np.zeros((0, BASIC)), none, none, in_part)
    places: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for at, group in enumerate(groups):
        own = quotas.place.get(group)
        if own is None or not quotas.hard[own]:
            continue
        in_part[at] = quotas.in_part[own]
        for name in (group, *ancestors(group)):
            if name in quotas.place and quotas.hard[quotas.place[name]]:
                pairs.append((at, places.setdefault(name, len(places))))
    group_at, cap = np.array(pairs, np.int64).reshape(-1, 2).T
    quota = quotas.quota[[quotas.place[name] for name in places]].reshape(-1, BASIC)
    return QuotaCaps(tuple(places), quota, group_at, cap, in_part)


class Capped(NamedTuple):
    """The result of ``capped``."""

    limits: FloatArray
    """(k, 4) the limits after the cut."""
    cut: BoolArray
    """(g,) some limit of the group was cut by more than a rounding error."""


def capped(caps: QuotaCaps, group: IntArray, limits: FloatArray, over: float = 0.0) -> Capped:
    """Cut limits (k, 4), one row per broker and group (k,), so that they fit the quotas.

    No limit exceeds the lowest quota that caps its group. If the limits under one quota add up to
    more than it, and more than ``over`` of it on top (``limits.over``), all are scaled by the same
    factor, as nothing shows which of them is wrong. NaN (no limit received) stays NaN.

    >>> first = np.array([0])
    >>> caps = QuotaCaps(("g",), np.full((1, 4), 100.0), first, first, np.array([False]))
    >>> limits = np.array([[1e9, 20, np.inf, np.nan], [100.0, 30, 0, 50]])
    >>> capped(caps, np.array([0, 0]), limits).limits
    array([[ 50.,  20., 100.,  nan],
           [ 50.,  30.,   0.,  50.]])
    """
    groups, count = len(caps.in_part), len(caps.names)
    least = np.full((groups, BASIC), np.inf)
    np.minimum.at(least, caps.group, caps.quota[caps.cap])
    free = np.isposinf(limits) & caps.in_part[group][:, None]
    within = np.minimum(limits, np.where(free, np.inf, least[group]))
    finite = np.where(np.isfinite(within), within, 0.0)
    totals = np.zeros((count, BASIC))
    for d in range(BASIC):
        by_group = np.bincount(group, weights=finite[:, d], minlength=groups)
        totals[:, d] = np.bincount(caps.cap, weights=by_group[caps.group], minlength=count)
    fits = np.ones((count, BASIC))
    most = caps.quota * (1.0 + over)
    np.divide(most, totals, out=fits, where=totals > most * (1.0 + _ROUNDING))
    factor = np.ones((groups, BASIC))
    np.minimum.at(factor, caps.group, fits[caps.cap])
    reduced = np.where(np.isfinite(within), within * factor[group], within)
    cut = np.zeros(groups, np.bool_)
    cut[group[(limits > reduced * (1.0 + _REPORTED_CUT)).any(axis=1)]] = True
    return Capped(reduced, cut)
