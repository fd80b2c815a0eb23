"""Throttle terms of groups on their way to brokers: sent once, again when they have to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quotaplane.arrow import unpack
from quotaplane.model import Transition
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.streams.quota.program import QuotaProgram
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.limits import LimitsMessage, decode_limits
from tests.state_invariants import check_state
from tests.unit.streams.shard_cases import PROGRAM, group_changes, packed, usage_report

HARD = '{"*": {"mode": "hard"}}'
SLIDING = '{"*": {"law": "sliding_window"}}'
STEP = replace(PROGRAM.step, refresh_rounds=10**9, lease_ms=2e9)
NO_REFRESH = replace(PROGRAM, step=STEP)
STALE_AFTER = int(STEP.stale_after_ms / 1000)
"""In rounds."""


class Rounds:
    """Rounds of one shard, a second each; ``run`` returns the terms sent: (broker, group): text."""

    def __init__(self, program: QuotaProgram = NO_REFRESH) -> None:
        self.program, self.state, self.seq = program, ShardState(), 0
        self.started_at_ms: dict[str, int] = {}
        self.messages: list[LimitsMessage] = []
        self._applied: dict[tuple[str, str], int] = {}

    def run(
        self,
        groups: Mapping[str, Mapping[str, Any] | None] | None = None,
        uses: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[tuple[str, str], str]:
        """``groups``: columns by name, None deletes; ``uses``: groups by broker, of which each
        uses 3 a second and refuses none."""
        self.seq += 1
        arrived: dict[str, list[bytes]] = {}
        if groups:
            arrived["groups"] = self._changes(groups)
        if uses:
            reports = [self._report(*pair) for pair in uses.items()]
            arrived["reports"] = packed(*reports, at_ms=self._now_ms)
        batch = Batch(0, self.seq, self._now_ms)
        self.state, outputs = self.program.run(self.state, arrived, batch)
        self.state = load(dump(self.state))
        check_state(self.state)
        self.messages = [
            decode_limits(value)
            for output in outputs
            if output.kind == "messages"
            for value in unpack(output.payload)[0]["value"].to_pylist()
        ]
        told: dict[tuple[str, str], str] = {}
        for message in self.messages:
            self._applied |= dict.fromkeys(((message.broker, g) for g in message.groups), self.seq)
            texts = message.throttles or ()
            told |= {(message.broker, g): t for g, t in zip(message.groups, texts, strict=False)}
        return told

    @property
    def _now_ms(self) -> int:
        return 1_000_000 + 1_000 * self.seq

    def _changes(self, groups: Mapping[str, Mapping[str, Any] | None]) -> list[bytes]:
        columns = ("mode", "throttle")
        given = {name: [(each or {}).get(name) for each in groups.values()] for name in columns}
        return group_changes(
            *groups,
            rate=100.0,
            dimensions=1,
            deleted=[each is None for each in groups.values()],
            version=[self.seq] * len(groups),
            **given,
        )

    def _report(self, broker: str, groups: Sequence[str]) -> bytes:
        seqs = [self._applied.get((broker, name), -1) for name in groups]
        return usage_report(
            broker,
            groups,
            started_at_ms=self.started_at_ms.get(broker, 1),
            sequence=self.seq,
            applied=(1, max(seqs)) if max(seqs) >= 0 else None,
            applied_seqs=np.array(seqs),
            throttled=np.zeros((len(groups), 4)),
        )


USES = {"b1": ["g", "h"], "b2": ["g"]}
G_HARD = {("b1", "g"): HARD, ("b2", "g"): HARD}


def settled(program: QuotaProgram = NO_REFRESH, **groups: Mapping[str, Any]) -> Rounds:
    """Rounds in which ``g`` and ``h`` have their limits, and nothing is left to be published."""
    rounds = Rounds(program)
    rounds.run({"g": {}, "h": {}, **groups})
    for _ in range(4):
        rounds.run(uses=USES)
    assert rounds.messages == []
    return rounds


def settled_under(transition: Transition) -> Rounds:
    return settled(replace(NO_REFRESH, step=replace(STEP, transition=transition, learns=False)))


def test_terms_come_with_the_first_limit_and_not_again() -> None:
    rounds = Rounds()
    rounds.run({"g": {"throttle": HARD}, "h": {}})
    assert rounds.run(uses=USES) == {**G_HARD, ("b1", "h"): ""}
    assert rounds.run(uses=USES) == {}
    assert rounds.run(uses={**USES, "b3": ["g"]}) == {("b3", "g"): HARD}


@pytest.mark.parametrize("transition", Transition)
def test_other_terms_are_told_in_the_next_round_although_no_limit_moves(transition) -> None:
    rounds = settled_under(transition)
    assert rounds.run({"g": {"throttle": HARD}}, USES) == G_HARD
    for message in rounds.messages:
        assert message.limits[:, 0].tolist() == pytest.approx([50.0])
    assert rounds.run(uses=USES) == {}
    assert rounds.run({"g": {"throttle": SLIDING}}, USES) == dict.fromkeys(G_HARD, SLIDING)
    assert rounds.run({"g": {"throttle": None}}, USES) == dict.fromkeys(G_HARD, "")
    assert all(message.safe_limits is not None for message in rounds.messages)
    assert rounds.run(uses=USES) == {}


B1, B2 = ({name: uses} for name, uses in USES.items())


@pytest.mark.parametrize(
    ("in_sight", "who"), [(B1, ("b2", "g")), ({"b1": ["h"], **B2}, ("b1", "g"))]
)
def test_strict_tells_who_was_out_of_sight_when_terms_changed_as_soon_as_it_is_back(
    in_sight, who
) -> None:
    """Nothing is sent to a stale broker; what is new meanwhile must not wait for a refresh."""
    rounds = settled_under(Transition.STRICT)
    for _ in range(STALE_AFTER + 1):
        rounds.run(uses=in_sight)
    told = rounds.run({"g": {"throttle": HARD}}, in_sight)
    assert told == {pair: text for pair, text in G_HARD.items() if pair != who}
    assert rounds.run(uses=in_sight) == {}
    assert rounds.run(uses=USES) == {who: HARD}
    assert all(message.safe_limits is not None for message in rounds.messages)
    assert rounds.run(uses=USES) == {}


@pytest.mark.parametrize("transition", Transition)
def test_a_long_time_between_two_rounds_tells_nobody_anything_again(transition) -> None:
    """In no round anybody was out of sight: an overloaded job must not be given more to do."""
    rounds = settled_under(transition)
    rounds.seq += STALE_AFTER + 5
    assert rounds.run(uses=USES) == {}


def test_the_same_terms_put_again_are_no_news() -> None:
    rounds = settled(g={"throttle": HARD})
    again = '{"*": {"mode": "hard", "law": "token_bucket"}}'
    assert rounds.run({"g": {"throttle": again}, "h": {"throttle": "{}"}}, USES) == {}


def test_terms_that_cannot_be_read_are_none() -> None:
    rounds = settled(g={"throttle": "no json"})
    assert rounds.run({"g": {"throttle": HARD}}, USES) == G_HARD
    assert rounds.run({"g": {"throttle": '{"*": {"law": "?"}}'}}, USES) == dict.fromkeys(G_HARD, "")


def test_a_broker_that_was_restarted_is_told_again() -> None:
    rounds = settled(g={"throttle": HARD})
    rounds.started_at_ms["b2"] = 500
    # It counts once the reports of its earlier start stay away.
    told = [rounds.run(uses=USES) for _ in range(12)]
    assert [texts for texts in told if texts] == [{("b2", "g"): HARD}]


def test_in_turn_all_terms_are_told_again() -> None:
    every = replace(PROGRAM.step, refresh_rounds=5)
    rounds = Rounds(replace(PROGRAM, step=every))
    rounds.run({"g": {"throttle": HARD}, "h": {}})
    for _ in range(4):
        rounds.run(uses=USES)
    turns = [rounds.run(uses=USES) for _ in range(10)]
    for group in ("g", "h"):
        count = [sum(name == group for _, name in told) for told in turns]
        assert count[:5] == count[5:]
        assert sum(map(bool, count)) == 2
    assert {text for told in turns for (_, name), text in told.items() if name == "g"} == {HARD}


def test_a_group_that_was_deleted_and_made_again_has_what_it_was_made_with() -> None:
    rounds = settled(g={"throttle": HARD})
    rounds.run({"g": None}, USES)
    assert {message.removed_groups for message in rounds.messages} == {("g",)}
    rounds.run(uses=USES)
    assert rounds.run({"g": {}}, USES) == dict.fromkeys(G_HARD, "")


def test_only_who_is_told_limits_is_told_terms() -> None:
    rounds = settled(g={"throttle": HARD, "mode": "shadow"})
    assert rounds.run({"g": {"throttle": SLIDING, "mode": "shadow"}}, USES) == {}
    assert rounds.run({"g": {"throttle": SLIDING}}, USES) == dict.fromkeys(G_HARD, SLIDING)


def test_many_long_texts_go_out_in_messages_that_kafka_takes() -> None:
    names = [f"g{number}" for number in range(4_000)]
    dimensions = ("publish_bytes", "publish_messages", "dispatch_bytes", "dispatch_messages")
    terms = '{"law": "sliding_window", "mode": "hard", "samples": 7}'
    text = "{" + ", ".join(f'"{name}": {terms}' for name in sorted(dimensions)) + "}"
    rounds = Rounds()
    rounds.run({name: {"throttle": text} for name in names})
    told = rounds.run(uses={"b1": names})
    assert told == {("b1", name): text for name in names}
    assert 3 <= len(rounds.messages) <= 5
