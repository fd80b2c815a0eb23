"""What both formats are decoded into before it is checked."""

from __future__ import annotations

from collections.abc import Sequence
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
    names, ``names`` is an Arrow string array or None (given by id); ``rates`` (d, n) per second,
    NaN = unchanged; ``throttled`` (d, n), NaN = unknown, or None. ``flawed`` (n,) marks entries
    with NaN where it means nothing; None = there are none. ``in_force`` (1 + d, n) has the first
    rows of ``IN_FORCE_COLUMNS``, NaN = not said, or None.

    d is all of ``DIMENSIONS``, or the ``BASIC`` first ones where only they are spoken of, as in
    stock reports.
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
        """Blocks of one ``kind`` as one; ``blocks`` is emptied, so that nothing is there twice."""
        parts = [*blocks]
        blocks.clear()
        if len(parts) == 1:  # nothing to copy
            return parts[0]

        def side_by_side(name: str) -> FloatArray | None:
            arrays = [getattr(part, name) for part in parts]
            return None if arrays[0] is None else np.concatenate(arrays, axis=1)

        names = [part.names for part in parts]
        rates = side_by_side("rates")
        assert rates is not None
        return Block(
            np.concatenate([part.report for part in parts]),
            np.concatenate([part.ids for part in parts]),
            None if names[0] is None else pa.concat_arrays(names),
            rates,
            side_by_side("throttled"),
            _flaws(parts),
            side_by_side("in_force"),
        )

    @property
    def kind(self) -> tuple[bool, int, bool, bool]:
        """Which columns it has. Others are not made for it: one report has them all for nothing."""
        named, throttled = self.names is not None, self.throttled is not None
        return named, len(self.rates), throttled, self.in_force is not None

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


def by_kind(blocks: list[Block]) -> list[Block]:
    """The blocks of each kind joined, in order of appearance; ``blocks`` is emptied."""
    kinds: dict[tuple[bool, int, bool, bool], list[Block]] = {}
    for block in blocks:
        kinds.setdefault(block.kind, []).append(block)
    blocks.clear()
    return [Block.join(alike) for alike in kinds.values()]


def _flaws(parts: Sequence[Block]) -> BoolArray | None:
    if all(part.flawed is None for part in parts):
        return None
    flawed: BoolArray = np.concatenate(
        [np.zeros(len(part.ids), bool) if part.flawed is None else part.flawed for part in parts]
    )
    return flawed
