"""A round that runs again decides the same, to the bit.

The state may have been written and read meanwhile, and the same events may come in another order,
in other payloads. Rounds are those of ``step_stories``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaplane.arrow import unpack
from quotaplane.model import DIMENSIONS, Mode, Round, Transition
from quotaplane.quota.estimate.demand_estimates import Doubt
from quotaplane.quota.learning import DONE
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import step
from quotaplane.streams.quota.program import QuotaProgram
from quotaplane.streams.shard_program import Batch
from quotaplane.throttle.coded import Throttles
from tests.examples import examples
from tests.state_invariants import check_state
from tests.unit.quota.step_cases import STRICT, T0, Shard, report, reports
from tests.unit.quota.test_redefine import change, changes
from tests.unit.wire.step_stories import (
    EPOCH,
    Row,
    Story,
    change_payloads,
    events_of,
    report_payloads,
)

pytestmark = pytest.mark.slow

ROUNDS = 16
seeds = st.integers(0, 1_000_000)


def told(story: Story) -> Iterator[tuple[Round, list[Row], list[Row], ShardState, Outcome]]:
    """A story's rounds: what came, and the state and the outcome after it."""
    state = ShardState()
    for seq in range(ROUNDS):
        now_ms, made, changed = story.round()
        round_ = Round(EPOCH, seq, now_ms)
        events = events_of(report_payloads(made), change_payloads(changed))
        state, outcome = step(state, events, round_, story.config)
        check_state(state)
        yield round_, made, changed, state, outcome
        story.deliver(outcome, seq)


def content(value: Any) -> Any:
    """Content of a part of a state, in a form that can be compared to the bit."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, Throttles):
        return value.column().to_pylist()
    if isinstance(value, pa.Array):
        return value.to_pylist()
    if isinstance(value, Mapping):
        return [(name, content(part)) for name, part in sorted(value.items())]
    if hasattr(value, "__dataclass_fields__"):
        return {name: content(part) for name, part in vars(value).items()}
    return value


def differences(one: ShardState, other: ShardState) -> list[str]:
    mine, its = content(one), content(other)
    return [
        f"{part}.{name}" if isinstance(said, dict) else part
        for part, said in mine.items()
        for name in (said if isinstance(said, dict) else [part])
        if (said[name] != its[part][name] if isinstance(said, dict) else said != its[part])
    ]


def plain(table: pa.Table | None) -> pa.Table | None:
    """The table with each text in full."""
    if table is None:
        return None
    names = table.column_names
    texts = [pa.types.is_dictionary(table[name].type) for name in names]
    full = [
        table[name].cast(table[name].type.value_type) if text else table[name]
        for name, text in zip(names, texts, strict=True)
    ]
    return pa.table(dict(zip(names, full, strict=True)))


def assert_same(one: Outcome, other: Outcome) -> None:
    for name, value in vars(one).items():
        again = vars(other)[name]
        if isinstance(value, pa.Table):
            assert plain(value).equals(plain(again)), name
        else:
            assert value == again, name


@given(seeds)
@example(280)  # soft, hard, soft under strict
@examples(0.15)
def test_a_state_that_was_written_and_read_is_the_same(seed: int) -> None:
    for *_, state, _ in told(Story(seed)):
        assert differences(state, load(dump(state))) == []


@pytest.mark.nightly
@given(seeds)
@examples(0.15)
def test_events_have_the_same_outcome_in_any_order_and_any_payloads(seed: int) -> None:
    story, rng, other = Story(seed), np.random.default_rng([seed, 1]), ShardState()
    for round_, made, changed, state, outcome in told(story):
        shuffled = events_of(report_payloads(made, rng), change_payloads(changed, rng))
        other, again = step(other, shuffled, round_, story.config)
        assert differences(state, other) == []
        assert_same(outcome, again)


@given(seeds)
@examples(0.04)
def test_a_round_has_the_same_outputs_in_any_order_of_its_payloads(seed: int) -> None:
    story, rng, other = Story(seed), np.random.default_rng([seed, 2]), ShardState()
    state, program = ShardState(), QuotaProgram(story.config, EPOCH)
    for seq in range(ROUNDS):
        now_ms, made, changed = story.round()
        arrived = {"reports": [p for one in made for p in report_payloads([one])]}
        arrived["groups"] = [p for one in changed for p in change_payloads([one])]
        shuffled = {
            kind: [payloads[i] for i in rng.permutation(len(payloads))]
            for kind, payloads in arrived.items()
        }
        batch = Batch(0, seq, now_ms)
        state, outputs = program.run(state, arrived, batch)
        other, again = program.run(other, shuffled, batch)
        assert differences(state, other) == []
        assert [one.kind for one in outputs] == [one.kind for one in again]
        for one, two in zip(outputs, again, strict=True):
            if one.kind == "counts":
                assert one.payload == two.payload
            else:
                assert rows_of(one.payload) == rows_of(two.payload)
        story.now_ms += 1  # nobody was told anything: brokers go by what they had


def rows_of(payload: bytes) -> list[str]:
    """In an order of their own: a table's rows are in none."""
    return sorted(repr(row) for table in unpack(payload) for row in table.to_pylist())


