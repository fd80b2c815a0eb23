"""A simulated cluster: true demand inside, messages to and from the control plane outside.

Pure: time is an argument, noise comes from a seed. The demo runs it in a thread with the real job,
the closed-loop tests with the same code without Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray
from quotaplane.sim.broker_fleet import BrokerFleet, BrokerSpec, Report
from quotaplane.sim.broker_throttle import BY_DEFAULT
from quotaplane.sim.demand_schedule import POISSON, Schedule, added_up, noisy
from quotaplane.throttle.terms import ThrottleTerms

_BYTES_OF: Final = {
    DIMENSIONS.index(f"{kind}_messages"): DIMENSIONS.index(f"{kind}_bytes")
    for kind in ("publish", "dispatch")
}


@dataclass(frozen=True)
class Interval:
    """One reporting interval of the cluster; arrays (brokers, groups, dimensions), per second.

    ``wanted`` is the schedule's demand, ``demand`` has noise, too; both are 0 if a broker is dead
    or a group detached. ``limit`` was in force.
    """

    t_s: float
    now_ms: int
    wanted: FloatArray
    demand: FloatArray
    usage: FloatArray
    limit: FloatArray
    alive: BoolArray
    reports: list[Report]


class World:
    """Brokers with a schedule of demand; ``poisson`` names the groups whose traffic is noisy."""

    def __init__(
        self,
        specs: tuple[BrokerSpec, ...],
        groups: tuple[str, ...],
        schedule: Schedule,
        *,
        poisson: Collection[str] = (),
        interval_s: float = 1.0,
        seed: int = 0,
        started_at_ms: int = 1,
        throttle: ThrottleTerms = BY_DEFAULT,
    ) -> None:
        if schedule.rates.shape[1:3] != (len(specs), len(groups)):
            raise InputError(
                f"schedule: is for {schedule.rates.shape[1:3]} (brokers, groups), "
                f"not {len(specs), len(groups)}"
            )
        self.brokers = BrokerFleet(
            specs,
            groups,
            interval_s=interval_s,
            started_at_ms=started_at_ms,
            throttle=throttle,
        )
        self.groups = groups
        self._schedule = schedule
        self._noisy = np.array([group in poisson for group in groups], dtype=bool)
        self._interval_s = interval_s
        self._rng = np.random.default_rng(seed)

    def interval(self, t_s: float, now_ms: int) -> Interval:
        """Simulate the interval that ends now: usage and reports."""
        there = (self.brokers.alive[:, None] & self.brokers.attached)[..., None]
        wanted = np.where(there, self._schedule.at(t_s), 0.0)
        demand = wanted.copy()
        demand[:, self._noisy] = self._with_noise(wanted[:, self._noisy])
        added_up(demand)
        limit = self.brokers.limits(now_ms)
        usage = self.brokers.use(demand, now_ms)
        reports = self.brokers.reports(usage, demand, now_ms)
        alive = self.brokers.alive.copy()
        return Interval(t_s, now_ms, wanted, demand, usage, limit, alive, reports)

    def _with_noise(self, wanted: FloatArray) -> FloatArray:
        """Random demand around ``wanted``; bytes vary with their messages."""
        demand = noisy(wanted, POISSON, self._rng, self._interval_s)
        for messages, size in _BYTES_OF.items():
            count = wanted[..., messages]
            part = np.divide(demand[..., messages], count, out=np.ones_like(count), where=count > 0)
            demand[..., size] = np.where(count > 0, wanted[..., size] * part, demand[..., size])
        return demand

    def receive(self, values: Iterable[bytes]) -> int:
        """Deliver limits to the brokers; returns the number of changed limits."""
        return self.brokers.receive(values)

    def attach(self, group: str, brokers: BoolArray | bool = True) -> None:
        """Give the group topics on these brokers (brokers,), which report it from now on."""
        self.brokers.attached[:, self._group(group)] = brokers

    def detach(self, group: str) -> None:
        """Take the group's topics away: no broker uses or reports it any more."""
        self.attach(group, False)

    def _group(self, group: str) -> int:
        if group not in self.groups:
            raise InputError(f"groups: there is no {group!r}")
        return self.groups.index(group)
