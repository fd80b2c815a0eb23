"""What both formats are decoded into before it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray


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
    names, ``names`` is an Arrow string array or None (given by id); ``rates`` (d, n) per second,
    NaN = unchanged; ``throttled`` (d, n), NaN = unknown, or None. ``flawed`` (n,) marks entries
    with NaN where it means nothing; None = there are none. ``in_force`` (1 + d, n) has the first
    rows of ``IN_FORCE_COLUMNS``, NaN = not said, or None.

    d is 7, or 4 where only the first four of ``DIMENSIONS`` are spoken of, as in stock reports.
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
            return Block(nothing, nothing, pa.array([], pa.string()), np.empty((BASIC, 0)))
        names = [
            pa.nulls(len(block.ids), pa.string()) if block.names is None else block.names
            for block in blocks
        ]
        if len(blocks) == 1:  # nothing to copy
            return replace(blocks[0], names=names[0])
        flawed = None
        if any(block.flawed is not None for block in blocks):
            flawed = np.concatenate(
                [
                    np.zeros(len(block.ids), bool) if block.flawed is None else block.flawed
                    for block in blocks
                ]
            )
        return Block(
            np.concatenate([block.report for block in blocks]),
            np.concatenate([block.ids for block in blocks]),
            pa.concat_arrays(names),
            _side_by_side([block.rates for block in blocks], blocks),
            _joined(blocks, "throttled"),
            flawed,
            _joined(blocks, "in_force"),
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


def _joined(blocks: list[Block], name: str) -> FloatArray | None:
    """An array that only some blocks have; None if none has it."""
    parts: list[FloatArray | None] = [getattr(block, name) for block in blocks]
    return None if all(part is None for part in parts) else _side_by_side(parts, blocks)


def _side_by_side(parts: Sequence[FloatArray | None], blocks: Sequence[Block]) -> FloatArray:
    """One array of each block's, NaN in the rows that it does not have."""
    rows = max(len(part) for part in parts if part is not None)
    whole = []
    for part, block in zip(parts, blocks, strict=True):
        if part is None or len(part) < rows:
            wide = np.full((rows, len(block.ids)), np.nan)
            if part is not None:
                wide[: len(part)] = part
            part = wide
        whole.append(part)
    return np.concatenate(whole, axis=1)
