"""The quota program with a record: snapshots of the leases, and everything that a replay needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from quotaplane.history.table_parts import replacing
from quotaplane.history.tables import LEFT_OUT
from quotaplane.quota.lease_snapshot import lease_snapshot, snapshot_due
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump
from quotaplane.streams.quota.program import QuotaProgram
from quotaplane.streams.shard_program import Arrived, Batch, Output
from quotaplane.wire.shard_inputs import START, unpack_start

STATE: Final = "state"
"""Kind of a row of ``recording`` that has the shard's state before the round."""
TIMER: Final = "timer"
"""Kind of a row without payload: nothing arrived, the shard's timer was due."""
SETTINGS: Final = "settings"
"""Kind of a row that has the job's settings as JSON; it belongs to no shard."""
NO_SHARD: Final = -1
STATE_EVERY_MS: Final = 3_600_000
"""How often a shard's state is recorded; a replay may begin at each."""


@dataclass(frozen=True)
class RecordedProgram:
    """Runs a ``QuotaProgram``, with two more outputs: ``leases`` and ``recording``.

    ``leases`` is a snapshot of the shard for the table of that name. ``recording`` has the payloads
    that arrived as they were, from time to time with the state before the round; it is there if
    ``records``.
    """

    program: QuotaProgram
    records: bool

    @property
    def name(self) -> str:
        """The state's name in checkpoints."""
        return self.program.name

    @property
    def has_timer(self) -> bool:
        """Silent brokers are noticed by a timer."""
        return self.program.has_timer

    def load(self, blob: bytes | None) -> ShardState:
        """Decode a state."""
        return self.program.load(blob)

    def dump(self, state: ShardState) -> bytes:
        """Encode a state."""
        return self.program.dump(state)

    def due_ms(self, state: ShardState) -> int | None:
        """The next time at which a broker of the shard counts as silent."""
        return self.program.due_ms(state)

    def run(
        self, state: ShardState, arrived: Arrived, batch: Batch
    ) -> tuple[ShardState, Sequence[Output]]:
        """Run the program, and add the record."""
        record = []
        if unpack_start(arrived.get(START, ())) <= state.start:  # the shard knows it
            arrived = {kind: arrived[kind] for kind in arrived if kind != START}
        if self.records:
            state_due = batch.now_ms - state.recorded_at_ms >= STATE_EVERY_MS
            blob = dump(state) if state_due else None
            record.append(Output("recording", recorded_inputs(batch.shard, arrived, blob)))
            if state_due:
                state = replace(state, recorded_at_ms=batch.now_ms)
        state, outputs = self.program.run(state, arrived, batch)
        if snapshot_due(state, batch.now_ms):
            state = replace(state, snapshot_at_ms=batch.now_ms)
            record.append(Output("leases", self._snapshot(state, batch.shard)))
        return state, [*outputs, *record]

    def _snapshot(self, state: ShardState, shard: int) -> pa.Table:
        rows = lease_snapshot(state, self.program.step.lease_ms)
        rows = rows.append_column("shard", pa.repeat(pa.scalar(shard, pa.int64()), len(rows)))
        # Also where there is no row: the earlier ones are to go.
        return replacing(rows, [shard])


def recorded_inputs(shard: int, arrived: Arrived, state: bytes | None) -> pa.Table:
    """Rows of ``recording`` for the payloads of a round of one shard, and for its state before."""
    kinds = sorted(arrived.keys() - {LEFT_OUT.name})  # no step sees what was left out
    payloads = [(kind, payload) for kind in kinds for payload in arrived[kind]]
    if not payloads:
        payloads = [(TIMER, b"")]
    if state is not None:
        payloads.append((STATE, state))
    return recording_rows(shard, payloads)


def recording_rows(shard: int, payloads: Sequence[tuple[str, bytes]]) -> pa.Table:
    """Rows of the table ``recording``, without the columns of the round."""
    kinds, values = zip(*payloads, strict=True)
    return pa.table(
        {
            "shard": pa.array([shard] * len(kinds), pa.int64()),
            "kind": pa.array(kinds, pa.string()),
            "payload": pa.array(values, pa.binary()),
        }
    )
