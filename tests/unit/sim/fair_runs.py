"""Random fair runs of the simulator, recorded: nobody is at fault, so no audit may accuse anybody.

Each has groups, trees, policies, brokers of all kinds, noisy demand that comes and goes, changes of
quotas, brokers that end and come back, lost reports, and restarts of the job.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from quotaplane.settings import History
from quotaplane.sim.broker_fleet import BrokerFleet, BrokerSpec
from quotaplane.sim.broker_throttle import BY_DEFAULT
from quotaplane.sim.demand_schedule import Change
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode
from quotaplane.wire.limits import decode_limits
from tests.unit.sim.recorded_history import Recording

SECONDS: Final = 150
_LEASE_S: Final = 30.0
_NAMES: Final = ("acme", "acme::orders", "acme::orders::eu", "acme::logs", "globex/clicks", "web")
_SMALLEST, _LARGEST = 20.0, 20_000.0
"""Quotas in messages per second."""
_THROTTLES: Final = (
    BY_DEFAULT,
    ThrottleTerms(law=ThrottleLaw.SLIDING_WINDOW, mode=ThrottleMode.HARD),
    ThrottleTerms(law=ThrottleLaw.TOKEN_BUCKET, mode=ThrottleMode.HARD),
)


class FairRun(Recording):
    """A run of ``SECONDS`` or a little more; ``play`` it, then ask its history."""

    def __init__(self, history: History, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.groups = tuple(
            sorted(rng.choice(_NAMES, rng.integers(2, len(_NAMES) + 1), replace=False).tolist())
        )
        brokers = tuple(f"b{n}" for n in range(rng.integers(2, 9)))
        here = {g: self._some(brokers, 0.8) for g in self.groups}
        self.quotas = {group: self._quota() for group in self.groups}
        interval_s = 5.0 if rng.random() < 0.5 else 1.0
        limits = self._limits()
        loop = {
            "specs": {name: self._spec(name) for name in brokers},
            "changes": list(self._demand(here)),
            "poisson": self.groups,
            "seed": seed,
            "throttle": _THROTTLES[rng.choice(len(_THROTTLES), p=(0.6, 0.2, 0.2))],
        }
        sections = {"reports": {"interval_s": interval_s}, "limits": limits, "shards": 1}
        wants = {group: {broker: [(0, 0)] for broker in brokers} for group in self.groups}
        super().__init__(history, wants, loop=loop, **sections)
        if self.settings.limits.transition == "strict":
            old = self.world.brokers
            self.world.brokers = BrokerFleet(
                old.specs,
                old.groups,
                interval_s=interval_s,
                started_at_ms=self._begin_ms,
                strict=True,
            )
        for group, names in here.items():
            self.world.attach(group, np.array([name in names for name in brokers]))
        self.lost = 0.01 if rng.random() < 0.3 else 0.0
        self._late = bool(rng.random() < 0.3)
        self._late_limits: list[bytes] = []
        self._sent: dict[str, list[bytes]] = defaultdict(list)

    def play(self) -> FairRun:
        """Play the run and write its history."""
        for group in self.groups:
            self.put(group, self.quotas[group], **self._policy(group))
        happens = sorted(self._events(), key=lambda event: event[0])
        for at_s, what, whom in happens:
            if at_s < self.second:
                continue
            self.run(at_s - self.second)
            self._happen(what, whom)
        self.run(SECONDS - self.second)
        self.write()
        return self

    def _pass(self) -> None:
        super()._pass()
        super()._deliver(self._late_limits)
        self._late_limits = []

    def _decide(self, number: int, decided_ms: int) -> list[bytes]:
        kept = self.rng.random(len(self._waiting)) >= self.lost
        self._waiting = [one for one, is_kept in zip(self._waiting, kept, strict=True) if is_kept]
        return super()._decide(number, decided_ms)

    def _deliver(self, limits: list[bytes]) -> None:
        for value in limits:
            self._sent[decode_limits(value).broker].append(value)
        if self._late:
            self._late_limits = limits
        else:
            super()._deliver(limits)

    def _happen(self, what: str, whom: str) -> None:
        if what == "quota":
            factor = float(self.rng.choice([0.5, 0.7, 1.5, 2.0]))
            self.quotas[whom] = {name: rate * factor for name, rate in self.quotas[whom].items()}
            self.put(whom, self.quotas[whom], by="bob")
        elif what == "die":
            self.world.brokers.die(whom)
        elif what == "join":
            self._join(whom)
        elif what == "pause":
            self.pause(int(self.rng.integers(1, 4)) * 5)
        else:
            self.pause(5).restart()

    def _join(self, broker: str) -> None:
        """Limits of stock brokers are rates of their topics: they outlast restarts."""
        at = self.names.index(broker)
        if self.world.brokers.specs[at].format == "stock":
            self.world.brokers.alive[at] = True
            self.world.receive(self._sent[broker])
        else:
            self.world.brokers.join(broker, self.now_ms)

    def _events(self) -> Iterable[tuple[int, str, str]]:
        rng = self.rng
        for _ in range(rng.integers(0, 4)):
            yield self._time(), "quota", str(rng.choice(self.groups))
        for broker in self._some(self.names, 0.3):
            at_s = self._time()
            yield at_s, "die", broker
            if rng.random() < 0.7:
                yield at_s + int(rng.integers(2, 20)) * 5, "join", broker
        if rng.random() < 0.3:
            yield self._time(), "pause", ""
        if rng.random() < 0.2:
            yield self._time(), "restart", ""

    def _time(self) -> int:
        return int(self.rng.integers(6, SECONDS // 5 - 6)) * 5

    def _some(self, names: Iterable[str], part: float) -> list[str]:
        chosen = [name for name in names if self.rng.random() < part]
        return chosen or list(names)[:1]

    def _limits(self) -> dict[str, Any]:
        rng = self.rng
        limits: dict[str, Any] = {"lease_s": _LEASE_S}
        if rng.random() < 0.25:
            limits["transition"] = "strict"
        elif rng.random() < 0.2:
            limits["over"] = 0.1
        if rng.random() < 0.1:
            limits["max_step"] = 0.1
        return limits

    def _spec(self, name: str) -> BrokerSpec:
        if self.rng.random() < 0.4:
            return BrokerSpec(name, format="stock")
        throttled, uses_ids, totals = (bool(self.rng.random() < 0.5) for _ in range(3))
        return BrokerSpec(name, throttled=throttled, uses_ids=uses_ids, totals=totals)

    def _quota(self) -> dict[str, float]:
        """Quota of messages, bytes, both, or more."""
        rng = self.rng
        rate = float(np.exp(rng.uniform(np.log(_SMALLEST), np.log(_LARGEST))))
        quota = {"publish_messages": rate}
        kind = rng.random()
        if kind < 0.15:
            quota = {"publish_bytes": rate * 1000.0}
        elif kind < 0.3:
            quota["publish_bytes"] = rate * 800.0
        elif kind < 0.4:
            quota |= {"dispatch_messages": 2.0 * rate, "dispatch_bytes": 2000.0 * rate}
        elif kind < 0.5:
            quota = {"total_messages": 2.0 * rate}
        return quota

    def _demand(self, here: dict[str, list[str]]) -> Iterable[Change]:
        """Demand of each broker around its equal share, sometimes nothing, and it changes."""
        rng = self.rng
        for group, brokers in here.items():
            quota = self.quotas[group]
            name = next(iter(quota))
            scale = 1000.0 if name.endswith("bytes") else 2.0 if name.startswith("total") else 1.0
            share = quota[name] / scale / len(brokers)
            for broker in brokers:
                at_s = 0.0
                while at_s < SECONDS:
                    rate = share * float(rng.lognormal(-0.2, 0.8)) * (rng.random() < 0.8)
                    readers = float(rng.choice([0.0, 1.0, 2.0]))
                    rates = {
                        "publish_messages": rate,
                        "publish_bytes": 1000.0 * rate,
                        "dispatch_messages": readers * rate,
                        "dispatch_bytes": 1000.0 * readers * rate,
                    }
                    yield Change(at_s, broker, group, rates)
                    at_s += 5.0 * int(rng.integers(3, 30))

    def _policy(self, group: str) -> dict[str, Any]:
        rng = self.rng
        policy: dict[str, Any] = {}
        mode = rng.choice(["hard", "soft", "shadow"], p=[0.75, 0.15, 0.1])
        if mode != "hard":
            policy["mode"] = str(mode)
        if rng.random() < 0.1:
            policy["enforcement_percent"] = 50.0
        if "::" in group and rng.random() < 0.3:
            policy["weight"] = float(rng.choice([0.5, 2.0, 3.0]))
        if rng.random() < 0.25:
            name = next(iter(self.quotas[group]))
            term = rng.choice(["weight", "ceiling", "floor", "priority"], p=[0.55, 0.2, 0.15, 0.1])
            part = self.quotas[group][name] / 4
            terms = {
                "weight": {"weight": float(rng.choice([0.5, 2.0, 4.0]))},
                "ceiling": {"ceiling": {f"{name}_per_s": part}},
                "floor": {"floor": {f"{name}_per_s": part}},
                "priority": {"priority": 1},
            }
            policy["brokers"] = json.dumps({"b0": terms[str(term)]})
        return policy
