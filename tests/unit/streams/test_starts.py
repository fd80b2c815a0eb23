"""The quota job after each kind of end: its next start publishes all limits in force."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import pytest

from quotaplane.arrow import unpack
from quotaplane.errors import ConfigError
from quotaplane.model import Round
from quotaplane.quota.state_codec import dump, load
from quotaplane.replay.player import Player
from quotaplane.replay.recorded import RoundInputs
from quotaplane.streams.quota.job import recorded_settings
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.recorded_program import STATE, TIMER, RecordedProgram
from quotaplane.streams.shard_program import Arrived, Batch, Output
from quotaplane.streams.starts import Starts
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.shard_inputs import START, pack_start
from tests.unit.history.history_cases import NOON_MS
from tests.unit.streams.shard_cases import group_changes, job_settings, packed, usage_report

GROUPS: Final = tuple(f"g{number}" for number in range(12))
BROKERS: Final = ("a", "b")
ALL: Final = {(group, broker) for group in GROUPS for broker in BROKERS}
ROUND_MS: Final = 3_000
TRANSITIONS: Final = ("fast", "strict")


@dataclass
class Logged:
    """A micro-batch in Spark's log."""

    now_ms: int
    arrived: Arrived
    outputs: list[Output] = field(default_factory=list)
    """Those of its first run."""


class Job:
    """The job with its checkpoint: Spark's logs, the state of one shard after each batch, notes."""

    path = "checkpoint"

    def __init__(self, transition: str = "fast") -> None:
        limits = {"transition": transition, "lease_s": 120.0}
        self.settings = job_settings(limits=limits, reports={"interval_s": 5.0}, shards=1)
        self.program = RecordedProgram(quota_program(self.settings, epoch=1), records=True)
        self.batches: list[Logged] = []
        self.states = [self.program.load(None)]
        self.notes: dict[str, str] = {}
        self.now_ms = NOON_MS
        self._sequence = 0
        self.start()

    def read(self, name: str) -> str | None:
        return self.notes.get(name)

    def write(self, name: str, text: str) -> None:
        self.notes[name] = text

    def newest_batch(self) -> int | None:
        return len(self.batches) - 1 if self.batches else None

    def start(self, away_s: float = 0.0) -> None:
        """A process begins, so long after the one before ended."""
        self.now_ms += int(away_s * 1000)
        self._starts = Starts(self)

    def reports(self, *brokers: str, ages_s: float = 0.0) -> Arrived:
        """Reports of brokers that obey the newest round."""
        self._sequence += 1
        made = [
            usage_report(
                broker,
                GROUPS,
                sequence=self._sequence,
                applied=(1, len(self.batches) - 1) if self.batches else None,
            )
            for broker in brokers
        ]
        at_ms = self.now_ms - int(ages_s * 1000)
        return {"reports": packed(*made, at_ms=at_ms, now_ms=self.now_ms)}

    def plan(self, arrived: Arrived | None = None) -> None:
        """Log a batch, by default with a report of each broker."""
        self.now_ms += ROUND_MS
        given = self.reports(*BROKERS) if arrived is None else arrived
        self.batches.append(Logged(self.now_ms, given))

    def run(self, *, commits: bool = True, without_input: bool = False) -> set[tuple[str, str]]:
        """Run the batch that was logged last; returns the limits that it publishes.

        ``without_input``: it does not have what it had before, as an administrator skips that.
        """
        seq, batch = len(self.batches) - 1, self.batches[-1]
        arrived = {} if without_input else batch.arrived
        if not arrived:
            self.states.append(self.states[seq])  # the operator does not run
            return set()
        given = {**arrived, START: [pack_start(self._starts.of_batch(seq))]}
        state, made = self.program.run(self.states[seq], given, Batch(0, seq, batch.now_ms))
        outputs = list(made)
        if batch.outputs:
            assert [(o.kind, o.payload) for o in outputs] == [
                (o.kind, o.payload) for o in batch.outputs
            ]
        batch.outputs = outputs
        if commits:
            self.states.append(load(dump(state)))
        return published(outputs)

    def round(self, arrived: Arrived | None = None) -> set[tuple[str, str]]:
        """Plan and run a batch."""
        self.plan(arrived)
        return self.run()


@cache
def _settled(transition: str) -> Job:
    job = Job(transition)
    job.round({"groups": group_changes(*GROUPS), **job.reports(*BROKERS)})
    while job.states[-1].learning.on:
        job.round()
    assert set().union(*(job.round() for _ in range(12))) == ALL
    assert job.round() < ALL
    return job


def settled(transition: str = "fast") -> Job:
    """A job after its first limits, which are renewed in turn."""
    job = copy(_settled(transition))
    job.batches, job.states, job.notes = [*job.batches], [*job.states], {**job.notes}
    return job


def published(outputs: list[Output]) -> set[tuple[str, str]]:
    rows = [row for each in outputs if each.kind == "messages" for row in each.content.to_pylist()]
    return {(group, row["broker"]) for row in rows for group in decode_limits(row["value"]).groups}


def killed_between_batches(job: Job, away_s: float) -> None:
    job.start(away_s)


def killed_in_a_batch(job: Job, away_s: float) -> None:
    """It may have published, so it repeats what it did, and the next round publishes all."""
    job.plan()
    first = job.run(commits=False)
    job.start(away_s)
    assert job.run() == first < ALL


