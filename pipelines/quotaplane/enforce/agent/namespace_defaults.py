"""The rates of namespaces: what a topic has from its first message on, until it has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.agents.failures import FailureLog, Say, first_names
from quotaplane.agents.pace import Bucket, start
from quotaplane.enforce.rate_writes import in_turn
from quotaplane.enforce.subdivide import MOST
from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.pulsar_admin.namespace_rates import (
    NamespaceRates,
    namespace_rates,
    write_namespace_rates,
)
from quotaplane.pulsar_admin.resource_groups import namespace_path
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.topic_layout import KINDS, SIDES, Layout

_READS: Final = "reading rates of namespaces"
_WRITES: Final = "writing rates of namespaces"
_REQUESTS: Final = 3
"""That write, for a namespace: two rates, and the record of them."""
_SHARE: Final = 2
"""Of the budget the namespaces take this part at most: topics go on."""
_TOO_FAR: Final = 2.0
"""A rate is written again when it is more than so many times what it should be, or less than such a
part of it: each write gives all topics of the namespace a second's worth."""


def default_rates(layout: Layout, safe_limits: FloatArray) -> FloatArray:
    """(g, 4) what a topic of each group has while it has no rate of its own.

    As much as adds up to a broker's safe limit with as many new topics as the broker has, and one:
    the least of all brokers that were told any, and at least 1. inf: some broker is not limited;
    NaN: none was told anything.

    Args:
        layout: what lies where.
        safe_limits: (b, g, 4) of each broker and group; inf = unlimited, NaN = never told.

    >>> layout = Layout(("b",), ("g",), ("s", "t"), np.array([0, 0]), ("s", "t"),
    ...     np.array([0, 1]), np.array([0, 0]))
    >>> default_rates(layout, np.array([[[100.0, 2.0, np.inf, np.nan]]]))
    array([[33.,  1., inf, nan]])
    """
    pairs = layout.pairs
    topics = np.zeros(safe_limits.shape[:2])
    topics[pairs.broker, pairs.group] = np.diff(pairs.starts)
    each = np.floor(safe_limits / (topics[:, :, None] + 1.0) + 1e-9)
    least = np.fmin.reduce(np.clip(each, 1.0, MOST), axis=0, initial=np.inf)
    told = ~np.isnan(safe_limits)
    free = (np.isposinf(safe_limits) & told).any(axis=0)
    return np.where(told.any(axis=0), np.where(free, np.inf, least), np.nan)


def wanted_rates(in_force: FloatArray, ours: BoolArray, default: FloatArray) -> FloatArray:
    """(n, 4) what n namespaces should have: the default, where that is worth a write.

    Args:
        in_force: (n, 4) what they have; inf = unlimited.
        ours: (n, 2) by kind: whether it is ours to change.
        default: (n, 4) what they should have, about; NaN = as it is.

    >>> has = np.array([[20.0, np.inf, np.inf, np.inf]] * 3)
    >>> ours = np.array([[True, True], [True, True], [False, True]])
    >>> wanted_rates(has, ours, np.array([[15.0, np.inf, np.inf, np.inf], [5.0] * 4, [5.0] * 4]))
    array([[20., inf, inf, inf],
           [ 5.,  5.,  5.,  5.],
           [20., inf,  5.,  5.]])
    """
    with np.errstate(invalid="ignore"):
        near = (in_force <= _TOO_FAR * default) & (default <= _TOO_FAR * in_force)
    near &= np.isfinite(in_force) == np.isfinite(default)
    wanted = in_force.copy()
    for kind, side in enumerate(SIDES):
        new = default[:, side]
        due = ours[:, kind] & ~near[:, side].all(axis=1) & ~np.isnan(new).any(axis=1)
        wanted[due, side] = new[due]
    return wanted


class _Known(NamedTuple):
    """The namespaces that were read, as arrays."""

    names: tuple[str, ...]
    group: IntArray
    """(n,) index of each one's group in the layout, -1 = none, -2 = one that is not there."""
    in_force: FloatArray
    """(n, 4)"""
    ours: BoolArray
    """(n, 2)"""
    recorded: BoolArray
    """(n,)"""
    of_topic: IntArray
    """(u,) index of each topic's namespace; -1 = not read."""


