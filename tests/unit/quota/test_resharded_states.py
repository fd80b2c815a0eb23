"""States divided among another number of shards: nothing is lost, and limits stay the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaplane.model import Round, group_id, shard_of
from quotaplane.quota.config import OWN_SINCE, EarlierLimits, Events, StepConfig
from quotaplane.quota.learning import DONE, Learning
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.resharded_states import resharded
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import step
from quotaplane.quota.undefined_groups import UndefinedGroups
from quotaplane.wire.shard_inputs import Decoded, pack_groups, pack_reports, unpack_groups
from tests.examples import examples
from tests.state_invariants import check_state
from tests.unit.quota.step_cases import CONFIG, NOTHING, STRICT, T0, Shard, quotas, report, reports
from tests.unit.quota.test_step_repeats import differences
from tests.unit.wire.step_stories import (
    EPOCH,
    Story,
    change_payloads,
    events_of,
    report_payloads,
)

ROUNDS = 14

Rows = list[dict[str, Any]]


@dataclass
class Shards:
    """Several shards, and what their last round decided."""

    states: tuple[ShardState, ...]
    config: StepConfig
    epoch: int = EPOCH

    def run(self, events: Events, seq: int, now_ms: int) -> list[Outcome]:
        """A round of every shard; the state is written and read."""
        outcomes, after = [], list(self.states)
        for shard, part in enumerate(by_shard(events, len(after))):
            state, outcome = step(after[shard], part, Round(self.epoch, seq, now_ms), self.config)
            check_state(state)
            after[shard] = load(dump(state))
            outcomes.append(outcome)
        self.states = tuple(after)
        return outcomes

    def divided(self, shards: int) -> Shards:
        """The same with another number of shards, written and read."""
        states = resharded(self.states, shards, self.config)
        for state in states:
            check_state(state)
        return replace(self, states=tuple(load(dump(state)) for state in states))


def by_shard(events: Events, shards: int) -> list[Events]:
    """The events as shards get them."""
    found = [NOTHING] * shards
    if events.headers is not None and len(events.headers):
        decoded = Decoded(events.headers, events.entries, pa.table({}))
        for shard, payload in pack_reports(decoded, shards):
            found[shard] = events_of([payload], [])
    if events.groups is not None and len(events.groups):
        for shard, payload in pack_groups(events.groups, shards):
            found[shard] = replace(found[shard], groups=unpack_groups([payload]))
    return found


def keys(outcomes: Sequence[Outcome], name: str) -> list[tuple[str, str]]:
    """Group and broker of the rows of a table, of all shards."""
    tables = [getattr(outcome, name) for outcome in outcomes]
    rows = [row for table in tables if table is not None for row in table.to_pylist()]
    return sorted((row["group"], row["broker"]) for row in rows)


def limits(shards: Shards) -> dict[tuple[str, str, int], float]:
    """The limits in force by group, broker and dimension."""
    return {
        (group, state.brokers.names[broker], dimension): limit
        for state in shards.states
        for place, dimension in enumerate(state.leases.dimensions)
        for group, broker, limit in zip(
            state.groups.names.take(pa.array(state.leases.group)).to_pylist(),
            state.leases.broker.tolist(),
            state.leases.limit[place].tolist(),
            strict=True,
        )
        if np.isfinite(limit)
    }


def content(states: Sequence[ShardState]) -> Mapping[str, Any]:
    """All that states say of groups, in an order that does not depend on shards."""
    leases: Rows = []
    for state in states:
        for at in range(len(state.leases)):
            one, names = state.leases.take(np.array([at])), state.groups.names
            leases.append(
                {
                    "group": names[one.group[0]].as_py(),
                    "broker": state.brokers.names[one.broker[0]],
                    "basic": [
                        array[:4].tolist()
                        for array in (one.usage, one.limit, one.max_in_force, one.previous_limit)
                    ],
                    "demand": one.estimates.demand[:4].tolist(),
                    "more": [one.has_limit[0], one.issued_seq[0], one.seen_at_ms[0]],
                }
            )
    return {
        "leases": sorted(leases, key=lambda row: (row["group"], row["broker"])),
        "groups": sorted(name for state in states for name in state.groups.names.to_pylist()),
        "deleted": sorted(
            (name, int(until), held.tolist())
            for state in states
            for name, until, held in zip(
                state.deleted.names, state.deleted.until_ms, state.deleted.held.T, strict=True
            )
        ),
        "observed": sorted(
            (int(group), state.observed.brokers[broker])
            for state in states
            for group, broker in zip(state.observed.group_id, state.observed.broker, strict=True)
        ),
        "brokers": {name for state in states for name in state.brokers.names},
    }


def told(shards: Shards, story: Story, since: int, until: int) -> None:
    """Some rounds of a story."""
    for seq in range(since, until):
        now_ms, made, changed = story.round()
        events = events_of(report_payloads(made), change_payloads(changed))
        for outcome in shards.run(events, seq, now_ms):
            story.deliver(outcome, seq)


@given(st.integers(0, 1_000_000), st.integers(1, 4), st.integers(1, 4))
@example(26, 3, 4)
@examples(0.05)
def test_nothing_is_lost_and_the_same_number_again_is_as_before(seed: int, k: int, n: int) -> None:
    story = Story(seed)
    before = Shards((ShardState(),) * k, story.config)
    told(before, story, 0, ROUNDS)
    other = before.divided(n)
    for shard, state in enumerate(other.states):
        assert (shard_of(state.groups.ids, n) == shard).all()
    assert content(other.states) == content(before.states)
    both = zip(before.divided(k).states, other.divided(k).states, strict=True)
    assert [differences(one, again) for one, again in both] == [[]] * k


@given(st.integers(0, 1_000_000), st.integers(1, 4), st.integers(1, 4))
@example(26, 3, 4)
@examples(0.05)
def test_a_round_decides_the_same_with_any_number_of_shards(seed: int, k: int, n: int) -> None:
    """With the same state before it, where all shards have run in the same rounds."""
    story = Story(seed)
    one = Shards((ShardState(),) * k, story.config)
    for seq in range(ROUNDS):
        other = one.divided(n)
        # If only some learn, all do afterwards.
        alike = len({state.learning for state in one.states}) == 1
        now_ms, made, changed = story.round()
        events = events_of(report_payloads(made), change_payloads(changed))
        outcomes = one.run(events, seq, now_ms)
        if alike and seq > ROUNDS // 2:
            again = other.run(events, seq, now_ms)
            for name in ("ended", "usage"):
                assert keys(again, name) == keys(outcomes, name), name
            # Some sums are over all leases of a shard, and rounded.
            assert limits(other) == pytest.approx(limits(one), rel=1e-5, abs=1e-5)
        for outcome in outcomes:
            story.deliver(outcome, seq)


ONE, OTHER = "g1", "g2"
"""Groups of different shards, of two."""


def two_shards(config: StepConfig = CONFIG) -> list[Shard]:
    """A shard for each of the groups, after a report of both brokers."""
    shards = [Shard(config), Shard(config)]
    for shard, group in zip(shards, (ONE, OTHER), strict=True):
        shard.run(quotas((group, 100.0)), now_ms=T0)
        shard.run(reports(*(report(broker, T0, {group: 80.0}) for broker in ("a", "b"))), now_ms=T0)
    return shards


def states_of(shards: Sequence[Shard]) -> list[ShardState]:
    return [shard.state for shard in shards]


def test_the_groups_are_of_different_shards() -> None:
    assert {shard_of(group_id(name), 2) for name in (ONE, OTHER)} == {0, 1}


def test_a_broker_that_is_gone_in_one_shard_goes_from_the_others_in_the_next_round() -> None:
    shards = two_shards()
    for at_ms in (T0 + 11_000, T0 + 16_000):  # by the timer of one shard
        shards[0].run(now_ms=at_ms)
    assert len(shards[0].state.brokers) == 0
    (merged,) = resharded(states_of(shards), 1, CONFIG)
    check_state(merged)
    assert merged.brokers.names == ("a", "b")
    assert merged.groups.names.take(pa.array(merged.leases.group)).to_pylist() == [OTHER] * 2
    shard = Shard()
    shard.state = merged
    shard.run(now_ms=T0 + 16_001)
    assert (len(shard.state.brokers), len(shard.state.leases)) == (0, 0)


def test_the_newest_report_says_how_a_broker_stands_then_a_shard_that_found_it_stale() -> None:
    shards = two_shards()
    shards[0].run(now_ms=T0 + 11_000)
    (merged,) = resharded(states_of(shards), 1, CONFIG)
    assert merged.brokers.stale.tolist() == [True, True]
    shards[1].run(reports(report("b", T0 + 11_500, {OTHER: 80.0})), now_ms=T0 + 11_500)
    for order in (shards, shards[::-1]):
        (merged,) = resharded(states_of(order), 1, CONFIG)
        stale = dict(zip(merged.brokers.names, merged.brokers.stale.tolist(), strict=True))
        assert stale == {"a": True, "b": False}


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        ([Learning(DONE), Learning(DONE)], Learning(DONE)),
        ([Learning(DONE), Learning()], Learning(DONE)),  # a shard that never ran
        ([Learning(DONE), Learning(T0, on=True)], Learning(T0, on=True)),
        ([Learning(T0), Learning(T0 + 5)], Learning(T0 + 5)),
    ],
)
def test_learning_is_over_once_it_is_in_every_shard(
    parts: list[Learning], merged: Learning
) -> None:
    states = [ShardState(learning=part) for part in parts]
    assert [state.learning for state in resharded(states, 3, CONFIG)] == [merged] * 3


def test_debts_are_counted_up_to_the_last_round_of_any_shard() -> None:
    config = replace(CONFIG, over=0.5)
    shards = two_shards(config)
    later = two_shards(config)
    for shard in (shards[0], *later):
        shard.run(now_ms=T0 + 4_000)
    merged, expected = (resharded(states_of(each), 1, config)[0] for each in (shards, later))
    assert len(merged.overuse) > 0
    assert [part for part in differences(merged, expected) if part.startswith("overuse")] == []


def test_each_turn_is_renewed_by_when_its_shard_would_have() -> None:
    turns = [np.array([5, 2]), np.array([3, 4]), np.empty(0, np.int64)]
    states = resharded([ShardState(renewed_at_ms=each) for each in turns], 2, CONFIG)
    assert [state.renewed_at_ms.tolist() for state in states] == [[3, 2]] * 2


def test_undefined_groups_stay_quiet_in_every_shard_and_others_are_counted_once() -> None:
    def pairs(*rows: tuple[int, int, int]) -> ShardState:
        key, until, count = zip(*rows, strict=True)
        undefined = UndefinedGroups(np.array(key, np.uint64), np.array(until), np.array(count))
        return ShardState(undefined=undefined)

    states = resharded([pairs((0, 5, 9), (7, 5, 1)), pairs((7, 6, 0), (8, 5, 2))], 2, CONFIG)
    found = [
        (state.undefined.quiet_until_ms.tolist(), state.undefined.reports.tolist())
        for state in states
    ]
    assert found == [([5, 6, 5], [9, 0, 2]), ([5, 6, 5], [0, 0, 2])]


def test_reservations_of_deleted_groups_go_with_their_names() -> None:
    shards = two_shards(STRICT)
    for shard, group in zip(shards, (ONE, OTHER), strict=True):
        shard.run(quotas(group, version=1), now_ms=T0 + 1000)
    before = [state.deleted for state in states_of(shards)]
    (merged,) = resharded(states_of(shards), 1, STRICT)
    assert sorted(merged.deleted.names) == [ONE, OTHER]
    again = resharded([merged], 2, STRICT)
    held = {state.deleted.names: state.deleted.held.tolist() for state in again}
    assert held == {deleted.names: deleted.held.tolist() for deleted in before}


def test_a_note_of_before_there_were_own_epochs_is_read() -> None:
    noted = EarlierLimits(5.0, own_since=4).noted()
    assert EarlierLimits.of(noted) == EarlierLimits(5.0, own_since=4)
    del noted[OWN_SINCE]
    assert EarlierLimits.of(noted) == EarlierLimits(5.0)


def test_a_limit_of_the_epoch_before_is_acknowledged_as_its_own() -> None:
    """Under strict, others wait for it; an epoch that is not its own says nothing."""
    shard = Shard(STRICT, epoch=4)
    shard.run(quotas(("g", 100.0)), now_ms=T0)
    shard.report(T0, {"a": 90.0})
    shard.report(T0 + 5000, {"a": 10.0, "b": 90.0})
    lowered = shard.seq - 1
    waits = shard.state.leases.max_in_force[0, 0]
    assert waits > shard.state.leases.limit[0, 0]
    (state,) = resharded([shard.state], 1, STRICT)
    for own_since, settled in ((None, False), (4, True)):
        again = Shard(replace(STRICT, earlier=EarlierLimits(own_since=own_since)), epoch=5)
        again.state, again.seq = state, shard.seq
        said = {"applied_epoch": 4, "applied_seq": lowered, "applied_seqs": lowered}
        again.report(T0 + 6000, {"a": 10.0}, **said)
        assert (again.state.leases.max_in_force[0, 0] < waits) == settled
