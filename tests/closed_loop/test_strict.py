"""``transition: strict``: limits in force never add up to more than the quota, at no instant.

Brokers, messages and rounds run on a clock of 50 ms steps, not in lockstep: reports and limits take
up to several intervals, overtake each other, come twice or not at all; brokers fall silent, die,
start anew, and their clocks disagree. After every step what is in force is added up.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.model import BASIC, DIMENSIONS, RATE_COLUMNS, group_id
from quotaplane.packing import unpack
from quotaplane.sim.brokers import Brokers, BrokerSpec
from quotaplane.sim.enforcer import SLOTS_PER_S, Enforcer, Throttling
from quotaplane.state import ShardState
from quotaplane.streams.rounds import round_config, run_round
from quotaplane.throttle.model import ThrottleMode
from quotaplane.wire.events import GROUPS as GROUPS_SCHEMA
from quotaplane.wire.events import pack_groups, pack_reports
from quotaplane.wire.reports import decode

START_MS = 1_700_000_000_000
INTERVAL_MS = 1000
STEP_MS = 50
GROUPS = ("g", "t::a", "t::b")
QUOTA = {"g": 100.0, "t": 60.0, "t::a": None, "t::b": 50.0}
MOST = np.array([100.0, 60.0])
"""Of g, and of what is below t."""


def totals(in_force: np.ndarray) -> np.ndarray:
    """(2,): what all brokers together may use of g, and of the groups below t."""
    by_group = in_force.sum(axis=0)
    return np.array([by_group[0], by_group[1:].sum()])


class Chaos:
    """A cluster under strict limits with a network that does what it likes."""

    def __init__(
        self,
        with_settings,
        seed: int,
        *,
        loss: float,
        most_delay_ms: int,
        brokers: int,
        dimension: str = DIMENSIONS[0],
        **limits,
    ):
        limits |= {"transition": "strict", "lease_s": 12.0, "refresh_rounds": 3}
        self.settings = with_settings(
            limits=limits,
            brokers={"stale_after_intervals": 2, "expire_after_intervals": 3},
            reports={"interval_s": 1.0, "stale_after_intervals": 8},
            shards=1,
        )
        # Two of them: what befalls the cluster must not depend on how many messages there are.
        self.rng, self.network = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
        self.loss, self.most_delay_ms = loss, most_delay_ms
        self.dimension = DIMENSIONS.index(dimension)
        specs = tuple(BrokerSpec(f"b{i}", throttled=i % 3 != 2) for i in range(brokers))
        self.brokers = Brokers(specs, GROUPS, strict=True, started_at_ms=START_MS)
        self.skew_ms = self.rng.integers(-900, 900, brokers)
        self.phase_ms = self.rng.integers(0, INTERVAL_MS // STEP_MS, brokers) * STEP_MS
        self.cut_off_until_ms = np.zeros(brokers, np.int64)
        self.demand = np.zeros((brokers, len(GROUPS), len(DIMENSIONS)))
        self.config = round_config(self.settings, epoch=1)
        self.state, self.seq, self.now_ms = ShardState(), 0, START_MS
        self.reports: list[bytes] = []
        self.published: list[int] = []
        self.mail: list[tuple[int, int, str, int, bytes, int]] = []
        self.order = count()
        self.quota = dict(QUOTA)
        self.pending = dict(QUOTA)
        self.version = 0
        self.gone: set[str] = set()

    def in_force(self) -> np.ndarray:
        """(brokers, groups): what each may use now by its own clock, in the limited dimension."""
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
            if self.now_ms % INTERVAL_MS == 0:
                self._decide()
            yield self.in_force()

    def _happen(self) -> None:
        """Demands change, groups come and go, brokers die and come again, or can't be reached."""
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
            elif kind == 3:  # a group's topics come to a broker, or leave it
                group = self.rng.integers(0, len(GROUPS))
                self.brokers.attached[broker, group] ^= True
            else:
                self.demand[broker] = self.rng.choice([0.0, 5.0, 20.0, 80.0, 300.0])

    def _send(self, kind: str, broker: int, value: bytes, made_at_ms: int = 0) -> None:
        """Maybe once, maybe twice, maybe never; and nobody knows when."""
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
            else:
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
            decoded = decode(
                self.reports,
                np.array(self.published, dtype=np.int64),
                [""] * len(self.reports),
                now_ms=self.now_ms,
                reports=self.settings.reports,
            )
            arrived["reports"] += [payload for _, payload in pack_reports(decoded, 1)]
        arrived["groups"] += self._changes()
        self.reports, self.published = [], []
        self.state, outputs = run_round(
            self.state, arrived, shard=0, seq=self.seq, now_ms=self.now_ms, config=self.config
        )
        self.state = ShardState.from_bytes(self.state.to_bytes())
        self.seq += 1
        for output in outputs:
            if output.kind == "messages":
                for row in unpack(output.payload)[0].to_pylist():
                    self._send("limits", self.brokers.names.index(row["broker"]), row["value"])

    def _changes(self) -> list[bytes]:
        rows = []
        for group, quota in self.pending.items():
            self.version += 1
            rates = dict.fromkeys(RATE_COLUMNS) | {RATE_COLUMNS[self.dimension]: quota}
            names = {"group": group, "group_id": group_id(group)}
            nothing = dict.fromkeys(GROUPS_SCHEMA.names)
            deleted = {"deleted": group in self.gone, "version": self.version}
            rows.append({**nothing, **rates, **names, **deleted})
        self.pending = {}
        if not rows:
            return []
        table = pa.Table.from_pylist(rows, schema=GROUPS_SCHEMA)
        return [payload for _, payload in pack_groups(table, 1)]