class NamespaceDefaults:
    """Keeps the rates of one cluster's namespaces; what is somebody else's is let be.

    Policies are read again right before a write, as somebody else may have set a rate since. After
    a write that failed the namespace is left alone until it was read again.
    """

    def __init__(self, rest: Rest, budget: Bucket, failure_log: FailureLog, say: Say) -> None:
        self._rest, self._budget, self._failure_log, self._say = rest, budget, failure_log, say
        self._cluster = ""
        self._rates: dict[str, NamespaceRates] = {}
        self._group: dict[str, str | None] = {}
        self._written_s: dict[str, float] = {}
        """When the last write ended; inf = it is under way."""
        self._unsure: set[str] = set()
        """Namespaces with a write under way, or one that failed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: tuple[Layout, _Known] | None = None
        self._foreign: set[str] = set()
        self._hurried = False
        self.waiting = 0
        """Namespaces whose rates should be written, and are not yet."""
        self.written = 0
        """So many namespaces were given other rates, since the start."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way or to come."""
        return not (self._tasks or self.waiting)

    def hurry(self) -> None:
        """From now on there is no budget, and what was written is taken to be in force."""
        self._hurried = True

    def read(
        self, cluster: str, namespace: str, policies: Any, group: str | None, begun_s: float
    ) -> None:
        """A namespace, its policies at ``begun_s`` and the group it is attached to.

        Policies that are None: it is gone.
        """
        self._cluster = cluster
        if policies is None:
            self._forget(namespace)
            return
        last_s = self._written_s.get(namespace, -np.inf)
        if begun_s <= last_s or (self._hurried and np.isfinite(last_s)):
            return
        try:
            rates = namespace_rates(policies, cluster)
        except ClusterError as error:
            self._failure_log.note(_READS, namespace, error)
            return
        self._failure_log.note(_READS, namespace, None)
        if group is None and not rates.recorded:
            self._forget(namespace)
            return
        self._unsure.discard(namespace)
        self._put(namespace, rates, group)

    def _put(self, namespace: str, rates: NamespaceRates, group: str | None) -> None:
        same_group = namespace in self._group and self._group[namespace] == group
        if not (same_group and rates.same_as(self._rates.get(namespace))):
            self._rates[namespace], self._group[namespace] = rates, group
            self._known = None

    def _forget(self, namespace: str) -> None:
        if self._rates.pop(namespace, None) is not None:
            self._known = None
        self._group.pop(namespace, None)
        self._written_s.pop(namespace, None)
        self._unsure.discard(namespace)
        for part in (_READS, _WRITES):
            self._failure_log.forget(part, namespace)

    def begin(self, layout: Layout, default: FloatArray, now_s: float) -> int:
        """Start what the budget allows; returns how many namespaces have other rates than they
        should.

        The groups (g, 4) should have these rates as their default, NaN = what they have. A group
        that the layout does not have may be one whose topics can't be read: what its namespaces
        have stays. Those that are attached to none should have none.
        """
        known = self._as_arrays(layout)
        rows = np.vstack([default, np.full(BASIC, np.nan), np.full(BASIC, np.inf)])
        return self._begin(known, rows[known.group], now_s)

    def begin_removal(self, layout: Layout, kept: Collection[str], now_s: float) -> int:
        """As ``begin``: only namespaces of the groups ``kept`` should have a rate of ours."""
        known = self._as_arrays(layout)
        stays = np.array([self._group[name] in kept for name in known.names], np.bool_)
        return self._begin(known, np.where(stays[:, None], np.nan, np.full(BASIC, np.inf)), now_s)

    def _begin(self, known: _Known, of_each: FloatArray, now_s: float) -> int:
        """Start to write what namespaces should have, (n, 4)."""
        self._tell_foreign(known, of_each)
        wanted = wanted_rates(known.in_force, known.ours, of_each)
        due = (wanted != known.in_force).any(axis=1)
        # The record of rates that were taken off, where nobody came to take it off, too.
        due |= known.recorded & ~(np.isfinite(wanted) & np.repeat(known.ours, 2, axis=1)).any(
            axis=1
        )
        at = np.flatnonzero(due & ~np.array([name in self._unsure for name in known.names], bool))
        at = at[in_turn(known.group[at])]
        room = len(at)
        if not self._hurried:
            left = self._budget.room(now_s)
            room = min(room, max(left // (_SHARE * _REQUESTS), min(left, 1)))
            self._budget.take(room * _REQUESTS)
        self.waiting = len(at) - room
        for index in at[:room].tolist():
            name = known.names[index]
            self._unsure.add(name)
            self._written_s[name] = np.inf
            start(self._tasks, self._write(name, self._rates[name], wanted[index]))
        return int(due.sum())

    def _tell_foreign(self, known: _Known, default: FloatArray) -> None:
        foreign = np.zeros(len(known.names), np.bool_)
        for kind, side in enumerate(SIDES):
            foreign |= ~known.ours[:, kind] & np.isfinite(default[:, side]).any(axis=1)
        names = {known.names[at] for at in np.flatnonzero(foreign).tolist()}
        if names - self._foreign:
            self._say(
                f"namespaces: {first_names(names - self._foreign)} have rates of their own, "
                "which are left alone: a new topic there has these until it is seen"
            )
        self._foreign = names

    async def _write(self, namespace: str, before: NamespaceRates, rates: FloatArray) -> None:
        cluster = self._cluster
        policies: Any = None
        try:
            policies = await self._rest.get(namespace_path(namespace))
            found = namespace_rates(policies, cluster)
            if found.same_as(before):
                found = await write_namespace_rates(self._rest, namespace, cluster, before, rates)
                self.written += 1
        except Exception as error:
            # Also a mistake of ours: the namespace would be under way for ever.
            if policies is None and isinstance(error, RefusedError) and error.status == 404:
                self._forget(namespace)
                return
            self._failure_log.note(_WRITES, namespace, error)
            if self._hurried:
                # Nobody else reads any more: it is tried again.
                self._unsure.discard(namespace)
        else:
            self._failure_log.note(_WRITES, namespace, None)
            if namespace in self._rates:
                self._unsure.discard(namespace)
                self._put(namespace, found, self._group[namespace])
        finally:
            if namespace in self._written_s:
                self._written_s[namespace] = asyncio.get_running_loop().time()

    def under(self, layout: Layout, in_force: FloatArray) -> FloatArray:
        """Rates (u, 4) that topics are held to: their own, else their namespace's."""
        known = self._as_arrays(layout)
        rates = np.vstack([known.in_force, np.full(BASIC, np.inf)])
        held = in_force.copy()
        for side in SIDES:
            none = np.isposinf(in_force[:, side]).all(axis=1)
            held[none, side] = rates[known.of_topic[none], side]
        return held

    def held(self, layout: Layout) -> BoolArray:
        """(u, 2) which topics would have a rate of ours, of their namespace, without their own."""
        known = self._as_arrays(layout)
        finite = np.isfinite(known.in_force).reshape(-1, len(KINDS), 2).any(axis=2) & known.ours
        none = np.zeros(len(KINDS), np.bool_)
        result: BoolArray = np.vstack([finite, none])[known.of_topic]
        return result

    def _as_arrays(self, layout: Layout) -> _Known:
        if self._known is None or self._known[0] is not layout:
            names = tuple(sorted(self._rates))
            rates = [self._rates[name] for name in names]
            place = {name: at for at, name in enumerate(names)}
            groups = {name: at for at, name in enumerate(layout.groups)}
            of_namespace, index = layout.namespaces
            at = np.array([place.get(name, -1) for name in of_namespace], np.int64)
            group = [groups.get(of, -2) if of else -1 for of in map(self._group.get, names)]
            self._known = (
                layout,
                _Known(
                    names,
                    np.array(group, np.int64),
                    np.array([one.in_force for one in rates]).reshape(-1, BASIC),
                    np.array([one.ours for one in rates], np.bool_).reshape(-1, len(KINDS)),
                    np.array([one.recorded for one in rates], np.bool_),
                    at[index],
                ),
            )
        return self._known[1]

    async def idle(self, patience_s: float) -> None:
        """Wait for what is under way; what takes longer is given up."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=patience_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