@pytest.mark.nightly
def test_stories_have_all_that_could_make_a_difference() -> None:
    seen = set[str]()
    for seed in range(24):
        story = Story(seed)
        seen.add(story.config.transition.value)
        for *_, state, outcome in told(story):
            rows, groups = state.leases, state.groups
            seen |= {f"mode {mode}" for mode in groups.mode.tolist()}
            seen |= {f"dimension {dimension}" for dimension in rows.dimensions}
            seen |= {f"broker {status}" for status in outcome.brokers["status"].to_pylist()}
            seen |= {f"ended: {why}" for why in outcome.ended["why"].to_pylist()}
            seen |= {name for name, count in asdict(outcome.counts).items() if count}
            there = {
                "learning": state.learning.on,
                "light": (state.brokers.leaves_out_ms > 0).any(),
                "learned": state.learning.until_ms == DONE and story.config.learns,
                "waited for": (rows.max_in_force != rows.limit).any(),
                "not enforced": (~rows.enforced & rows.has_limit).any(),
                "in part": (groups.enforcement_percent < 100).any(),
                "terms of brokers": len(groups.overrides) > 0,
                "in a tree": (groups.parent >= 0).any(),
                "left": len(state.deleted.names) > 0,
                "terms of requests": groups.throttle.any_given,
                "claims": (rows.estimates.distrust > 0).any(),
                "jumped": (rows.estimates.doubt == Doubt.JUMPED).any(),
                "asked for more": (rows.estimates.doubt == Doubt.MORE).any(),
                "saturated": (rows.estimates.doubt == Doubt.SATURATED).any(),
                "unlimited": np.isinf(rows.limit).any() and np.isfinite(rows.limit).any(),
                "limited but deleted": outcome.limited_but_deleted is not None,
                "unknown": outcome.unknown is not None and len(outcome.unknown) > 0,
                "start in the future": (state.brokers.started_at_ms > 1 << 49).any(),
            }
            seen |= {name for name, found in there.items() if found}
    assert seen >= {
        *(one.value for one in Transition),
        *(f"mode {mode.value}" for mode in Mode),
        *(f"dimension {dimension}" for dimension in range(len(DIMENSIONS))),
        *(f"broker {status}" for status in ("live", "stale", "gone")),
        *(f"ended: {why}" for why in ("silent", "group_deleted")),
        *there,
        "duplicates",
        "outdated",
    }


def test_who_is_let_go_of_is_waited_for_no_more() -> None:
    """soft, hard, soft without an answer: what it may have used while it was soft has no end."""
    shard = Shard(STRICT)
    hard, soft = (change("g", 0, publish_messages_per_s=100.0, mode=m) for m in ("hard", "soft"))
    made = [
        report(broker, T0, {"g": 40.0}, throttled=0.0, applied_epoch=1, applied_seqs=-1)
        for broker in ("a", "b")
    ]
    for turn, mode in enumerate((soft, hard, soft)):
        events = reports(*({**one, "sequence": T0 + turn} for one in made))
        events = replace(events, groups=changes({**mode, "version": turn}))
        state, _ = step(shard.state, events, Round(1, turn, T0 + turn), STRICT)
        assert differences(state, load(dump(state))) == []
        shard.state = state
    assert np.isfinite(shard.state.leases.max_in_force[0]).all()


def test_a_commit_that_puts_a_group_twice_puts_one_of_them_whatever_comes_first() -> None:
    rows = [change("g", 5, publish_messages_per_s=rate) for rate in (3.0, 70.0)]
    found = []
    for order in (rows, rows[::-1]):
        shard = Shard()
        shard.run(replace(reports(report("a", T0, {"g": 1.0})), groups=changes(*order)), now_ms=T0)
        found.append(shard.in_force)
    assert found[0] == found[1]


def test_a_row_of_long_ago_keeps_its_time() -> None:
    """Leases may be longer than the 24 days of milliseconds that 32 bits hold."""
    shard = Shard(replace(STRICT, lease_ms=4e9))
    shard.run(
        events_of([], change_payloads([change("g", 1, publish_messages_per_s=9.0)])), now_ms=T0
    )
    for broker, at_ms in (("a", T0), ("b", T0 + 3_000_000_000)):
        shard.report(at_ms, {broker: 1.0})
    assert sorted(shard.state.leases.seen_at_ms.tolist()) == [T0, T0 + 3_000_000_000]
