"""A stock Pulsar cluster, the quota job and the enforcer in virtual time, without Spark or HTTP.

Brokers know only rates of topics, and report counts. Everything that decides is the product's: the
decoder, the job's program, the enforcer's division, its choice of writes and its observations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.enforce.observed_usage import encode_observation, usage_of_groups
from quotaplane.enforce.part_usage import PartUsage
from quotaplane.enforce.rate_writes import Rates, plan
from quotaplane.enforce.subdivide import subdivide
from quotaplane.model import BASIC, DIMENSIONS, FloatArray, Round
from quotaplane.quota.state import ShardState
from quotaplane.round_counts import RoundCounts
from quotaplane.sim.broker_fleet import Report
from quotaplane.topics.topic_layout import SIDES, Layout
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.reports import encode_stock_report
from tests.closed_loop.conftest import START_MS, Rounds, settings_with
from tests.state_invariants import check_state

TICKS_PER_S: Final = 10
_BYTES: Final = 100.0
"""Bytes of a message."""
_BATCH_S: Final = 0.4
"""From the begin of a round until its limits are on their topic."""
_WINDOW_S: Final = 2.0
"""The enforcer divides by the usage in windows of this length."""
_WRITE_S: Final = 0.5
"""From the decision to write a rate until the broker applies it."""
GROUP: Final = "acme/orders"


class StockCluster(Rounds):
    """Topics of one group, each on its broker; ``rates`` and ``used`` have a row per second.

    Args:
        wants: by topic, as ``broker/topic``: (second, messages per second) steps.
        quota: of the group, in messages per second.
        observes: the enforcer reports what it observes.
        interval_s: of the brokers' own reports.
        hidden: topics that the enforcer does not see in the counters.
        stops_at_s: the enforcer stops to observe then.
        poisson: a seed: demand is Poisson noise around ``wants``.
    """

    def __init__(
        self,
        wants: Mapping[str, Sequence[tuple[float, float]]],
        quota: float,
        *,
        observes: bool,
        interval_s: float = 10.0,
        hidden: frozenset[str] = frozenset(),
        stops_at_s: float = np.inf,
        poisson: int | None = None,
    ) -> None:
        settings = {"shards": 1, "reports": {"interval_s": interval_s}, "limits": {"lease_s": 300}}
        super().__init__(settings_with(**settings))
        self.put(GROUP, {DIMENSIONS[0]: quota})
        self.topics = tuple(sorted(wants))
        brokers = tuple(sorted({name.partition("/")[0] for name in self.topics}))
        broker = np.array([brokers.index(name.partition("/")[0]) for name in self.topics])
        every = np.arange(len(self.topics))
        zeros = np.zeros(len(every), np.int64)
        self.layout = Layout(brokers, (GROUP,), self.topics, zeros, self.topics, every, broker)
        self._wants = [sorted(wants[name]) for name in self.topics]
        self._seen = np.array([name not in hidden for name in self.topics])
        self._observes, self._stops_at_s, self._interval_s = observes, stops_at_s, interval_s
        self._random = None if poisson is None else np.random.default_rng(poisson)
        self._tick = 0
        self._counts = np.zeros((len(every), BASIC))
        self._reported, self._looked = self._counts.copy(), self._counts.copy()
        self.rate = np.full((len(every), BASIC), np.inf)
        self._tokens = np.full(len(every), np.inf)
        self._above_since_s = np.full((len(every), BASIC), np.inf)
        self._look_s = 1.0 if observes else _WINDOW_S
        self._divided = self._counts.copy()
        self._usage = PartUsage(_WINDOW_S)
        self._usage.carry(self.layout)
        self._received = ClusterLimits()
        self._received.expect(brokers, (GROUP,))
        self._later: list[tuple[float, str, Any]] = []
        self.rates: list[FloatArray] = []
        self.used: list[FloatArray] = []
        self.writes = self.differing = 0

    @property
    def state(self) -> ShardState:
        """The state of the only shard."""
        return self._states[0]

    @property
    def now_s(self) -> float:
        """The time since the start."""
        return self._tick / TICKS_PER_S

    @property
    def _now_ms(self) -> int:
        return START_MS + round(self.now_s * 1000)

    def run(self, seconds: float) -> StockCluster:
        """Let time pass."""
        for _ in range(round(seconds * TICKS_PER_S)):
            self._tick += 1
            self._traffic()
            for due_s, kind, what in [one for one in self._later if one[0] <= self.now_s]:
                self._later.remove((due_s, kind, what))
                self._receive(what) if kind == "limits" else self._apply(*what)
            if self._tick % round(self._interval_s * TICKS_PER_S) == 0:
                self._report()
            if self._tick % round(self._look_s * TICKS_PER_S) == 0:
                self._look()
            if self._tick % TICKS_PER_S == TICKS_PER_S // 2:
                self._decide_now()
            if self._tick % (TICKS_PER_S // 2) == 0:
                self._divide()
            if self._tick % TICKS_PER_S == 0:
                self.rates.append(self.rate[:, 0].copy())
                before = self.used[-1] if self.used else np.zeros(len(self.topics))
                self.used.append(self._counts[:, 0] - sum(self.used, np.zeros_like(before)))
        return self

    def _traffic(self) -> None:
        wanted = np.array(
            [next((r for s, r in reversed(steps) if s <= self.now_s), 0.0) for steps in self._wants]
        )
        wanted = wanted / TICKS_PER_S
        if self._random is not None:
            wanted = self._random.poisson(wanted).astype(float)
        rate = self.rate[:, 0]
        self._tokens = np.minimum(rate, self._tokens + rate / TICKS_PER_S)
        used = np.minimum(wanted, self._tokens)
        self._tokens = self._tokens - used
        self._counts[:, 0] += used
        self._counts[:, 1] += used * _BYTES

    def _report(self) -> None:
        grown = np.rint(self._counts) - np.rint(self._reported)
        self._reported = self._counts.copy()
        for index, name in enumerate(self.layout.brokers):
            total = grown[self.layout.broker == index].sum(axis=0, keepdims=True)
            self._send(name, encode_stock_report(name, [GROUP], total))

    def _send(self, broker: str, value: bytes) -> None:
        self._waiting.append(Report(broker, value, self._now_ms))

    def _look(self) -> None:
        grown = self._counts - self._looked
        self._looked = self._counts.copy()
        window_over = self._tick % round(_WINDOW_S * TICKS_PER_S) == 0
        if window_over:
            whole, self._divided = self._counts - self._divided, self._counts.copy()
        for index, name in enumerate(self.layout.brokers):
            parts = np.flatnonzero(self.layout.broker == index)
            if window_over:
                self._usage.add_sample(parts, whole[parts] / _WINDOW_S)
            if not self._observes or self.now_s >= self._stops_at_s:
                continue
            seen = parts[self._seen[parts]]
            used = usage_of_groups(self.layout, name, seen, grown[seen], self._look_s)
            value = encode_observation(name, used, at_ms=self._now_ms, window_s=self._look_s)
            assert value is not None
            self._send(name, value)
        self._divide()

    def _decide_now(self) -> None:
        for value in self._decide(self._tick, self._now_ms):
            self._later.append((self.now_s + _BATCH_S, "limits", value))
        assert not self.rejected
        check_state(self.state)

    def _finish(self, stamp: Round, packed: Mapping[str, Sequence[bytes]]) -> list[bytes]:
        counts = map(RoundCounts.from_bytes, packed.get("counts", ()))
        self.differing += sum(each.sources_differing for each in counts)
        return super()._finish(stamp, packed)

    def _receive(self, value: bytes) -> None:
        self._received.receive(decode_limits(value), self._now_ms)
        self._divide()

    def _divide(self) -> None:
        self._usage.note_rates(self.rate, self.now_s)
        pairs = self.layout.pairs
        limits = self._received.in_force(
            self.layout.brokers, (GROUP,), pairs.broker, pairs.group, self._now_ms
        )
        usage = self._usage
        division = subdivide(self.layout, limits, usage.usage, usage.saturated)
        shape = (len(self.topics), 2)
        pending = [what for _, kind, what in self._later if kind == "rate"]
        idle = np.ones(shape, bool)
        for topic, side, _ in pending:
            idle[topic, side] = False
        no = np.zeros(shape, bool)
        above_s = np.maximum(self.now_s - self._above_since_s, 0.0)
        rates = Rates(self.rate, self.rate, idle, no, no, np.zeros(shape), above_s, no, no)
        self._above_since_s = np.where(
            self.rate > division.rates, np.minimum(self._above_since_s, self.now_s), np.inf
        )
        moves = plan(self.layout, limits, division, rates, significant_change=0.05, patient=True)
        writes = zip(moves.topic.tolist(), moves.kind.tolist(), moves.rates, strict=True)
        for topic, side, rate in writes:
            self.writes += 1
            self._later.append((self.now_s + _WRITE_S, "rate", (topic, side, rate)))

    def _apply(self, topic: int, side: int, rate: FloatArray) -> None:
        self.rate[topic, SIDES[side]] = rate
        if side == 0:  # a write fills the bucket
            self._tokens[topic] = rate[0]

    def since(self, topic: str, rate: float, from_s: int) -> int:
        """Seconds from ``from_s`` until the topic's rate is at least this, for the first time."""
        place = self.topics.index(topic)
        late = [row[place] >= rate for row in self.rates[from_s:]]
        return late.index(True) + 1
