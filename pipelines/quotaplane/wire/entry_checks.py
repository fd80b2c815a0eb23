"""Checks decoded entries: finds unusable ones, and keeps one of several for the same group."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from quotaplane.groups.ids import NO_ID, NOT_READ
from quotaplane.model import (
    COUNTER_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    FloatArray,
    IntArray,
)
from quotaplane.wire.reasons import (
    ABSURD,
    BAD_GROUP,
    NEGATIVE,
    NOT_FINITE,
    TOO_MANY_ENTRIES,
    shown,
)
from quotaplane.wire.report_block import Block

REASON_OF_CODE: Final = ("", TOO_MANY_ENTRIES, ABSURD, NOT_FINITE, NEGATIVE, BAD_GROUP)
"""Defects of an entry; the code is the index here. Of several defects of an entry, the one with the
highest code is reported."""

MOST_RATE: Final = 1e15
"""Highest usage per second in any dimension that counts: sums of such values stay finite."""

MOST_COUNT: Final = float(2**63)
"""Counts are below this: from here on Java reads a number as negative."""

_MOST_SHOWN: Final = 5
_ODD: Final = 0x9E3779B97F4A7C15


def bad_values(block: Block, max_rate_per_s: float) -> npt.NDArray[np.uint8] | None:
    """Each entry's code, 0 if it is usable; None if all are."""
    codes = np.zeros(len(block.ids), np.uint8)
    if not len(codes):
        return None
    # One pass that finds no suspect, which is the usual case. NaN compares false.
    suspect = block.ids < 0
    for _, values, most in _columns(block, max_rate_per_s):
        suspect |= ((values < 0) | (values > most)).any(axis=0)
    if block.flawed is not None:
        suspect |= block.flawed
    if not suspect.any():
        return None
    at = np.flatnonzero(suspect)
    codes[at] = REASON_OF_CODE.index(ABSURD)
    part = np.concatenate([values[:, at] for _, values, _ in _columns(block, max_rate_per_s)])
    infinite = np.isinf(part).any(axis=0)
    if block.flawed is not None:
        infinite |= block.flawed[at]
    codes[at[infinite]] = REASON_OF_CODE.index(NOT_FINITE)
    codes[at[(part < 0).any(axis=0)]] = REASON_OF_CODE.index(NEGATIVE)
    codes[at[block.ids[at] == NOT_READ]] = REASON_OF_CODE.index(TOO_MANY_ENTRIES)
    codes[at[block.ids[at] == NO_ID]] = REASON_OF_CODE.index(BAD_GROUP)
    return codes


def _columns(
    block: Block, max_rate_per_s: float
) -> list[tuple[tuple[str, ...], FloatArray, float]]:
    """Names, values (d, n) and the highest value of the kinds of columns that a block has."""
    kinds = (
        (RATE_COLUMNS, block.rates, max_rate_per_s),
        (THROTTLED_COLUMNS, block.throttled, max_rate_per_s),
        (COUNTER_COLUMNS, block.counters, float(np.nextafter(MOST_COUNT, 0))),
    )
    return [
        (names[: len(values)], values, most) for names, values, most in kinds if values is not None
    ]


def describe(
    block: Block, entries: IntArray, codes: npt.NDArray[np.uint8], size: int, max_rate_per_s: float
) -> str:
    """The dead letter detail for bad entries of a report with ``size``: the first few of them."""
    bad = block.take(entries[:_MOST_SHOWN])
    kinds = _columns(bad, max_rate_per_s)
    names = [name for each, _, _ in kinds for name in each]
    columns = np.concatenate([values for _, values, _ in kinds])
    most = np.concatenate([np.full(len(each), highest) for each, _, highest in kinds])
    texts = []
    for place, entry in enumerate(entries[:_MOST_SHOWN].tolist()):
        name = None if bad.names is None else bad.names[place].as_py()
        group = f"id {bad.ids[place]}" if name is None else shown(name)
        values = columns[:, place]
        wrong = np.flatnonzero((values < 0) | (values > most) | np.isinf(values))
        if codes[entry] == REASON_OF_CODE.index(BAD_GROUP):
            texts.append(f"{group} is not a valid group" if name is not None else "a negative id")
        elif bad.ids[place] == NOT_READ:
            texts.append(f"{group} is new, and so are too many other names at once")
        elif len(wrong):
            texts.append(f"{group}: {names[wrong[0]]} is {values[wrong[0]]:g}")
        else:
            texts.append(f"{group}: throttled is NaN where usage is not")
    more = f", and {len(entries) - _MOST_SHOWN} more" if len(entries) > _MOST_SHOWN else ""
    return f"{len(entries)} of {size} entries: {', '.join(texts)}{more}"


def last_of_each(block: Block) -> Block:
    """The last entry for each report and group; earlier ones are dropped."""
    if len(block.ids) < 2:
        return block
    # A quick test for the usual case without duplicates, at a third of an exact sort's cost:
    # entries with equal report and group are equal in this mix.
    mixed = block.ids.view(np.uint64) ^ (block.report.view(np.uint64) * np.uint64(_ODD))
    mixed.sort()
    if not (mixed[1:] == mixed[:-1]).any():
        return block
    # A different name with the same id must not replace an entry.
    name = np.zeros(len(block.ids), np.int32)
    if block.names is not None:
        name = block.names.dictionary_encode().indices.to_numpy()
    order = np.lexsort((name, block.ids, block.report))  # stable: equal entries keep their order
    this, next_ = order[:-1], order[1:]
    replaced = np.ones(len(this), bool)
    for array in (block.report, block.ids, name):
        replaced &= array[this] == array[next_]
    return block.take(np.sort(order[np.r_[~replaced, True]]))
