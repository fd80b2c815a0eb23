"""One process of the quota job: the real ShardOperator, program, sink and finisher, batch by batch.

Spark's part is here: the log of offsets, the stored states, the commit. At each labelled point of a
batch (``point``) the process may end as if killed, or be frozen while others go on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from quotaplane.arrow import pack
from quotaplane.errors import DeposedError, TransportError
from quotaplane.model import Round
from quotaplane.streams import operator
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.operator import ShardOperator
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.quota import job as quota_job
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.sink import BatchSink
from quotaplane.streams.starts import Starts
from quotaplane.transport.base import Message
from quotaplane.wire.shard_inputs import START, pack_groups, pack_reports, pack_start
from tests.simulation.live_reports import LiveReports
from tests.simulation.storage import (
    MemoryHistory,
    MemoryLeadership,
    Planned,
    StoredCheckpoint,
    StoredReport,
    StoredState,
)
from tests.simulation.virtual_time import Clock
from tests.unit.wire.wire_cases import decode_fresh


class KilledError(BaseException):
    """The process ends here. No ``Exception``: no code of the job may catch it."""


class JobProcess:
    """One process; it is made anew for each start.

    Args:
        world: everything outside of the process.
        checkpoint: the folder that it is started with.
        clock: of its host.
        name: for the trace.
    """

    def __init__(self, world: Any, checkpoint: StoredCheckpoint, clock: Clock, name: str) -> None:
        self.world, self.checkpoint, self.clock, self.name = world, checkpoint, clock, name
        self.settings = world.scenario.settings_of(fast=checkpoint.fast)

    def start(self) -> None:
        """Do what ``StreamJob`` does before its query runs.

        Raises:
            QuotaplaneError: the job does not start.
        """
        world, checkpoint = self.world, self.checkpoint
        self.point("start")
        spec = QuotaSpec(self.settings)
        spec.__dict__["_earlier"] = world.history.earlier(self.clock.now_ms())
        spec.__dict__["leadership"] = MemoryLeadership(world.leaders, self.name, checkpoint.name)
        if checkpoint.epoch < 0:
            new_id = f"{checkpoint.name}.{self.name}"
            with patch.object(quota_job, "time", SimpleNamespace(time=self._now_s)):
                note = spec.checkpoint_note
                epoch = spec.new_epoch(new_id)
            self.point("claimed with a new checkpoint")
            if checkpoint.epoch >= 0:  # as CheckpointFolder.open
                raise DeposedError(f"{checkpoint.name}: another process started in it meanwhile")
            checkpoint.id, checkpoint.epoch = new_id, epoch
            checkpoint.note = note
        spec.accept(checkpoint)  # type: ignore[arg-type]
        spec.leadership.claim(checkpoint.id, checkpoint.epoch)
        world.invariants.job_started(self)
        self.point("claimed")
        self._starts = Starts(checkpoint)
        program = spec.program(checkpoint.epoch)
        shards = self.settings.shards
        self._watched = [_Watched(program) for _ in range(shards)]
        self._operators = [ShardOperator(each, shards) for each in self._watched]
        self._keys = keys_of_shards(shards).tolist()
        history = MemoryHistory(world.history, checkpoint.id, self.point)
        # Nothing is left out here, so no recorder reads again.
        folder: Any = SimpleNamespace(positions=lambda seq: {}, reports_between=None)
        self._sink = BatchSink(
            spec.finisher(folder),
            history,
            self,  # type: ignore[arg-type]
            lambda seq: checkpoint.offsets[seq].now_ms,
            checkpoint.epoch,
            JobLines.silent(spec.status()),
            still_leads=lambda: self._still_leads(spec.leadership.check),
            sync_input=self._sync_input,
        )
        self._program = program
        self._live: LiveReports | None = None
        if world.scenario.spools:
            now_ms, topic = self.clock.now_ms, world.reports
            self._live = LiveReports(checkpoint.spool, topic, now_ms, self.point)
        self._next: int | None = None

    def _now_s(self) -> float:
        return self.clock.now_ms() / 1000

    def point(self, label: str) -> None:
        """A labelled point: the process may be killed or frozen here."""
        self.world.at_point(self, label)

    def _still_leads(self, check: Callable[[], None]) -> None:
        self.point("decided")
        check()
        self.checkpoint.led.add(self._seq)
        self.world.invariants.leads(self)
        self.point("leads")

    def _sync_input(self, seq: int) -> None:
        self.checkpoint.synced = max(self.checkpoint.synced, seq + 1)

    def run_batch(self) -> None:
        """Run the next batch, or the one that was not committed.

        Raises:
            KilledError: the process was killed.
            QuotaplaneError: the job ends.
        """
        checkpoint = self.checkpoint
        is_first = self._next is None
        # As Spark: a process reads the log of offsets when it starts, and then counts by itself.
        self._seq = seq = checkpoint.committed if is_first or not self._live else self._next
        self._next = seq + 1
        # A frozen process has loaded its states: another one may delete the files meanwhile.
        self._before = dict(checkpoint.states.get(seq - 1, {}))
        again = len(checkpoint.offsets) > seq and (is_first or not self._live)
        if not again:
            self._plan(seq)
        self.point("planned")
        outputs = SimpleNamespace(toArrow=lambda: self._outputs(seq, again=again))
        self._sink(outputs, seq)  # type: ignore[arg-type]
        self.point("published")
        checkpoint.committed = max(checkpoint.committed, seq + 1)
        for old in [each for each in checkpoint.states if each < seq - 1]:
            del checkpoint.states[old]
        self.world.invariants.batch_done(self, seq, checkpoint.offsets[seq])
        self.point("committed")

    def _plan(self, seq: int) -> None:
        """Log what the next batch reads, as Spark does.

        Raises:
            DeposedError: another process has logged a batch of this number.
        """
        world, offsets = self.world, self.checkpoint.offsets
        end = None if self._live is None else self._live.plan(self._begin_of(seq).live)
        if len(offsets) != seq:
            raise DeposedError(f"batch {seq} was planned by another process")
        reports, changes = len(world.reports), len(world.groups.changes)
        offsets.append(Planned(self.clock.now_ms(), reports, changes, end))

    def _outputs(self, seq: int, *, again: bool) -> pa.Table:
        """Run the stateful operator of every shard; return the rows of all."""
        planned = self.checkpoint.offsets[seq]
        arrived = self._arrived(seq, planned, again=again)
        start = self._starts.of_batch(seq)
        inputs = {START: [pack_start(start)]}
        # One that was deposed may have planned this batch after another process noted its start.
        # It published nothing of it.
        alike = self.checkpoint.handed.get(seq) == start or seq in self.checkpoint.led
        self.checkpoint.handed[seq] = start
        rows: list[Any] = []
        states = self.checkpoint.states
        # Once another process committed the batch, nobody reads what this one writes.
        after = states.setdefault(seq, {}) if self.checkpoint.committed <= seq else {}
        first_time = dict(after)
        for shard, shard_operator in enumerate(self._operators):
            handle = _Handle(self._before.get(shard))
            shard_operator.init(handle)  # type: ignore[arg-type]
            key = (self._keys[shard],)
            if handle.timer_is_due(planned.now_ms) or arrived[shard]:
                # As Spark says.
                with patch.multiple(operator, _batch_id=lambda: seq, batch_inputs=lambda: inputs):
                    rows.append(shard_operator._run(key, arrived[shard], planned.now_ms))
                self.world.invariants.shard_ran(self, shard, planned)
            after[shard] = handle.stored()
            if self.world.scenario.repeats and shard in first_time and alike:
                self.world.invariants.ran_again(self, seq, first_time[shard], after[shard])
            self.point("amid the operator")
        kinds = [kind for frame in rows for kind in frame["kind"]]
        payloads = [payload for frame in rows for payload in frame["payload"]]
        return pa.table(
            {"kind": pa.array(kinds, pa.string()), "payload": pa.array(payloads, pa.binary())}
        )

    def _arrived(self, seq: int, planned: Planned, *, again: bool) -> list[dict[str, list[bytes]]]:
        """The payloads of a batch, by shard and kind."""
        world, shards = self.world, self.settings.shards
        begin = self._begin_of(seq)
        arrived: list[dict[str, list[bytes]]] = [defaultdict(list) for _ in range(shards)]
        reports = world.reports[begin.reports : planned.reports]
        positions = [f"reports/0@{at}" for at in range(begin.reports, planned.reports)]
        if self._live is not None:
            reports, positions = self._live_reports(seq, begin, planned, again=again)
        elif again and not world.scenario.persistent and reports:
            kept = [at for at in range(len(reports)) if world.rng.random() < 0.5]
            reports = [reports[at] for at in kept]
            positions = [positions[at] for at in kept]
        if reports:
            decoded = decode_fresh(
                [report.value for report in reports],
                np.array([report.published_at_ms for report in reports], np.int64),
                positions,
                now_ms=planned.now_ms,
                reports=self.settings.reports,
                oldest_s=self.settings.limits.lease_s,
            )
            world.invariants.accounts.decoded(self, seq, planned, decoded)
            for shard, payload in pack_reports(decoded, shards):
                arrived[shard]["reports"].append(payload)
            if decoded.rejected.num_rows:
                arrived[0]["rejected"].append(pack(decoded.rejected))
        changes = world.groups.feed(begin.changes, planned.changes)
        if changes is not None:
            for shard, payload in pack_groups(changes, shards):
                arrived[shard]["groups"].append(payload)
        return arrived

    def _live_reports(
        self, seq: int, begin: Planned, planned: Planned, *, again: bool
    ) -> tuple[list[StoredReport], list[str]]:
        """The reports of a batch, and their positions."""
        assert self._live is not None
        assert planned.live is not None
        try:
            read = self._live.read(begin.live, planned.live, again=again)
        except TransportError as error:
            text = str(error).replace(self.checkpoint.spool, "spool")
            self.world.invariants.fail(f"again: {self.name} can't read batch {seq}: {text}")
        return [StoredReport(value, at_ms) for _, value, at_ms in read], [each[0] for each in read]

    def publish(self, messages: Sequence[Message]) -> None:
        """``Transport.publish``: messages go to the topic one by one."""
        self.point("before the messages")
        now_ms = self.checkpoint.offsets[self._seq].now_ms
        stamp = Round(self.checkpoint.epoch, self._seq, now_ms)
        for message in messages:
            self.point("amid the messages")
            self.world.publish(self, stamp, message)

    def _begin_of(self, seq: int) -> Planned:
        return self.checkpoint.offsets[seq - 1] if seq else self.checkpoint.begin

    def changes_of(self, seq: int) -> tuple[int, int]:
        """Which changes of groups a batch read: from, to."""
        return self._begin_of(seq).changes, self.checkpoint.offsets[seq].changes

    def state_of(self, shard: int) -> Any:
        """The state of a shard after the last committed batch; None: it has none yet."""
        return self._loaded(self.checkpoint.states.get(self.checkpoint.committed - 1, {}), shard)

    def state_after(self, shard: int) -> Any:
        """The state of a shard after the batch that this process ran last; None: it has none."""
        watched = self._watched[shard]
        if watched.state is None:
            watched.state = self._loaded(self._before, shard)
        return watched.state

    def states_before(self) -> list[Any]:
        """The states with which the batch began that this process ran last."""
        loaded = [self._loaded(self._before, shard) for shard in range(self.settings.shards)]
        return [state for state in loaded if state is not None]

    def _loaded(self, states: dict[int, StoredState], shard: int) -> Any:
        stored = states.get(shard)
        if stored is None or not stored.elements:
            return None
        return self._program.load(stored.elements[0][0])


class _Watched:
    """A shard's program that also keeps the last state as it was before it was encoded."""

    def __init__(self, program: Any) -> None:
        self._program = program
        self.state: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def dump(self, state: Any) -> bytes:
        """Encode a state."""
        self.state = state
        blob: bytes = self._program.dump(state)
        return blob


class _Handle:
    """Stand-in for Spark's handle of a stateful operator: its list state, and timers."""

    def __init__(self, before: StoredState | None) -> None:
        self._elements = () if before is None else before.elements
        self._timer_ms = None if before is None else before.timer_ms

    def getListState(self, name: str, schema: str) -> _Handle:  # noqa: N802 (Spark's name)
        return self

    def get(self) -> Iterator[tuple[bytes]]:
        return iter(self._elements)

    def put(self, elements: list[tuple[bytes]]) -> None:
        self._elements = tuple(elements)

    def registerTimer(self, at_ms: int) -> None:  # noqa: N802 (Spark's name)
        self._timer_ms = at_ms

    def deleteTimer(self, at_ms: int) -> None:  # noqa: N802 (Spark's name)
        if self._timer_ms == at_ms:
            self._timer_ms = None

    def timer_is_due(self, now_ms: int) -> bool:
        """Whether the timer fires in a batch of this time; then it is gone."""
        if self._timer_ms is None or self._timer_ms > now_ms:
            return False
        self._timer_ms = None
        return True

    def stored(self) -> StoredState:
        return StoredState(self._elements, self._timer_ms)
