"""Which decoded entries can't be used, and which are there twice."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from quotaplane.model import RATE_COLUMNS, THROTTLED_COLUMNS, IntArray
from quotaplane.wire.blocks import Block
from quotaplane.wire.ids import NO_ID
from quotaplane.wire.reasons import ABSURD, BAD_GROUP, NEGATIVE, NOT_FINITE, shown

_ORDER: Final = ("", ABSURD, NOT_FINITE, NEGATIVE, BAD_GROUP)
"""What is wrong with an entry, as a code (its index here); the worst one counts."""

_MOST_SHOWN: Final = 5
_ODD: Final = 0x9E3779B97F4A7C15


def bad_values(block: Block, max_rate_per_s: float) -> npt.NDArray[np.uint8] | None:
    """For each entry 0 or the code of what is wrong with it; None when all are usable."""
    codes = np.zeros(len(block.ids), np.uint8)
    if not len(codes):
        return None
    # One pass that says "all well", which is how it nearly always is. NaN compares false.
    suspect = block.ids == NO_ID
    for rates in (block.rates, block.throttled):
        if rates is not None:
            suspect |= ((rates < 0) | (rates > max_rate_per_s)).any(axis=0)
    if block.flawed is not None:
        suspect |= block.flawed
    if not suspect.any():
        return None
    at = np.flatnonzero(suspect)
    codes[at] = _ORDER.index(ABSURD)
    part = block.rates[:, at]
    if block.throttled is not None:
        part = np.concatenate([part, block.throttled[:, at]])
    infinite = np.isinf(part).any(axis=0)
    if block.flawed is not None:
        infinite |= block.flawed[at]
    codes[at[infinite]] = _ORDER.index(NOT_FINITE)
    codes[at[(part < 0).any(axis=0)]] = _ORDER.index(NEGATIVE)
    codes[at[block.ids[at] == NO_ID]] = _ORDER.index(BAD_GROUP)
    return codes


def describe(
    block: Block, entries: IntArray, codes: npt.NDArray[np.uint8], size: int, most: float
) -> tuple[str, str]:
    """The reason and the detail for these bad entries of one report, which has ``size`` entries.

    The reason is that of the worst; the detail names the first few groups.
    """
    names, columns = RATE_COLUMNS[: len(block.rates)], block.rates
    if block.throttled is not None:
        names += THROTTLED_COLUMNS[: len(block.throttled)]
        columns = np.concatenate([columns, block.throttled])
    texts = []
    for entry in entries[:_MOST_SHOWN].tolist():
        name = None if block.names is None else block.names[entry].as_py()
        group = f"id {block.ids[entry]}" if name is None else shown(name)
        values = columns[:, entry]
        wrong = np.flatnonzero((values < 0) | (values > most) | np.isinf(values))
        if codes[entry] == _ORDER.index(BAD_GROUP):
            texts.append(f"{group} is no group" if name is not None else "a negative id")
        elif len(wrong):
            texts.append(f"{group}: {names[wrong[0]]} is {values[wrong[0]]:g}")
        else:
            texts.append(f"{group}: throttled is NaN where usage is not")
    more = f", and {len(entries) - _MOST_SHOWN} more" if len(entries) > _MOST_SHOWN else ""
    which = f"{len(entries)} of {size} entries: {', '.join(texts)}{more}"
    return _ORDER[int(codes[entries].max())], which


def last_of_each(block: Block) -> Block:
    """Without the entries that a later one of the same report and group replaces."""
    if len(block.ids) < 2:
        return block
    # Nearly always nothing is there twice, and this tells so at a third of an exact sort's cost:
    # two that are equal in report and group are equal in this mix.
    mixed = block.ids.view(np.uint64) ^ (block.report.view(np.uint64) * np.uint64(_ODD))
    mixed.sort()
    if not (mixed[1:] == mixed[:-1]).any():
        return block
    order = np.lexsort((block.ids, block.report))  # stable: equal ones stay in their order
    report, ids = block.report[order], block.ids[order]
    replaced = (report[1:] == report[:-1]) & (ids[1:] == ids[:-1])
    return block.take(np.sort(order[np.r_[~replaced, True]]))
