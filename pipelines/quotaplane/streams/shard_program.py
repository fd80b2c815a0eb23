"""What runs in the stateful operator: a program, and for each shard a state of its own. Pure.

A job brings a program; the operator, the sink and the life cycle around it are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

State = TypeVar("State")

Arrived = Mapping[str, Sequence[bytes]]
"""The payloads that came for a shard, by kind."""


class Output(NamedTuple):
    """A row that a program emits: of what ``kind`` it is, and packed tables or JSON."""

    kind: str
    payload: bytes


class Batch(NamedTuple):
    """The micro-batch at hand, for one shard."""

    shard: int
    seq: int
    """Its id; also when it is run again."""
    now_ms: int
    """Its time, as Spark logged it before it ran; also when it is run again."""


class ShardProgram(Protocol[State]):
    """One job's step, by shard."""

    @property
    def name(self) -> str:
        """Of the state in checkpoints: never to be changed."""

    @property
    def has_timer(self) -> bool:
        """Whether it asks to be run when nothing arrives; frozen into checkpoints."""

    def load(self, blob: bytes | None) -> State:
        """A state out of its bytes; None: the shard's first."""

    def dump(self, state: State) -> bytes:
        """A state as bytes."""

    def run(self, state: State, arrived: Arrived, batch: Batch) -> tuple[State, Sequence[Output]]:
        """Take in what arrived: the state afterwards, and what goes out."""

    def due_ms(self, state: State) -> int | None:
        """When the shard must be run even if nothing arrives; None: not by itself."""
