"""Conditions long after the last fault: the job has all quotas, and everybody gets its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from quotaplane.model import DIMENSIONS, FloatArray
from tests.simulation.accounts import quotas_of

if TYPE_CHECKING:
    from tests.simulation.world import World


class Served:
    """See the module. ``fail`` raises."""

    def __init__(self, world: World, fail: Callable[[str], NoReturn]) -> None:
        self.world, self.fail = world, fail

    def check(self) -> None:
        """Check that everybody gets its part, and that the job has the table's quotas."""
        self._check_quotas()
        if self.world.invariants.clocks_wrong and self._waits_for_leases():
            return
        brokers = self.world.brokers
        demand = np.stack([broker.demand * broker.attached[:, None] for broker in brokers])
        limits = np.stack([broker.in_force() for broker in brokers])
        for dimension in self.world.scenario.dimensions:
            self._check_dimension(dimension, demand[..., dimension], limits[..., dimension])

    def _check_quotas(self) -> None:
        process = self.world.leader
        if process is None:
            self.fail("served: no job runs")
        states = [process.state_of(at) for at in range(self.world.scenario.settings.shards)]
        known = quotas_of(states)
        if known != self.world.groups.quotas:
            self.fail(f"no quota lost: the job has {known}, the table {self.world.groups.quotas}")

    def _waits_for_leases(self) -> bool:
        """A job issued leases while its clock was ahead, and a later one lost its state: it waits
        until they are over, an hour if the clock was ahead by an hour (docs/explain/laws.md)."""
        states = map(self.world.leader.state_of, range(self.world.scenario.settings.shards))
        now_ms = self.world.timeline.now_ms
        return any(state and state.learning.until_ms > now_ms for state in states)

    def _check_dimension(self, dimension: int, demand: FloatArray, limits: FloatArray) -> None:
        used = np.minimum(demand, limits)
        groups, quotas = self.world.scenario.groups, self.world.groups.quotas
        for group, members in self.world.families.items():
            quota = quotas.get(group, {}).get(dimension, np.inf)
            if np.isinf(quota):
                continue
            wanted = self._reachable(group, demand, dimension)
            got = used[:, members].sum()
            # Below another quota a group may have to leave some of its own to others.
            above = any(each in quotas for each in self.world.above[group][1:])
            # Where use differs from report to report, limits have room for the highest.
            share = 0.88 - self.world.scenario.demand_noise / 2
            if not above and got < share * min(quota, wanted) - 0.1:
                self.fail(
                    f"served: {DIMENSIONS[dimension]} of {group}: {got:g} of "
                    f"{min(quota, wanted):g} is used; demand {demand[:, members].tolist()}, limits "
                    f"{limits[:, members].tolist()}"
                )
            attached = np.stack([broker.attached for broker in self.world.brokers])
            own = np.array([groups[at] for at in members])
            fed = attached[:, members] & np.array([name in quotas for name in own])
            total = np.where(fed, limits[:, members], 0.0).sum()
            if total > quota * (1.0 + 1e-6):
                self.fail(
                    f"served: {DIMENSIONS[dimension]} of {group}: limits of {total:g} long after "
                    f"the last fault, the quota is {quota:g}: {limits[:, members].tolist()}"
                )
        for at, group in enumerate(groups):
            if group not in quotas:
                continue
            self._check_brokers(dimension, at, demand[:, at], used[:, at], limits[:, at])

    def _reachable(self, group: str, demand: FloatArray, dimension: int) -> float:
        """Most that the groups below and at a group can use, by demands and lower quotas."""
        quotas = self.world.groups.quotas
        places = self.world.scenario.groups
        own = float(demand[:, places.index(group)].sum()) if group in quotas else 0.0
        for child in self.world.children(group):
            own += self._reachable(child, demand, dimension)
        return min(own, quotas.get(group, {}).get(dimension, np.inf))

    def _check_brokers(
        self, dimension: int, at: int, demand: FloatArray, used: FloatArray, limits: FloatArray
    ) -> None:
        """Nobody starves: each gets its demand, or most of an equal share of the lowest quota."""
        group = self.world.scenario.groups[at]
        takers = sum(bool(broker.attached[at]) for broker in self.world.brokers)
        share = self._part(group, dimension) / max(self._claims(group) * takers, 1)
        for number, broker in enumerate(self.world.brokers):
            if broker.attached[at] and used[number] < 0.8 * min(demand[number], share) - 0.1:
                self.fail(
                    f"served: {DIMENSIONS[dimension]} of {group}: {broker.name} wants "
                    f"{demand[number]:g} and may use {limits[number]:g}; an equal share is "
                    f"{share:g}; all: demand {demand.tolist()}, limits {limits.tolist()}"
                )

    def _part(self, group: str, dimension: int) -> float:
        """Least that a group and those below it get if all want much.

        A quota is divided evenly between a group's own topics and the groups right below it.
        """
        part = self.world.groups.quotas.get(group, {}).get(dimension, np.inf)
        for above in self.world.above[group][1:2]:
            part = min(part, self._part(above, dimension) / max(self._claims(above), 1))
        return part

    def _claims(self, group: str) -> int:
        """Among how many a group's quota is divided."""
        below = [each for each in self.world.children(group) if self._has_takers(each)]
        return len(below) + self._is_taken(group)

    def _is_taken(self, group: str) -> bool:
        at = self.world.place[group]
        defined = group in self.world.groups.quotas
        return defined and any(broker.attached[at] for broker in self.world.brokers)

    def _has_takers(self, group: str) -> bool:
        members = self.world.families[group]
        return any(self._is_taken(self.world.scenario.groups[at]) for at in members)
