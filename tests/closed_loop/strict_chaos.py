"""Simulates a cluster under strict limits, and a network that loses, delays and repeats messages.

Brokers, messages and rounds run on a clock of 50 ms steps, not in lockstep: reports and limits take
up to several intervals, overtake each other, arrive twice or never; brokers fall silent, die, and
restart, and their clocks differ. The job may be killed, and restart without its state.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from quotaplane.arrow import unpack
from quotaplane.model import DIMENSIONS, RATE_COLUMNS
from quotaplane.quota.config import EarlierLimits
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.sim.broker_fleet import BrokerFleet, BrokerSpec
from quotaplane.streams.quota.program import QuotaProgram, quota_program
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.shard_inputs import pack_groups, pack_reports
from tests.closed_loop.conftest import START_MS, group_row, group_table, settings_with
from tests.state_invariants import check_state
from tests.unit.wire.wire_cases import decode_fresh

INTERVAL_MS = 1000
STEP_MS = 50
LEASE_S = 12.0
GROUPS = ("g", "t::a", "t::b")
QUOTA = {"g": 100.0, "t": 60.0, "t::a": None, "t::b": 50.0}
MOST = np.array([100.0, 60.0])
"""Quotas of g, and of the groups below t together."""

CALM = {"loss": 0.0, "most_delay_ms": 100}
WILD = {"loss": 0.3, "most_delay_ms": 5000}
NETWORKS = pytest.mark.parametrize("network", [CALM, WILD], ids=["calm", "wild"])


def totals(in_force: np.ndarray) -> np.ndarray:
    """(2,) what all brokers together may use of g, and of the groups below t."""
    by_group = in_force.sum(axis=0)
    return np.array([by_group[0], by_group[1:].sum()])


class Chaos:
    """A cluster under strict limits with an unreliable network."""

    def __init__(
        self,
        seed: int,
        *,
        loss: float,
        most_delay_ms: int,
        brokers: int,
        dimension: str = DIMENSIONS[0],
        **limits,
    ):
        self.limits = limits
        # Two generators, so that the cluster's events don't depend on the number of messages.
        self.rng, self.network = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
        self.loss, self.most_delay_ms = loss, most_delay_ms
        self.dimension = DIMENSIONS.index(dimension)
        specs = tuple(BrokerSpec(f"b{i}", throttled=i % 3 != 2) for i in range(brokers))
        self.brokers = BrokerFleet(specs, GROUPS, strict=True, started_at_ms=START_MS)
        self.skew_ms = self.rng.integers(-900, 900, brokers)
        self.phase_ms = self.rng.integers(0, INTERVAL_MS // STEP_MS, brokers) * STEP_MS
        self.cut_off_until_ms = np.zeros(brokers, np.int64)
        self.demand = np.zeros((brokers, len(GROUPS), len(DIMENSIONS)))
        self.now_ms, self.epoch = START_MS, 0
        self.reports: list[bytes] = []
        self.published: list[int] = []
        self.mail: list[tuple[int, int, str, int, bytes, int]] = []
        self.order = count()
        self.quota = dict(QUOTA)
        self.version = 0
        self.gone: set[str] = set()
        self.running = False
        self.over_ms = 0
        self.start()

    def start(self, **limits) -> None:
        """Start a job without state, in place of the previous one."""
        given = {"transition": "strict", "lease_s": LEASE_S, "refresh_rounds": 3}
        self.settings = settings_with(
            limits=given | self.limits | limits,
            brokers={"stale_after_intervals": 2, "expire_after_intervals": 3},
            shards=1,
        )
        self.epoch += 1
        self.program: QuotaProgram = quota_program(
            self.settings, self.epoch, EarlierLimits(self.over_ms)
        )
        self.state, self.seq = ShardState(), 0
        self.pending = {name: self.quota[name] for name in self.quota if name not in self.gone}
        self.running = True
        first_round_ms = self.now_ms // INTERVAL_MS * INTERVAL_MS + INTERVAL_MS
        learnt_ms = max(first_round_ms + int(self.program.step.lease_ms), self.over_ms)
        self.promised_from_ms = learnt_ms + int(self.program.step.stale_after_ms)

    def kill(self, *, reports_are_kept: bool) -> None:
        """Stop the job; ``reports_are_kept``: the next job reads the reports sent meanwhile."""
        self.running, self.keeps = False, reports_are_kept

    def obeys_this_job(self) -> np.ndarray:
        """(brokers, groups) the broker has no limit of an earlier job, and never will again."""
        epoch = self.brokers.received.epochs
        return (epoch < 0) | (epoch == self.epoch)

    def in_force(self) -> np.ndarray:
        """(brokers, groups) the limits now by each broker's clock, in the limited dimension."""
        return np.stack(
            [
                self.brokers.limits(self.now_ms + int(skew))[broker, :, self.dimension]
                for broker, skew in enumerate(self.skew_ms)
            ]
        )

    def run(self, seconds: int) -> Iterator[np.ndarray]:
        for _ in range(seconds * 1000 // STEP_MS):
            self.now_ms += STEP_MS
            self._happen()
            self._deliver()
            self._report()
            if self.running and self.now_ms % INTERVAL_MS == 0:
                self._decide()
            yield self.in_force()

    def _happen(self) -> None:
        """Random events: demand changes, groups come or go, brokers die, restart or are cut off."""
        for group in GROUPS:
            if self.rng.random() < (0.01 if group in self.gone else 0.0007):
                self.gone ^= {group}
                self.pending[group] = self.quota[group]
        for broker in np.flatnonzero(self.rng.random(len(self.skew_ms)) < 0.004):
            kind = self.rng.integers(0, 7)
            name = self.brokers.names[broker]
            if kind == 0 and self.brokers.alive[broker]:
                self.brokers.die(name)
            elif kind <= 1:
                self.brokers.join(name, self.now_ms + int(self.skew_ms[broker]))
            elif kind == 2:
                self.cut_off_until_ms[broker] = self.now_ms + self.rng.integers(1000, 20_000)
            elif kind == 3:  # a group's topics move to a broker, or away
                group = self.rng.integers(0, len(GROUPS))
                self.brokers.attached[broker, group] ^= True
            else:
                self.demand[broker] = self.rng.choice([0.0, 5.0, 20.0, 80.0, 300.0])

    def _send(self, kind: str, broker: int, value: bytes, made_at_ms: int = 0) -> None:
        """Send a message zero, one or two times, each with a random delay."""
        for _ in range(int(self.network.choice([0, 1, 2], p=[self.loss, 0.9 - self.loss, 0.1]))):
            at = self.now_ms + int(self.network.integers(0, self.most_delay_ms + 1))
            heapq.heappush(self.mail, (at, next(self.order), kind, broker, value, made_at_ms))

    def _deliver(self) -> None:
        while self.mail and self.mail[0][0] <= self.now_ms:
            _, _, kind, broker, value, made_at_ms = heapq.heappop(self.mail)
            if self.cut_off_until_ms[broker] > self.now_ms:
                continue
            if kind == "limits":
                self.brokers.receive([value])
            elif self.running or self.keeps:
                self.reports.append(value)
                self.published.append(made_at_ms)

    def _report(self) -> None:
        due = self.brokers.alive & (self.now_ms % INTERVAL_MS == self.phase_ms)
        for broker in np.flatnonzero(due).tolist():
            now_ms = self.now_ms + int(self.skew_ms[broker])
            usage = self.brokers.use(self.demand, now_ms, broker)
            for report in self.brokers.reports(usage, self.demand, now_ms):
                if report.broker == self.brokers.names[broker]:
                    self._send("report", broker, report.value, now_ms)

    def _decide(self) -> None:
        arrived: dict[str, list[bytes]] = {"reports": [], "groups": []}
        if self.reports:
            decoded = decode_fresh(
                self.reports,
                np.array(self.published, dtype=np.int64),
                [""] * len(self.reports),
                now_ms=self.now_ms,
                reports=self.settings.reports,
                oldest_s=self.settings.limits.lease_s,
            )
            arrived["reports"] += [payload for _, payload in pack_reports(decoded, 1)]
        arrived["groups"] += self._changes()
        self.reports, self.published = [], []
        self.state, outputs = self.program.run(self.state, arrived, Batch(0, self.seq, self.now_ms))
        self.state = load(dump(self.state))
        check_state(self.state)
        self.seq += 1
        # As the history knows it: the last round plus its lease.
        self.over_ms = max(self.over_ms, self.now_ms + int(self.program.step.lease_ms))
        for output in outputs:
            if output.kind == "rejected_reports":
                # Restarts, clocks, and reports that are late or sent twice are no second program.
                assert "two_incarnations" not in unpack(output.payload)[0]["reason"].to_pylist()
            if output.kind == "messages":
                for row in unpack(output.payload)[0].to_pylist():
                    self._send("limits", self.brokers.names.index(row["broker"]), row["value"])

    def _changes(self) -> list[bytes]:
        rows = []
        for group, quota in self.pending.items():
            self.version += 1
            rates = {RATE_COLUMNS[self.dimension]: quota}
            rows.append(group_row(group, self.version, deleted=group in self.gone, **rates))
        self.pending = {}
        if not rows:
            return []
        return [payload for _, payload in pack_groups(group_table(rows), 1)]
