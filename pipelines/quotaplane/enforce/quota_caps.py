"""Cuts limits down to the quotas of the groups, and of the groups above them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.groups.hierarchy import ancestors
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray

_ROUNDING: Final = 1e-6
"""Limits of a group add up to its quota but for rounding."""
_WORTH_TELLING: Final = 0.01
"""More than is allowed by this part is no rounding any more."""


class TableQuotas(NamedTuple):
    """The n groups of the table."""

    place: dict[str, int]
    """Each group's index, by name."""
    quota: FloatArray
    """(n, 4) per second; inf = unlimited."""
    hard: BoolArray
    """(n,) whose limits are enforced at all."""
    in_part: BoolArray
    """(n,) whose limits are enforced on a part of the brokers only (``enforcement_percent``)."""


class QuotaCaps(NamedTuple):
    """The c quotas that g groups are held to: each to its own, and to those of groups above it."""

    names: tuple[str, ...]
    """(c,) the groups whose quotas these are."""
    quota: FloatArray
    """(c, 4) per second; inf = unlimited."""
    group: IntArray
    """(m,) with ``cap`` the pairs of group and quota."""
    cap: IntArray
    """(m,)"""
    in_part: BoolArray
    """(g,) enforced on a part of the brokers: the others are rightly told that they are free."""


def caps_of(groups: tuple[str, ...], quotas: TableQuotas | None) -> QuotaCaps:
    """The quotas that hold for these groups; none where none could be read.

    A group that the table does not have, or that is not enforced, is held to none. Nor does a
    group that is not enforced bind those below it.

    >>> quotas = TableQuotas({"a": 0, "a::b": 1, "c": 2}, np.full((3, 4), 7.0),
    ...     np.array([True, True, False]), np.zeros(3, np.bool_))
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
    """Limits that were cut down to quotas."""

    limits: FloatArray
    """(k, 4) as they were given, but for what is more than the quotas."""
    cut: BoolArray
    """(g,) of which groups some limit was cut, by more than rounding makes."""


def capped(caps: QuotaCaps, group: IntArray, limits: FloatArray) -> Capped:
    """Cut limits (k, 4), each of a broker and the group (k,), down to the quotas.

    None is more than the least of the group's quotas. Where those of one quota add up to more than
    it, all are cut by the same part: no broker's limit says that it is the wrong one. So they are
    never more than any of the quotas, whatever was told. NaN, never told, is left as it is.

    >>> one = np.array([0])
    >>> caps = QuotaCaps(("g",), np.full((1, 4), 100.0), one, one, np.array([False]))
    >>> told = np.array([[1e9, 20, np.inf, np.nan], [100.0, 30, 0, 50]])
    >>> capped(caps, np.array([0, 0]), told).limits
    array([[ 50.,  20., 100.,  nan],
           [ 50.,  30.,   0.,  50.]])
    """
    groups, count = len(caps.in_part), len(caps.names)
    least = np.full((groups, BASIC), np.inf)
    np.minimum.at(least, caps.group, caps.quota[caps.cap])
    free = np.isposinf(limits) & caps.in_part[group][:, None]
    within = np.minimum(limits, np.where(free, np.inf, least[group]))
    finite = np.where(np.isfinite(within), within, 0.0)
    told = np.zeros((count, BASIC))
    for d in range(BASIC):
        by_group = np.bincount(group, weights=finite[:, d], minlength=groups)
        told[:, d] = np.bincount(caps.cap, weights=by_group[caps.group], minlength=count)
    fits = np.ones((count, BASIC))
    np.divide(caps.quota, told, out=fits, where=told > caps.quota * (1.0 + _ROUNDING))
    part = np.ones((groups, BASIC))
    np.minimum.at(part, caps.group, fits[caps.cap])
    left = np.where(np.isfinite(within), within * part[group], within)
    cut = np.zeros(groups, np.bool_)
    cut[group[(limits > left * (1.0 + _WORTH_TELLING)).any(axis=1)]] = True
    return Capped(left, cut)
