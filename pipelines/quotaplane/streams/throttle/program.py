"""The throttle job's program: one ledger for each shard, around ``throttle.step``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from quotaplane.arrow_ipc import pack, unpack
from quotaplane.streams.shard_program import Arrived, Batch, Output
from quotaplane.throttle.entities import EntityStates, begin
from quotaplane.throttle.requests import Bounds
from quotaplane.throttle.step import Decided, decide
from quotaplane.wire.shard_inputs import unpack_groups


@dataclass(frozen=True)
class ThrottleProgram:
    """What runs for each shard of the throttle job.

    It takes packed ``requests`` and changes of ``groups``, and emits the tables of ``Decided`` by
    name, packed.
    """

    bounds: Bounds
    definitions: pa.Table | None = None
    """Those that hold; None: they come as changes."""
    name: str = "ledger"
    has_timer: bool = False

    def load(self, blob: bytes | None) -> EntityStates:
        """A ledger out of its bytes."""
        return begin() if blob is None else EntityStates.from_bytes(blob)

    def dump(self, state: EntityStates) -> bytes:
        """A ledger as bytes."""
        return state.to_bytes()

    def due_ms(self, state: EntityStates) -> int | None:
        """Nothing is done without requests."""
        return None

    def run(
        self, state: EntityStates, arrived: Arrived, batch: Batch
    ) -> tuple[EntityStates, Sequence[Output]]:
        """Change definitions, then answer requests."""
        if arrived.get("groups"):
            state = state.changed(unpack_groups(arrived["groups"]))
        if self.definitions is not None and not state.definitions.equals(self.definitions):
            state = state.defined(self.definitions)
        if not arrived.get("requests"):
            return state, []
        events = pa.concat_tables(
            [table for payload in arrived["requests"] for table in unpack(payload)]
        )
        state, decided = decide(state, events, batch.now_ms, self.bounds)
        return state, outputs_of(decided)


def outputs_of(decided: Decided) -> list[Output]:
    """Each table that is not empty, packed."""
    return [Output(kind, pack(table)) for kind, table in decided._asdict().items() if len(table)]
