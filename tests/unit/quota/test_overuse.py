"""Limits that may exceed the quota: what all brokers use together, what they owe and pay back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import ConfigError
from quotaplane.groups.hierarchy import subtree_totals
from quotaplane.laws import get_law
from quotaplane.laws.segments import Segments
from quotaplane.model import FloatArray, Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.headroom import budget, raised
from quotaplane.quota.overuse import Overuse
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import step
from quotaplane.settings import parse_settings
from quotaplane.sim.controller import StepController, step_config
from quotaplane.sim.loop import ArrivedReports
from tests.examples import examples
from tests.state_invariants import check_state
from tests.unit.quota.step_cases import CONFIG, T0, Shard, quotas, report, reports, with_quotas
from tests.unit.wire.step_stories import EPOCH, Story, change_payloads, events_of, report_payloads

QUOTA = 1000.0
OVER = replace(CONFIG, over=0.1, learns=False)
seeds = st.integers(0, 1_000_000)


class Adversary:
    """Brokers that use what they like of their limits, to use as much as they can in some stretch.

    ``late``: each report arrives so many rounds after its own; ``lost``: the part that never does,
    but not two in a row.
    """

    def __init__(self, seed: int, late: int = 0, lost: float = 0.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.over = float(self.rng.choice([0.02, 0.1, 0.3, 1.0]))
        self.brokers = int(self.rng.integers(1, 12))
        self.late, self.lost = late, lost
        config = step_config(get_law("max_min"), delay_rounds=late + 1, over=self.over)
        self.controller = StepController(config, self.brokers)
        self.arrivals: list[ArrivedReports] = []
        self.arrived = np.ones(self.brokers, bool)

    def run(self, rounds: int = 40) -> float:
        """The most that a stretch of rounds used beyond the quota, in quotas of one round."""
        limit, decided = np.full(self.brokers, np.inf), np.full(self.brokers, -1)
        used = []
        for this in range(rounds):
            wants = self._wants()
            usage = np.minimum(wants, limit)
            if np.isfinite(limit).all():
                used.append(usage.sum() / QUOTA - 1.0)
            self.arrivals.append(self._reports(this, usage, wants, limit, decided))
            told = self._arriving(this)
            answer = self.controller.decide(this, told, QUOTA)
            limit = np.where(np.isnan(answer), limit, answer)
            decided = np.where(np.isnan(answer), decided, this)
        sums = np.concatenate([[0.0], np.cumsum(used)])
        return float((sums - np.minimum.accumulate(sums)).max())

    def _wants(self) -> FloatArray:
        """Nothing, everything or a part, by the mood of the round: most rounds are all alike."""
        n = self.brokers
        moods = (
            lambda: np.full(n, 1e9),
            lambda: np.zeros(n),
            lambda: self.rng.uniform(0.0, 2.0 * QUOTA / n, n),
            lambda: np.where(self.rng.random(n) < 0.5, 1e9, self.rng.uniform(0.0, 50.0, n)),
            lambda: np.full(n, 0.9 * QUOTA / n),
        )
        if self.rng.random() < 0.3 or not self.arrivals:
            self.mood = moods[int(self.rng.integers(len(moods)))]
        return self.mood()

    def _reports(
        self, this: int, usage: FloatArray, wants: FloatArray, limit: FloatArray, decided: Any
    ) -> ArrivedReports:
        # Some claim to have refused nothing, and some to have refused a lot.
        claims = self.rng.choice([0.0, 1.0, 10.0], self.brokers) * np.minimum(wants, QUOTA)
        at = np.arange(self.brokers)
        return ArrivedReports(at, np.full(self.brokers, this), usage, claims, limit, decided)

    def _arriving(self, this: int) -> ArrivedReports:
        if this < self.late:
            return ArrivedReports(*(column[:0] for column in self.arrivals[0]))
        self.arrived = (self.rng.random(self.brokers) >= self.lost) | ~self.arrived
        return ArrivedReports(*(column[self.arrived] for column in self.arrivals[this - self.late]))


@pytest.mark.nightly
@given(seeds)
@examples(0.3)
def test_no_stretch_uses_more_than_its_quotas_and_x_of_one(seed: int) -> None:
    adversary = Adversary(seed)
    assert adversary.run() <= adversary.over + 1e-6


@pytest.mark.nightly
@given(seeds, st.sampled_from([(1, 0.0), (0, 0.2)]))
@examples(0.3)
def test_reports_that_are_a_round_late_or_lost_cost_as_much_again(
    seed: int, network: tuple[int, float]
) -> None:
    adversary = Adversary(seed, *network)
    assert adversary.run() <= 2.0 * adversary.over + 1e-6


@pytest.mark.nightly
def test_the_bound_is_attained() -> None:
    adversaries = [Adversary(seed) for seed in range(8)]
    assert max(each.run() / each.over for each in adversaries) > 0.9


@given(seeds)
@examples(1)
def test_raises_fit_every_quota_of_a_tree_and_lower_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 8))
    parent = np.array([int(rng.integers(-1, group)) for group in range(groups)])
    rows = Segments(np.concatenate([[0], np.cumsum(rng.integers(0, 5, groups))]))
    limits = rng.uniform(0.0, 100.0, len(rows.of_row))
    taken = subtree_totals(parent, rows.total(limits))
    quota = np.where(rng.random(groups) < 0.3, np.inf, taken * rng.uniform(1.0, 1.5, groups))
    most = budget(quota, np.zeros(groups), over=0.1).most
    wanted, highest = rng.uniform(0.0, 200.0, (2, len(limits)))
    new = raised(rows, limits, wanted, highest, most, parent)
    assert (new >= limits).all()
    assert (new <= np.maximum(limits, np.maximum(wanted, highest)) * (1 + 1e-12)).all()
    assert (subtree_totals(parent, rows.total(new)) <= most * (1 + 1e-9)).all()


def test_a_satisfied_broker_has_room_that_nobody_else_loses() -> None:
    limits = {}
    for config in (replace(CONFIG, over=0.0), OVER):
        shard = with_quotas(("g", 100), config=config)
        for at_ms in (T0 + 5_000, T0 + 10_000):
            uses = {"a": 60, "b": 20, "c": 5}
            told = [report(b, at_ms, {"g": u}, throttled=0.0) for b, u in uses.items()]
            told.append(report("d", at_ms, {"g": 40}, throttled=400.0))
            shard.run(reports(*told), now_ms=at_ms)
        limits[config.over] = shard.in_force
    assert sum(limits[0.0].values()) == pytest.approx(100.0, rel=1e-6)
    assert sum(limits[0.1].values()) == pytest.approx(110.0, rel=1e-6)
    for broker in ("a", "b", "c", "d"):
        assert limits[0.1]["g", broker] >= limits[0.0]["g", broker] * (1 - 1e-6)
    assert limits[0.1]["g", "a"] == pytest.approx(limits[0.0]["g", "a"]), "a is held back"


def overusing(config: StepConfig = OVER) -> Shard:
    """A group with a quota of 100 that used 110 in a round of 5 s, of limits that allow it."""
    shard = with_quotas(("g", 100), config=config)
    for at_ms, used in ((T0 + 5_000, 0.0), (T0 + 10_000, 10.0)):
        told = [report("a", at_ms, {"g": 90}, throttled=900.0, applied_seqs=shard.seq - 1)]
        told.append(report("b", at_ms, {"g": used}, throttled=0.0, applied_seqs=shard.seq - 1))
        shard.run(reports(*told), now_ms=at_ms)
    return shard


def use(shard: Shard, now_ms: int, **rates: float) -> None:
    """A round in which these brokers report."""
    header = {"applied_epoch": 1, "applied_seq": shard.seq - 1}
    told = (
        report(b, now_ms, {"g": u}, throttled=0.0, applied_seqs=shard.seq - 1, **header)
        for b, u in rates.items()
    )
    shard.run(reports(*told), now_ms=now_ms)


def test_overuse_is_a_debt_and_lowers_what_limits_add_up_to() -> None:
    shard = overusing()
    assert sum(shard.in_force.values()) == pytest.approx(110.0, rel=1e-6)
    limits = {broker: limit for (_, broker), limit in shard.in_force.items()}
    use(shard, T0 + 15_000, **limits)
    assert shard.state.overuse.debt == pytest.approx([10.0 * 5.0], rel=1e-5)
    assert sum(shard.in_force.values()) <= 100.0 * (1 + 1e-6)
    owed = []
    for at_ms in range(T0 + 20_000, T0 + 100_000, 5_000):
        use(shard, at_ms, **{broker: limit for (_, broker), limit in shard.in_force.items()})
        owed.append(shard.state.overuse.debt.sum())
    assert owed[0] < 50.0, "it is paid back although all use all they may"
    assert min(owed) < 10.0
    assert max(owed) <= 50.0 * (1 + 1e-6), "and may be owed again"


def test_use_that_no_report_tells_counts_as_the_limit_until_one_does() -> None:
    shard = overusing()
    limit = shard.in_force["g", "b"]
    use(shard, T0 + 15_000, a=50)
    assert shard.state.overuse.assumed == pytest.approx([5.0 * limit], rel=1e-5)
    use(shard, T0 + 20_000, a=50, b=10)
    assert not shard.state.overuse.assumed.any()
    assert not shard.state.overuse.debt.any()


def test_what_a_silent_broker_may_have_used_stays_a_debt_when_its_share_is_given_away() -> None:
    shard = overusing()
    for at_ms in range(T0 + 15_000, T0 + 40_000, 5_000):
        use(shard, at_ms, a=shard.in_force["g", "a"])
    assert ("g", "b") not in shard.in_force
    assert not shard.state.overuse.assumed.any()


def test_a_lowered_quota_leaves_no_debt_that_takes_forever() -> None:
    shard = overusing()
    shard.run(quotas(("g", 10), version=9), now_ms=T0 + 11_000)
    use(shard, T0 + 15_000, a=90, b=20)
    assert shard.state.overuse.debt.max() <= 4 * 0.1 * 10 * 5.0
    assert sum(shard.in_force.values()) >= 9.8 * (1 - 1e-6)


def test_nothing_is_owed_where_limits_never_exceed_quotas() -> None:
    owing = overusing()
    use(owing, T0 + 15_000, **{broker: limit for (_, broker), limit in owing.in_force.items()})
    assert len(owing.state.overuse)
    events = reports(report("a", T0 + 20_000, {"g": 50}), report("b", T0 + 20_000, {"g": 50}))
    outcomes = []
    for overuse in (owing.state.overuse, Overuse()):
        state = replace(owing.state, overuse=overuse)
        round_ = Round(epoch=1, seq=9, now_ms=T0 + 20_000)
        after, outcome = step(state, events, round_, replace(OVER, over=0.0))
        assert not len(after.overuse)
        outcomes.append(outcome.limits)
    assert outcomes[0].equals(outcomes[1])


class OverStory(Story):
    """Random rounds in which limits may exceed quotas."""

    def _settings(self) -> StepConfig:
        over, step_ = float(self.rng.choice([0.05, 0.5])), self.rng.choice([None, 0.1])
        return replace(OVER, over=over, lease_ms=30_000, max_step=step_, refresh_rounds=4)


@pytest.mark.nightly
@given(seeds)
@examples(0.2)
def test_a_debt_is_the_same_after_a_restart_and_older_versions_have_none(seed: int) -> None:
    story, state = OverStory(seed), ShardState()
    for seq in range(16):
        now_ms, made, changed = story.round()
        events = events_of(report_payloads(made), change_payloads(changed))
        state, outcome = step(state, events, Round(EPOCH, seq, now_ms), story.config)
        check_state(state)
        again = load(dump(state)).overuse
        for name, values in vars(state.overuse).items():
            assert np.array_equal(getattr(again, name), values), name
        story.deliver(outcome, seq)


def test_strict_refuses_it_and_so_does_more_than_the_quota_again() -> None:
    conf: dict[str, Any] = {
        "transport": {"kind": "delta", "path": "t"},
        "history": {"path": "h"},
        "checkpoint": "c",
    }
    assert parse_settings(conf).limits.over == 0.0
    assert parse_settings({**conf, "limits": {"over": 0.1}}).limits.over == 0.1
    with pytest.raises(ConfigError, match="over must be 0 with transition: strict"):
        parse_settings({**conf, "limits": {"over": 0.1, "transition": "strict"}})
    with pytest.raises(ConfigError, match=r"limits\.over"):
        parse_settings({**conf, "limits": {"over": 1.5}})
