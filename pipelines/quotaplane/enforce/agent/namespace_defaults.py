"""Keeps default rates on namespaces: a new topic is held to these until it gets its own rate."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import FOREIGN_RATES, READING_NAMESPACES, WRITING_NAMESPACES
from quotaplane.agents.pace import Bucket, ended, start
from quotaplane.enforce.agent.administrator_rates import NamespaceRate
from quotaplane.enforce.default_rates import wanted_rates
from quotaplane.enforce.rate_writes import in_turn
from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.pulsar_admin.namespace_rates import (
    NamespaceRates,
    namespace_rates,
    write_namespace_rates,
)
from quotaplane.pulsar_admin.resource_groups import namespace_path
from quotaplane.pulsar_admin.rest import NotFoundError, Rest
from quotaplane.texts import first_few
from quotaplane.topics.topic_layout import KINDS, SIDES, Layout

_REQUESTS: Final = 3
"""Writes per namespace: two rates, and our record of them."""
_SHARE: Final = 0.5
"""Namespaces get at most this part of the write budget; the rest is for topics."""


class _Known(NamedTuple):
    """The n namespaces that were read."""

    names: tuple[str, ...]
    group: IntArray
    """(n,) index of the group in the layout; -1 = no group, -2 = a group not in the layout."""
    in_force: FloatArray
    """(n, 4) rates; inf = unlimited."""
    ours: BoolArray
    """(n, 2) by kind: the enforcer may change the rate."""
    recorded: BoolArray
    """(n,) the namespace has a record of rates that the enforcer wrote."""
    of_topic: IntArray
    """(u,) index of each topic's namespace; -1 = not read."""