CALM = {"loss": 0.0, "most_delay_ms": 100}
WILD = {"loss": 0.3, "most_delay_ms": 5000}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("network", [CALM, WILD], ids=["calm", "wild"])
def test_limits_in_force_never_exceed_the_quota(with_settings, network, seed: int) -> None:
    chaos = Chaos(with_settings, seed, brokers=3 + seed % 4, **network)
    most = np.zeros(2)
    for in_force in chaos.run(seconds=100):
        total = totals(in_force)
        assert (total <= MOST * (1 + 1e-9)).all(), f"{chaos.now_ms - START_MS} ms: {in_force}"
        most = np.maximum(most, total)
    assert (most > 0.4 * MOST).all()  # it was not kept by giving nothing


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dimension", ["total_messages", "controller_mutations"])
def test_that_holds_in_a_dimension_that_comes_with_its_quota(
    with_settings, dimension: str, seed: int
) -> None:
    chaos = Chaos(with_settings, seed, brokers=4, dimension=dimension, **WILD)
    most = np.zeros(2)
    for in_force in chaos.run(seconds=100):
        total = totals(in_force)
        assert (total <= MOST * (1 + 1e-9)).all(), f"{chaos.now_ms - START_MS} ms: {in_force}"
        most = np.maximum(most, total)
    assert (most > 0.4 * MOST).all()
    assert len(chaos.state.rows.dimensions) == BASIC + 1


@pytest.mark.parametrize("mode", list(ThrottleMode))
@pytest.mark.parametrize("network", [CALM, WILD], ids=["calm", "wild"])
def test_use_in_any_time_is_at_most_the_quotas_and_one_burst(with_settings, network, mode) -> None:
    """What the promise about limits is in units, with buckets of a second: in any time all brokers
    together use no more than quota times time, the quota of one second, and a request each."""
    chaos = Chaos(with_settings, 1, brokers=4, **network)
    step_s, entities = STEP_MS / 1000, 4 * len(GROUPS)
    buckets = Enforcer(entities, Throttling(mode=mode), interval_s=step_s)
    used = [np.zeros(2)]
    for in_force in chaos.run(seconds=60):
        let = buckets.use(np.full(entities, 500.0), in_force.ravel())
        used.append(step_s * totals(let.reshape(in_force.shape)))
    sent = np.cumsum(used, axis=0)
    requests = MOST / SLOTS_PER_S * [4, 8]  # none is larger than the whole quota makes it
    for begin in range(0, len(sent) - 1, 5):
        time_s = step_s * np.arange(1, len(sent) - begin)[:, None]
        assert (sent[begin + 1 :] - sent[begin] <= MOST * (time_s + 1.0) + requests).all()
    assert (sent[-1] > 0.3 * MOST * 60).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_step", [None, 0.02])
def test_a_lowered_quota_holds_two_leases_later_at_the_latest(
    with_settings, max_step: float | None, seed: int
) -> None:
    chaos = Chaos(with_settings, seed, brokers=4, max_step=max_step, **WILD)
    for _ in chaos.run(seconds=35):
        pass
    lowered = {"g": 40.0, "t": 20.0}
    chaos.quota |= lowered
    chaos.pending |= lowered
    lowered_at_ms = chaos.now_ms
    for in_force in chaos.run(seconds=60):
        late = chaos.now_ms > lowered_at_ms + 2 * (12_000 + 2 * INTERVAL_MS)
        most = np.array([40.0, 20.0]) if late else MOST
        assert (totals(in_force) <= most * (1 + 1e-9)).all()


def test_when_the_network_calms_down_everybody_gets_its_fair_share(with_settings) -> None:
    chaos = Chaos(with_settings, 1, brokers=3, **WILD)
    for _ in chaos.run(seconds=45):
        pass
    chaos.loss, chaos.most_delay_ms, chaos._happen = 0.0, 100, lambda: None
    chaos.cut_off_until_ms[:] = 0
    for name in chaos.brokers.names:
        chaos.brokers.join(name, chaos.now_ms)
    chaos.brokers.attached[:] = True
    chaos.demand[:, :, 0] = [[200.0, 5, 10], [200.0, 90, 10], [10.0, 90, 10]]
    for _ in chaos.run(seconds=25):  # two leases: nobody is waited for any more
        pass
    in_force = chaos.in_force()
    used = np.minimum(in_force, chaos.demand[:, :, 0])
    assert used[:, 0] == pytest.approx([45, 45, 10], rel=0.03)
    assert used[:, 1] == pytest.approx([5, 12.5, 12.5], rel=0.1)
    assert used[:, 2] == pytest.approx([10, 10, 10], rel=0.1)
