"""What both formats are decoded into before it is checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, FloatArray, IntArray


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
    with NaN where it means nothing; None = there are none.
    """

    report: IntArray
    ids: IntArray
    names: pa.Array | None
    rates: FloatArray
    throttled: FloatArray | None = None
    flawed: BoolArray | None = None

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
        throttled = None
        if any(block.throttled is not None for block in blocks):
            throttled = np.concatenate(
                [
                    np.full(block.rates.shape, np.nan)
                    if block.throttled is None
                    else block.throttled
                    for block in blocks
                ],
                axis=1,
            )
        flawed = None
        if any(block.flawed is not None for block in blocks):
            flawed = np.concatenate(
                [
                    np.zeros(len(block.ids), bool) if block.flawed is None else block.flawed
                    for block in blocks
                ]
            )
        if len(blocks) == 1:  # nothing to copy
            return Block(
                blocks[0].report, blocks[0].ids, names[0], blocks[0].rates, throttled, flawed
            )
        return Block(
            np.concatenate([block.report for block in blocks]),
            np.concatenate([block.ids for block in blocks]),
            pa.concat_arrays(names),
            np.concatenate([block.rates for block in blocks], axis=1),
            throttled,
            flawed,
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
        )
