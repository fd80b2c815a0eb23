"""Arrays of a cluster's topics, the groups they belong to, and the brokers that own them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BASIC, BoolArray, IntArray

KINDS: Final = ("publish", "dispatch")
"""The kinds of traffic that have a rate of their own, set for messages and bytes together."""

SIDES: Final = tuple(slice(2 * kind, 2 * kind + 2) for kind in range(len(KINDS)))
"""For each kind its dimensions, among the first ``BASIC`` ones."""

assert SIDES[-1].stop == BASIC


class Pairs(NamedTuple):
    """The k (broker, group) pairs that have topics, and the m parts that they own.

    Pair i owns ``parts[starts[i]:starts[i + 1]]``; a part without a broker is in no pair.
    """

    broker: IntArray
    """(k,)"""
    group: IntArray
    """(k,)"""
    starts: IntArray
    """(k + 1,)"""
    parts: IntArray
    """(m,)"""


@dataclass(frozen=True)
class Layout:
    """u topics with p parts: one part per partition, or one part if the topic has no partitions.

    A rate is set on a topic and applies to each of its parts; each part is on one broker. Topics
    and parts are sorted by name, so that equal clusters give equal arrays.
    """

    brokers: tuple[str, ...]
    """Names as in reports and limits."""
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    """(u,) full names: ``persistent://tenant/namespace/topic``."""
    group: IntArray
    """(u,) index of each topic's group."""
    parts: tuple[str, ...]
    """(p,) full names; for a topic without partitions the topic's name."""
    topic: IntArray
    """(p,) index of each part's topic."""
    broker: IntArray
    """(p,) index of each part's broker; -1: no broker owns it now."""

    @cached_property
    def pairs(self) -> Pairs:
        """The (broker, group) pairs, sorted by broker, then by group.

        >>> layout = Layout(("b1", "b2"), ("g",), ("t", "u"), np.array([0, 0]),
        ...     ("t-partition-0", "t-partition-1", "u"), np.array([0, 0, 1]), np.array([1, 0, 1]))
        >>> layout.pairs.broker.tolist(), layout.pairs.parts.tolist()
        ([0, 1], [1, 0, 2])
        """
        owned = np.flatnonzero(self.broker >= 0)
        key = self.broker[owned] * max(len(self.groups), 1) + self.group[self.topic[owned]]
        order = np.argsort(key, kind="stable")
        keys, first = np.unique(key[order], return_index=True)
        broker, group = np.divmod(keys, max(len(self.groups), 1))
        return Pairs(broker, group, np.append(first, len(order)), owned[order])

    @cached_property
    def namespaces(self) -> tuple[tuple[str, ...], IntArray]:
        """The topics' namespaces, ``tenant/namespace``, and each topic's (u,) index into them.

        >>> topics = "persistent://a/b/t", "persistent://a/b/u", "persistent://a/c/t"
        >>> none = np.zeros(0, np.int64)
        >>> names, index = Layout((), (), topics, none, (), none, none).namespaces
        >>> names, index.tolist()
        (('a/b', 'a/c'), [0, 0, 1])
        """
        of_topic = [topic.rpartition("/")[0].partition("://")[2] for topic in self.topics]
        names = tuple(sorted(set(of_topic)))
        place = {name: index for index, name in enumerate(names)}
        return names, np.fromiter((place[name] for name in of_topic), np.int64, len(of_topic))

    @cached_property
    def owned(self) -> BoolArray:
        """(u,) all parts of the topic have a broker."""
        unowned = np.bincount(self.topic[self.broker < 0], minlength=len(self.topics))
        return np.asarray(unowned == 0)

    @cached_property
    def group_index(self) -> dict[str, int]:
        """Each group's index."""
        return {name: index for index, name in enumerate(self.groups)}

    @cached_property
    def topic_index(self) -> dict[str, int]:
        """Each topic's index."""
        return {name: index for index, name in enumerate(self.topics)}

    @cached_property
    def part_index(self) -> dict[str, int]:
        """Each part's index."""
        return {name: index for index, name in enumerate(self.parts)}


def empty_layout() -> Layout:
    """A layout without topics: the state before the first read."""
    none = np.zeros(0, np.int64)
    return Layout((), (), (), none, (), none, none)


def moved(old: dict[str, int], new: tuple[str, ...]) -> IntArray:
    """The index of each new name among the old ones; -1: it is new."""
    return np.fromiter((old.get(name, -1) for name in new), np.int64, len(new))