def killed_in_a_batch_and_again(job: Job, away_s: float) -> None:
    job.plan()
    job.run(commits=False)
    job.start(away_s)
    job.run(commits=False)
    job.start(away_s)
    job.run()


def killed_in_the_first_batch_of_a_start(job: Job, away_s: float) -> None:
    job.start(away_s)
    job.plan()
    assert job.run(commits=False) == ALL
    job.start(away_s)
    assert job.run() == ALL, "it runs again, and nothing of it differs"


def killed_before_its_first_batch(job: Job, away_s: float) -> None:
    job.start(away_s)
    job.start(away_s)


def a_batch_is_skipped(job: Job, away_s: float) -> None:
    job.plan()
    job.start(away_s)
    assert job.run(without_input=True) == set()
    job.start()  # the query starts again after a batch that ran alone


def a_backlog_is_skipped(job: Job, away_s: float) -> None:
    job.now_ms += int(away_s * 1000)
    job.plan({})
    job.start()
    assert job.run() == set()
    job.start()


def killed_before_the_backlog_was_skipped(job: Job, away_s: float) -> None:
    job.now_ms += int(away_s * 1000)
    job.plan({})
    job.start()
    job.start()
    assert job.run() == set()


def the_clock_is_set_back(job: Job, away_s: float) -> None:
    job.start(-away_s)


RESTARTS: Final = (
    killed_between_batches,
    killed_in_a_batch,
    killed_in_a_batch_and_again,
    killed_in_the_first_batch_of_a_start,
    killed_before_its_first_batch,
    a_batch_is_skipped,
    a_backlog_is_skipped,
    killed_before_the_backlog_was_skipped,
    the_clock_is_set_back,
)


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("away_s", [1.0, 81.0])
@pytest.mark.parametrize("restart", RESTARTS, ids=lambda each: each.__name__)
def test_the_first_new_round_after_a_restart_publishes_all_limits(
    restart: Callable[[Job, float], None], away_s: float, transition: str
) -> None:
    job = settled(transition)
    restart(job, away_s)
    assert job.round() == ALL
    assert job.round() < ALL, "only once"
    assert len(json.loads(job.notes["starts.json"])) <= 2


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("away_s", [1.0, 20.0, 81.0, 110.0])
def test_a_broker_whose_reports_come_late_has_its_limits_with_the_first(
    away_s: float, transition: str
) -> None:
    """Under strict nothing is issued to a broker on old reports."""
    job = settled(transition)
    job.start(away_s)
    first = job.round(job.reports("a"))
    late = job.round(job.reports("b"))
    assert {pair for pair in first | late if pair[1] == "a"} >= {(g, "a") for g in GROUPS}
    assert {pair for pair in first | late if pair[1] == "b"} == {(g, "b") for g in GROUPS}


def test_a_shard_without_input_publishes_all_in_its_own_first_round() -> None:
    job = settled()
    job.start(20.0)
    assert job.round({}) == set()
    assert job.round() == ALL


def test_a_new_checkpoint_hands_back_all_limits_and_then_goes_on_in_turn() -> None:
    """Its first round has no limits of its own; in learning mode it adopts what is reported."""
    job = Job()
    assert job.round({"groups": group_changes(*GROUPS)}) == set()
    assert job.round() == ALL
    assert job.round() < ALL


def test_a_state_of_an_earlier_version_does_not_know_of_starts() -> None:
    job = settled()
    blob = dump(job.states[-1])
    assert job.states[-1].start == 0
    job.states[-1] = job.program.load(blob.replace(b"start\0", b"other\0"))
    assert job.states[-1].start == -1
    assert job.round() == ALL


def test_a_replay_has_the_start_and_only_rounds_that_needed_it_have_it() -> None:
    job = settled()
    job.start(20.0)
    job.round()
    job.round()
    rounds = [replayed(job, seq) for seq in range(len(job.batches))]
    with_start = [each.stamp.seq for each in rounds if START in each.arrived[0]]
    assert with_start == [0, len(job.batches) - 2]
    played = list(Player().play(rounds))
    for batch, result in zip(job.batches, played, strict=True):
        recorded = [unpack(o.payload)[0] for o in batch.outputs if o.kind == "limits"]
        assert result.limits.num_rows == sum(table.num_rows for table in recorded)
        assert not result.differing_states
    final = Player()
    list(final.play(rounds))
    after = final._states[0]
    assert dump(after) == dump(job.states[-1])


def replayed(job: Job, seq: int) -> RoundInputs:
    """A batch as the table ``recording`` has it."""
    batch = job.batches[seq]
    found = RoundInputs(Round(1, seq, batch.now_ms), arrived={0: {}})
    if not seq:
        earlier = job.program.program.step.earlier.noted()
        found.settings = {"settings": recorded_settings(job.settings), **earlier}
    (rows,) = (unpack(o.payload)[0] for o in batch.outputs if o.kind == "recording")
    for row in rows.to_pylist():
        if row["kind"] == STATE:
            found.states[0] = row["payload"]
        elif row["kind"] != TIMER:
            found.arrived[0].setdefault(row["kind"], []).append(row["payload"])
    return found


def test_a_damaged_note_is_named() -> None:
    job = Job()
    job.notes["starts.json"] = "["
    with pytest.raises(ConfigError, match=r"checkpoint: starts.json can't be read; delete it"):
        job.start()