class NamespaceDefaults:
    """Keeps the default rates of one cluster's namespaces; rates set by others are left alone.

    Each write reads the policies first, as somebody else may have set a rate meanwhile. After a
    failed write the namespace is not written before it was read again.
    """

    def __init__(self, rest: Rest, budget: Bucket, conditions: Conditions) -> None:
        self._rest, self._budget, self._conditions = rest, budget, conditions
        self._share = Bucket(_SHARE * budget.per_s)
        self._cluster = ""
        self._rates: dict[str, NamespaceRates] = {}
        self._group: dict[str, str | None] = {}
        self._written_s: dict[str, float] = {}
        """When the last write ended; inf = in flight."""
        self._uncertain: set[str] = set()
        """Namespaces with a write in flight, or one that failed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: tuple[Layout, _Known] | None = None
        self._hurried = False
        self.broker_rates: FloatArray = np.full(BASIC, np.inf)
        """(4,) what brokers apply to a topic without a rate of its own or its namespace's."""
        self.changes = 0
        """Changes of namespaces and their rates since the start."""
        self.waiting = 0
        """Namespaces whose rates still wait to be written."""
        self.written = 0
        """Writes of namespaces since the start."""

    @property
    def at_rest(self) -> bool:
        """Whether no write is in flight or waiting."""
        return not (self._tasks or self.waiting)

    def hurry(self) -> None:
        """From now on ignore the budget, and don't read again what was written."""
        self._hurried = True

    def read(
        self, cluster: str, namespace: str, policies: Any, group: str | None, begun_s: float
    ) -> None:
        """Take in a namespace: its policies at ``begun_s`` and the group it is attached to.

        Policies are None if the namespace was deleted.
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
            self._conditions.note(READING_NAMESPACES, namespace, error)
            return
        self._conditions.note(READING_NAMESPACES, namespace, None)
        if group is None and not rates.recorded:
            self._forget(namespace)
            return
        self._uncertain.discard(namespace)
        self._put(namespace, rates, group)

    def _put(self, namespace: str, rates: NamespaceRates, group: str | None) -> None:
        same_group = namespace in self._group and self._group[namespace] == group
        if not (same_group and rates.same_as(self._rates.get(namespace))):
            self._rates[namespace], self._group[namespace] = rates, group
            self._known, self.changes = None, self.changes + 1

    def _forget(self, namespace: str) -> None:
        if self._rates.pop(namespace, None) is not None:
            self._known, self.changes = None, self.changes + 1
        self._group.pop(namespace, None)
        self._written_s.pop(namespace, None)
        self._uncertain.discard(namespace)
        for part in (READING_NAMESPACES, WRITING_NAMESPACES):
            self._conditions.note(part, namespace, None)

    def begin(self, layout: Layout, default: FloatArray, now_s: float) -> int:
        """Start as many writes as the budget allows; returns how many namespaces need one.

        ``default`` (g, 4) are the groups' default rates, NaN = leave as it is. The namespaces of a
        group that is not in the layout keep their rates, as the group's topics may just be
        unreadable. Namespaces without a group lose theirs.
        """
        known = self._as_arrays(layout)
        default = default.copy()
        # A rate of ours on a namespace goes before the brokers' own.
        for side in SIDES:
            limited = np.isfinite(default[:, side]).any(axis=1, keepdims=True)
            lower = np.minimum(default[:, side], self.broker_rates[side])
            default[:, side] = np.where(limited, lower, default[:, side])
        rows = np.vstack([default, np.full(BASIC, np.nan), np.full(BASIC, np.inf)])
        return self._begin(known, rows[known.group], now_s)

    def begin_removal(self, layout: Layout, stay: Collection[str], now_s: float) -> int:
        """Like ``begin``, but remove our rates, except from namespaces of the groups ``stay``."""
        known = self._as_arrays(layout)
        stays = np.array([self._group[name] in stay for name in known.names], np.bool_)
        return self._begin(known, np.where(stays[:, None], np.nan, np.full(BASIC, np.inf)), now_s)

    def _begin(self, known: _Known, default: FloatArray, now_s: float) -> int:
        """Start to write the defaults (n, 4) of the namespaces."""
        self._report_foreign(known, default)
        wanted = wanted_rates(known.in_force, known.ours, default)
        due = (wanted != known.in_force).any(axis=1)
        # Records whose rates are gone: an earlier run ended before it removed the record.
        due |= known.recorded & ~(np.isfinite(wanted) & np.repeat(known.ours, 2, axis=1)).any(
            axis=1
        )
        uncertain = np.array([name in self._uncertain for name in known.names], bool)
        at = np.flatnonzero(due & ~uncertain)
        at = at[in_turn(known.group[at])]
        room = len(at)
        if not self._hurried:
            # Rounded up, as a small budget never has room for a whole namespace; what is used too
            # much is missing later.
            left = min(self._budget.room(now_s), self._share.room(now_s))
            room = min(room, math.ceil(left / _REQUESTS))
            for bucket in (self._budget, self._share):
                bucket.take(room * _REQUESTS)
        self.waiting = len(at) - room
        for index in at[:room].tolist():
            name = known.names[index]
            self._uncertain.add(name)
            self._written_s[name] = np.inf
            start(self._tasks, self._write(name, self._rates[name], wanted[index]))
        return int(due.sum())

    def _report_foreign(self, known: _Known, default: FloatArray) -> None:
        """Report namespaces whose rates were set by somebody else."""
        foreign = np.zeros(len(known.names), np.bool_)
        for kind, side in enumerate(SIDES):
            foreign |= ~known.ours[:, kind] & np.isfinite(default[:, side]).any(axis=1)
        names = {known.names[at] for at in np.flatnonzero(foreign).tolist()}
        self._conditions.set(
            FOREIGN_RATES,
            names,
            f"namespaces {first_few(sorted(names))} have rates that the enforcer did not set and "
            "does not change: no topic there gets a higher one",
        )

    async def _write(self, namespace: str, expected: NamespaceRates, rates: FloatArray) -> None:
        """Write rates, unless the namespace has other ones than expected."""
        cluster = self._cluster
        policies: Any = None
        try:
            policies = await self._rest.get(namespace_path(namespace))
            current = namespace_rates(policies, cluster)
            if current.same_as(expected):
                current = await write_namespace_rates(
                    self._rest, namespace, cluster, expected, rates
                )
                self.written += 1
        except Exception as error:
            # Any exception: otherwise the namespace would count as in flight for ever.
            if policies is None and isinstance(error, NotFoundError):
                self._forget(namespace)
                return
            self._conditions.note(WRITING_NAMESPACES, namespace, error)
            if self._hurried:
                # Namespaces are not read periodically any more, so allow a retry now.
                self._uncertain.discard(namespace)
        else:
            self._conditions.note(WRITING_NAMESPACES, namespace, None)
            if namespace in self._rates:
                self._uncertain.discard(namespace)
                self._put(namespace, current, self._group[namespace])
        finally:
            if namespace in self._written_s:
                self._written_s[namespace] = asyncio.get_running_loop().time()

    def effective_rates(self, layout: Layout, in_force: FloatArray) -> FloatArray:
        """(u, 4) rates that brokers apply to topics: its own, its namespace's, or the brokers'."""
        known = self._as_arrays(layout)
        rates = self._or_brokers(known.in_force)
        effective = in_force.copy()
        for side in SIDES:
            none = np.isposinf(in_force[:, side]).all(axis=1)
            effective[none, side] = rates[known.of_topic[none], side]
        return effective

    def ceilings(self, layout: Layout) -> FloatArray:
        """(u, 4) rates that apply to topics without our rates and their own; inf = unlimited."""
        known = self._as_arrays(layout)
        ours = np.repeat(known.ours, 2, axis=1)
        return self._or_brokers(np.where(ours, np.inf, known.in_force))[known.of_topic]

    def _or_brokers(self, rates: FloatArray) -> FloatArray:
        """Rates of n namespaces (n + 1, 4), the last for one that was not read: or the brokers'."""
        rates = np.vstack([rates, np.full(BASIC, np.inf)])
        for side in SIDES:
            rates[np.isposinf(rates[:, side]).all(axis=1), side] = self.broker_rates[side]
        return rates

    def administrators(self) -> list[NamespaceRate]:
        """The rates of attached namespaces that somebody else set."""
        return [
            NamespaceRate(name, kind, group, rates.in_force[side])
            for name, rates in self._rates.items()
            if (group := self._group[name]) is not None
            for kind, side in enumerate(SIDES)
            if not rates.ours[kind] and np.isfinite(rates.in_force[side]).any()
        ]

    def has_default(self, layout: Layout) -> BoolArray:
        """(u, 2) whether a default of ours would apply to the topic without its own rate."""
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
            groups = layout.group_index
            of_namespace, index = layout.namespaces
            at = np.array([place.get(name, -1) for name in of_namespace], np.int64)
            group = [groups.get(of, -2) if of else -1 for of in map(self._group.get, names)]
            self._known = (
                layout,
                _Known(
                    names,
                    np.array(group, np.int64),
                    np.array([entry.in_force for entry in rates]).reshape(-1, BASIC),
                    np.array([entry.ours for entry in rates], np.bool_).reshape(-1, len(KINDS)),
                    np.array([entry.recorded for entry in rates], np.bool_),
                    at[index],
                ),
            )
        return self._known[1]

    async def idle(self, patience_s: float) -> None:
        """Wait for requests in flight, and cancel those that take longer."""
        await ended(self._tasks, patience_s)
