"""The decoded but unchecked form of reports in both formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Header:
    """A report's header fields (see ``shard_inputs.HEADERS``)."""

    broker: str
    started_at_ms: int
    sequence: int
    window_s: float
    applied_epoch: int = -1
    applied_seq: int = -1
    uses_ids: bool = False
    observed: bool = False
    named_every: int = 0


@dataclass(frozen=True)
class Block:
    """n entries of some reports, in the reports' order.

    d is all of ``DIMENSIONS``, or the ``BASIC`` first ones if only these are reported, as in stock
    reports.
    """

    report: IntArray
    """(n,) index of the entry's report in the batch."""
    ids: IntArray
    """(n,) group ids; ``ids.NO_ID`` for unusable names, and before names were looked up."""
    names: pa.Array | None
    """(n,) group names; None if the reports have ids instead."""
    rates: FloatArray
    """(d, n) per second; NaN: unchanged."""
    throttled: FloatArray | None = None
    """(d, n) per second; NaN: not known; None: not reported."""
    flawed: BoolArray | None = None
    """(n,) the entry has a NaN where it has no meaning; None: no entry has."""
    in_force: FloatArray | None = None
    """(1 + d, n) first rows of ``IN_FORCE_COLUMNS``; NaN: not reported; None: no entry has it."""
    counters: FloatArray | None = None
    """(c, n) first rows of ``COUNTER_COLUMNS``; NaN: not counted; None: no entry has it."""

    @staticmethod
    def join(blocks: list[Block]) -> Block:
        """Join blocks of one ``kind``; ``blocks`` is emptied, so that memory is freed."""
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
            side_by_side("counters"),
        )

    @property
    def kind(self) -> tuple[int, ...]:
        """Which columns it has; only blocks with the same columns are joined, to save memory."""
        optional = (self.names, self.throttled, self.in_force, self.counters)
        return len(self.rates), *(column is not None for column in optional)

    def take(self, chosen: IntArray) -> Block:
        """The block with only these entries."""
        return Block(
            self.report[chosen],
            self.ids[chosen],
            None if self.names is None else self.names.take(pa.array(chosen)),
            self.rates[:, chosen],
            None if self.throttled is None else self.throttled[:, chosen],
            None if self.flawed is None else self.flawed[chosen],
            None if self.in_force is None else self.in_force[:, chosen],
            None if self.counters is None else self.counters[:, chosen],
        )


def by_kind(blocks: list[Block]) -> list[Block]:
    """One block per kind, in order of first appearance; ``blocks`` is emptied."""
    kinds: dict[tuple[int, ...], list[Block]] = {}
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
