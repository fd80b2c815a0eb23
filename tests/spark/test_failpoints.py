"""A job that is cut off at each step of a micro-batch goes on as if it had not been.

Each case ends the query at one named step by an exception, starts the job again on its checkpoint,
and compares what is left with a job that nothing interrupted: every round is in the history once
with the same rows, brokers have the same limits, and at no time do limits in force exceed the
quota. ``test_crash`` does it with ``kill -9``, at moments that nobody chooses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from quotaplane.history.tables import APPENDED as APPENDED_TABLES
from quotaplane.history.tables import LEASES, RECORDING, ROUND_TIMES
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.quota.state import ShardState
from quotaplane.replay import player
from quotaplane.replay.verify import Verified, verify
from quotaplane.settings import Settings
from quotaplane.sim.broker_fleet import BrokerFleet, BrokerSpec
from quotaplane.streams import sink
from quotaplane.streams.job import prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.program import QuotaProgram, quota_program
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.streams.shard_program import Arrived, Batch
from quotaplane.streams.sink import BatchSink
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import Message
from quotaplane.transport.delta import DeltaTopics
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.signatures import SigningKeys
from tests.contract.rigs import limits_of
from tests.job import history_table, put_quotas, settings_in
from tests.spark.loops import CutOffError, cut_off, running
from tests.waiting import wait_beside

BROKERS = ("a", "b", "c")
QUOTAS = {"one": 90.0, "two": 120.0, "three": 60.0}
SHARDS = 2
APPENDED = tuple(table.name for table in APPENDED_TABLES)
EVER_S = 200_000
SIGNING = {"keys": {"a": "0123456789abcdef0123456789abcdef"}, "sign_with": "a"}


# --- the steps at which a job is cut off ---------------------------------------------------------

Patch = Callable[[pytest.MonkeyPatch, Path], None]


def at(owner: Any, name: str, *, instead: bool = False) -> Patch:
    """After a function has run, or instead of it."""
    return lambda patch, folder: cut_off(patch, owner, name, instead=instead)


def amid_the_operator(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """One shard's state is written, the other's is not: a task failed."""
    (folder / "cut-off").touch()  # the operator runs in another process


def before_table(name: str) -> Patch:
    def between_tables(patch: pytest.MonkeyPatch, folder: Path) -> None:
        append = HistoryWriter.append

        def cut(self: HistoryWriter, table: str, *args: Any, **options: Any) -> bool:
            if table == name:
                raise CutOffError
            return append(self, table, *args, **options)

        patch.setattr(HistoryWriter, "append", cut)

    return between_tables


def amid_the_messages(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Some brokers have their new limits: a topic of Kafka or Pulsar takes messages one by one."""
    publish = DeltaTopics.publish

    def cut(self: DeltaTopics, messages: list[Message]) -> None:
        publish(self, messages[: len(messages) // 2])
        raise CutOffError

    patch.setattr(DeltaTopics, "publish", cut)


AFTER_THE_OPERATOR = at(sink, "_collected")
"""All states are written, and nothing of the outputs."""
CASES = {
    # Spark logged what the batch reads; nothing of it was read.
    "before the batch": [at(BatchSink, "__call__", instead=True)],
    "amid the operator": [amid_the_operator],
    "after the operator": [AFTER_THE_OPERATOR],
    "without limits in the history": [before_table("limits")],
    "without the round's row": [before_table("rounds")],
    # The round is in the history, and no broker knows of it.
    "before the messages": [at(HistoryWriter, "append_round")],
    "amid the messages": [amid_the_messages],
    # All is done but Spark's commit.
    "before the commit": [at(BatchSink, "__call__")],
    "twice": [amid_the_messages, AFTER_THE_OPERATOR],
}

QUICK = "without limits in the history"
"""The case of ``make test``; the simulation has all of them, with a job that runs without Spark."""


# --- the job, and brokers that obey it -----------------------------------------------------------


@dataclass(frozen=True)
class Program(QuotaProgram):
    """The quota job's, which fails for the second shard while a file says so."""

    cut_off: Path = Path()

    def run(self, state: ShardState, arrived: Arrived, batch: Batch) -> tuple[ShardState, Any]:
        if batch.shard == SHARDS - 1 and self.cut_off.exists():
            raise CutOffError
        return super().run(state, arrived, batch)


class Spec(QuotaSpec):
    """The quota job where no other job ever gave limits: there is nothing to learn.

    Args:
        settings: of the job.
        tasks_write: tasks write all tables that they may write; else the driver does.
    """

    def __init__(self, settings: Settings, *, tasks_write: bool = False) -> None:
        super().__init__(settings)
        if tasks_write:
            self.least_bytes_of_tasks = 0

    def program(self, epoch: int) -> RecordedProgram:
        found = super().program(epoch)
        cut_off = Path(self.settings.checkpoint).with_name("cut-off")
        inner = without_learning(found.program)
        program = Program(inner.step, epoch, cut_off=cut_off)
        return replace(found, program=program)


def without_learning(program: QuotaProgram) -> QuotaProgram:
    return replace(program, step=replace(program.step, learns=False))


class Loop:
    """A job under strict limits, round by round, and brokers whose demand moves each round."""

    def __init__(self, spark: SparkSession, folder: Path, *, tasks_write: bool) -> None:
        self.folder, self._spark, self._tasks_write = folder, spark, tasks_write
        # A round has all that was sent at once.
        topics = {"kind": "delta", "path": str(folder / "topics"), "max_files_per_trigger": 1}
        lease = {"lease_s": 20 * EVER_S, "refresh_rounds": 4}
        self.settings = settings_in(
            folder,
            topics,
            shards=SHARDS,
            trigger={"interval_s": EVER_S},  # a start runs one batch
            # Nobody falls silent, and no lease ends, however long a round takes.
            reports={"interval_s": 3600},
            limits={**lease, "transition": "strict", "signing": SIGNING},
        )
        put_quotas(self.settings, **QUOTAS)
        self._transport = prepare(self._spec())
        self._keys = SigningKeys.of(self.settings.limits.signing)
        self._link = open_broker_link(self.settings.transport, limits_from="earliest")
        specs = tuple(BrokerSpec(name) for name in BROKERS)
        self._brokers = BrokerFleet(specs, tuple(QUOTAS), strict=True)
        self.rounds = 0
        self.epochs: set[int] = set()
        self.told: dict[int, dict[str, Any]] = {}
        """Limits that each round published to brokers, and those in force afterwards."""
        self._values: dict[tuple[str, int], set[bytes]] = {}
        self.run_round()

    def _spec(self) -> Spec:
        return Spec(self.settings, tasks_write=self._tasks_write)

    def _send_reports(self) -> None:
        """Send the brokers' reports before the next round."""
        demand = np.zeros((len(BROKERS), len(QUOTAS), len(DIMENSIONS)))
        demand[..., 0] = np.random.default_rng([7, self.rounds]).choice(
            [0.0, 10.0, 40.0, 200.0], demand.shape[:2]
        )
        now_ms = int(time.time() * 1000)
        usage = self._brokers.use(demand, now_ms)
        self._link.send_reports(self._brokers.reports(usage, demand, now_ms))

    def _run_job(self, until: Callable[[], object] = lambda: False) -> None:
        """A start, which runs one batch; more run only where something is left to do."""
        with running(self._spark, self._spec(), self._transport) as job:
            self.epochs.add(job.epoch)
            wait_beside(job, until)

    def _deliver_limits(self) -> None:
        """Brokers take in what was published."""
        for broker, value in limits_of(self._link):
            update = decode_limits(value, self._keys)
            limits = dict(zip(update.groups, update.limits.tolist(), strict=True))
            # A broker has a message of each shard.
            self.told.setdefault(update.seq, {}).setdefault(broker, {}).update(limits)
            # Sent again, a message is the same again.
            key = f"{broker} {sorted(limits)}"
            self._values.setdefault((key, update.seq), set()).add(value)
            assert len(self._values[key, update.seq]) == 1
            self._brokers.receive([value])
            total = self.in_force().sum(axis=0)
            assert (total <= np.array(list(QUOTAS.values())) * (1 + 1e-6)).all(), total

    def in_force(self) -> FloatArray:
        """(brokers, groups): what each may publish."""
        return self._brokers.limits(int(time.time() * 1000))[..., 0]

    def run_round(self, *steps: Patch) -> None:
        """Reports come in and limits go out; before, the job is cut off at each of the steps."""
        self._send_reports()
        for step in steps:
            with pytest.MonkeyPatch.context() as patch:
                step(patch, self.folder)
                with pytest.raises(StreamingQueryException, match="CutOffError"):
                    self._run_job()
            (self.folder / "cut-off").unlink(missing_ok=True)
            self._deliver_limits()
        commit = self.folder / "checkpoint" / "commits" / str(self.rounds)
        assert not commit.exists()
        self._run_job(until=commit.exists)
        self._deliver_limits()
        self.told.setdefault(self.rounds, {})["in force"] = self.in_force().tolist()
        self.rounds += 1

    def rows(self, table: str, rounds: int) -> list[tuple[Any, ...]]:
        """A table's rows of the first rounds, without wall-clock times and places in the topic."""
        found = history_table(self.settings, table)
        left_out = {"epoch", "date", "positions", "position", *ROUND_TIMES}
        names = [
            field.name
            for field in found.schema
            if field.name not in left_out and not pa.types.is_timestamp(field.type)
        ]
        kept = found.select(names)
        rows = [tuple(row.values()) for row in kept.to_pylist() if row["seq"] < rounds]
        return sorted(rows, key=repr)


@pytest.fixture(scope="module")
def calm(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """A job that is never cut off; a case lets it run as many rounds as the other has."""
    return Loop(spark, tmp_path_factory.mktemp("calm"), tasks_write=False)


@pytest.fixture(scope="module")
def sound() -> list[Loop]:
    """The job that is cut off in one case after the other; empty after a case that failed."""
    return []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(steps, id=name, marks=() if name == QUICK else pytest.mark.nightly)
        for name, steps in CASES.items()
    ],
)
def test_a_job_that_is_cut_off_goes_on_as_if_it_were_not(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    calm: Loop,
    sound: list[Loop],
    steps: list[Patch],
) -> None:
    if not sound:
        sound.append(Loop(spark, tmp_path_factory.mktemp("cut-off"), tasks_write=True))
    loop = sound.pop()
    loop.run_round(*steps)
    while calm.rounds < loop.rounds:
        calm.run_round()
    for seq in range(loop.rounds):
        assert loop.told[seq] == calm.told[seq], seq
    for table in set(APPENDED) - {LEASES.name, RECORDING.name}:
        found, expected = (each.rows(table, loop.rounds) for each in (loop, calm))
        assert found == expected, table
    rounds = history_table(loop.settings, "rounds")
    assert sorted(rounds["seq"].to_pylist()) == list(range(loop.rounds))
    assert set(rounds["epoch"].to_pylist()) == loop.epochs
    assert len(loop.epochs) == 1
    # What was recorded gives the same limits again, although some of it ran twice.
    now, verified = datetime.now(timezone.utc), Verified()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(player, "quota_program", lambda *a: without_learning(quota_program(*a)))
        found = list(verify(loop.settings.history, now - timedelta(days=1), now, verified))
    assert found == []
    assert verified.rounds == loop.rounds
    sound.append(loop)
