"""From the counters of a broker's topics to reports of what each group used there. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from quotaplane.model import BASIC, FloatArray, IntArray
from quotaplane.topics.topic_layout import Layout
from quotaplane.wire.report_own import encode_report


class GroupUsage(NamedTuple):
    """Usage in a window, of the g groups that have topics on a broker, or had some."""

    groups: list[str]
    usage: FloatArray
    """(g, 4) per second, in the first four of ``model.DIMENSIONS``; NaN: not known."""


def usage_of_groups(
    layout: Layout,
    broker: str,
    part: IntArray,
    growth: FloatArray,
    window_s: float,
    left: Iterable[str] = (),
) -> GroupUsage:
    """Add up the counters of a broker's topics by group.

    A group's usage in a dimension is not known if a counter of one of its topics is not: the topic
    was unloaded and loaded again, or lost a subscription, so that its counter went backwards. Any
    number in its place would be invented. A topic of the layout that has no counter used nothing.

    Args:
        layout: of the cluster.
        broker: the broker's name.
        part: (n,) index in the layout of each topic that has counters; -1: in no group.
        growth: (n, 4) how much the counters grew in the window; NaN: not known.
        window_s: length of the window.
        left: groups whose topics have left the broker, and which are reported, too.

    Two topics of ``g`` are on ``b``: 30 and 10 messages in 2 s are 20 per second.

    >>> layout = Layout(("b",), ("g",), ("t", "u"), np.array([0, 0]), ("t", "u"),
    ...     np.array([0, 1]), np.array([0, 0]))
    >>> growth = np.array([[30.0, 300.0, 0.0, 0.0], [10.0, 100.0, np.nan, 0.0]])
    >>> used = usage_of_groups(layout, "b", np.array([0, 1]), growth, 2.0)
    >>> used.groups, used.usage.tolist()
    (['g'], [[20.0, 200.0, nan, 0.0]])
    """
    place_of = layout.group_index
    others = [place_of[name] for name in left if name in place_of]
    groups = np.union1d(_groups_on(layout, broker), np.array(others, np.int64))
    of_part = layout.group[layout.topic]
    place = np.full(len(layout.groups), -1, np.int64)
    place[groups] = np.arange(len(groups))
    # A topic that is loaded here although the layout has it elsewhere has just moved.
    counted = np.flatnonzero(part >= 0)
    at = place[of_part[part[counted]]]
    counted, at = counted[at >= 0], at[at >= 0]
    usage = np.empty((len(groups), BASIC))
    for dimension in range(BASIC):
        usage[:, dimension] = np.bincount(at, growth[counted, dimension], len(groups))
    names = [layout.groups[index] for index in groups.tolist()]
    return GroupUsage(names, usage / window_s)


def groups_on(layout: Layout, broker: str) -> set[str]:
    """The groups that have topics on a broker."""
    return {layout.groups[index] for index in _groups_on(layout, broker).tolist()}


def _groups_on(layout: Layout, broker: str) -> IntArray:
    """Their indexes, ascending."""
    number = layout.brokers.index(broker) if broker in layout.brokers else -2
    groups: IntArray = layout.pairs.group[layout.pairs.broker == number]
    return groups


def encode_observation(
    broker: str, used: GroupUsage, *, at_ms: int, window_s: float
) -> bytes | None:
    """A report of what the groups used; None: there is nothing to report.

    It says nothing about refusals: a topic that is held back by its rate shows no more than what it
    used. The job then counts a broker that uses all of its limit as saturated.

    ``at_ms`` is when the window ended; it numbers the reports, so it must grow.
    """
    if not used.groups:
        return None
    return encode_report(
        broker=broker,
        started_at_ms=0,
        sequence=at_ms,
        window_ms=round(window_s * 1000.0),
        usage=used.usage,
        groups=used.groups,
        observed=True,
    )
