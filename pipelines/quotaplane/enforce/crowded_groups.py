"""Finds groups with more topics than units in their limits: rates of topics can't limit these.

The lowest rate that Pulsar can express is 1 per second, so 50,000 topics with a limit of 1,000 a
second could use 50,000. The cluster's own calculator limits such a group as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.topics.topic_layout import Layout

LASTS_S: Final = 10.0
"""A group counts as crowded after so long: its limits may just be changing."""
OVER_BELOW: Final = 0.8
"""It stops to be crowded when its topics are below this part of its limits."""


def units_missing(layout: Layout, limits: FloatArray) -> FloatArray:
    """(g, 4) topics and partitions of each group, as a part of the units in all of its limits.

    Above 1: even with a rate of 1 each they can use more than the limits. Unlimited dimensions and
    groups without limits have 0.

    Args:
        layout: the topics, and which broker has each part.
        limits: (k, 4) of ``layout.pairs``; inf = unlimited, NaN = no limit received.

    >>> layout = Layout(("b",), ("g",), ("s", "t"), np.array([0, 0]), ("s", "t"),
    ...     np.array([0, 1]), np.array([0, 0]))
    >>> units_missing(layout, np.array([[1.0, 8.0, np.inf, np.nan]]))
    array([[2.  , 0.25, 0.  , 0.  ]])
    """
    pairs = layout.pairs
    shape = len(layout.groups), limits.shape[1]
    parts, units = np.zeros(shape), np.zeros(shape)
    received = ~np.isnan(limits)
    counts = np.diff(pairs.starts)[:, None] * received
    np.add.at(parts, pairs.group, counts)
    np.add.at(units, pairs.group, np.where(received, limits, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(parts > 0, parts / units, 0.0)


class CrowdedGroups(NamedTuple):
    """The groups that are crowded for some time; kept from one division to the next."""

    groups: frozenset[str] = frozenset()
    since_s: Mapping[str, float] = MappingProxyType({})
    """Since when a group has more topics than units."""

    def after(self, layout: Layout, limits: FloatArray, now_s: float) -> CrowdedGroups:
        """Those after a division of the limits (k, 4) of the layout's pairs."""
        worst = units_missing(layout, limits).max(axis=1, initial=0.0)
        still = _named(layout, worst > OVER_BELOW) & self.groups
        above = {group: self.since_s.get(group, now_s) for group in _named(layout, worst > 1.0)}
        lasting = {group for group, since_s in above.items() if now_s - since_s >= LASTS_S}
        return CrowdedGroups(still | lasting, above)


def _named(layout: Layout, which: BoolArray) -> frozenset[str]:
    return frozenset(layout.groups[at] for at in np.flatnonzero(which).tolist())
