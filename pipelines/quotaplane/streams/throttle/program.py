"""The throttle job's program: the states of each shard's entities, around ``throttle.step``."""

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
    """Runs the throttle step for each shard.

    Inputs: packed ``requests`` and changes of ``groups``. Outputs: the tables of ``Decided``,
    packed, by name.
    """

    bounds: Bounds
    definitions: pa.Table | None = None
    """Fixed definitions; None: they arrive as changes."""
    name: str = "ledger"
    has_timer: bool = False

    def load(self, blob: bytes | None) -> EntityStates:
        """Decode the entities' states."""
        return begin() if blob is None else EntityStates.from_bytes(blob)

    def dump(self, state: EntityStates) -> bytes:
        """Encode the entities' states."""
        return state.to_bytes()

    def due_ms(self, state: EntityStates) -> int | None:
        """Never: nothing happens without requests."""
        return None

    def run(
        self, state: EntityStates, arrived: Arrived, batch: Batch
    ) -> tuple[EntityStates, Sequence[Output]]:
        """Apply changes of definitions, then answer requests."""
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
    """The non-empty tables, packed."""
    return [Output(kind, pack(table)) for kind, table in decided._asdict().items() if len(table)]
