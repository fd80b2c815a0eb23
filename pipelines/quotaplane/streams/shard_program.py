"""The interface of a program that the stateful operator runs, with one state per shard. Pure.

Each job brings a program; the operator, the sink and the life cycle are the same for all jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from quotaplane.arrow import pack

State = TypeVar("State")

Arrived = Mapping[str, Sequence[bytes]]
"""The payloads that arrived for a shard, by kind."""


class Output(NamedTuple):
    """An output of a program: JSON, or a table; its kind may be the name of a history table."""

    kind: str
    content: bytes | pa.Table

    @property
    def payload(self) -> bytes:
        """The content as bytes; a table is packed."""
        return self.content if isinstance(self.content, bytes) else pack(self.content)


class Batch(NamedTuple):
    """The current micro-batch, for one shard."""

    shard: int
    seq: int
    """The batch's id; the same when the batch runs again."""
    now_ms: int
    """The batch's time, which Spark logs before it runs it; the same when it runs again."""


class ShardProgram(Protocol[State]):
    """One job's step for one shard."""

    @property
    def name(self) -> str:
        """The state's name in checkpoints; it must never change."""

    @property
    def has_timer(self) -> bool:
        """Whether the operator sets timers; fixed in checkpoints."""

    def load(self, blob: bytes | None) -> State:
        """Decode a state; None: the shard has no state yet."""

    def dump(self, state: State) -> bytes:
        """Encode a state."""

    def run(self, state: State, arrived: Arrived, batch: Batch) -> tuple[State, Sequence[Output]]:
        """Process the arrived payloads; returns the new state and the outputs."""

    def due_ms(self, state: State) -> int | None:
        """When the shard must run even if nothing arrives; None: never."""
