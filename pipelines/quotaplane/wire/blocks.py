"""What both formats are decoded into before it is checked."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from quotaplane.model import IN_FORCE_COLUMNS, RATE_COLUMNS, BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Header:
    """What a report says about itself (see ``events.HEADERS``)."""

    broker: str
    started_at_ms: int
    sequence: int
    window_s: float
    applied_epoch: int = -1
    applied_seq: int = -1
    uses_ids: bool = False


@dataclass(frozen=True)
class Block:
    """Entries of some reports, in the order they have there; n of them.

    ``report`` (n,) is the report's index in the batch, ``ids`` (n,) has ``ids.NO_ID`` for unusable
    names, ``names`` is an Arrow string array or None (given by id); ``rates`` (4, n) per second,
    NaN = unchanged; ``throttled`` (4, n), NaN = unknown, or None. ``flawed`` (n,) marks entries
    with NaN where it means nothing; None = there are none. ``in_force`` (5, n) has the rows
    ``IN_FORCE_COLUMNS``, NaN = not said, or None.
    """

    report: IntArray
    ids: IntArray
    names: pa.Array | None
    rates: FloatArray
    throttled: FloatArray | None = None
    flawed: BoolArray | None = None
    in_force: FloatArray | None = None

    @staticmethod
    def join(blocks: list[Block]) -> Block:
        """All blocks as one; unlike them it always has ``names``, with nulls."""
        if not blocks:
            nothing = np.empty(0, np.int64)
            return Block(nothing, nothing, pa.array([], pa.string()), np.empty((4, 0)))
        names = [
            pa.nulls(len(block.ids), pa.string()) if block.names is None else block.names
            for block in blocks
        ]
        throttled = _joined(blocks, "throttled", len(RATE_COLUMNS))
        in_force = _joined(blocks, "in_force", len(IN_FORCE_COLUMNS))
        flawed = None
        if any(block.flawed is not None for block in blocks):
            flawed = np.concatenate(
                [
                    np.zeros(len(block.ids), bool) if block.flawed is None else block.flawed
                    for block in blocks
                ]
            )
        if len(blocks) == 1:  # nothing to copy
            return replace(blocks[0], names=names[0])
        return Block(
            np.concatenate([block.report for block in blocks]),
            np.concatenate([block.ids for block in blocks]),
            pa.concat_arrays(names),
            np.concatenate([block.rates for block in blocks], axis=1),
            throttled,
            flawed,
            in_force,
        )

    def take(self, chosen: IntArray) -> Block:
        """Only these entries."""
        return Block(
            self.report[chosen],
            self.ids[chosen],
            None if self.names is None else self.names.take(pa.array(chosen)),
            self.rates[:, chosen],
            None if self.throttled is None else self.throttled[:, chosen],
            None if self.flawed is None else self.flawed[chosen],
            None if self.in_force is None else self.in_force[:, chosen],
        )


def _joined(blocks: list[Block], name: str, rows: int) -> FloatArray | None:
    """An array that only some blocks have, NaN for the others; None if none has it."""
    parts: list[FloatArray | None] = [getattr(block, name) for block in blocks]
    if all(part is None for part in parts):
        return None
    joined: FloatArray = np.concatenate(
        [
            np.full((rows, len(block.ids)), np.nan) if part is None else part
            for block, part in zip(blocks, parts, strict=True)
        ],
        axis=1,
    )
    return joined
