"""Heads of reports, many at a time: who reports, and as of when, without the groups.

A head as all known writers put it: the fields before the groups, in ascending order, none twice. A
report of which that is all, a heartbeat, needs no protobuf library; and of a flood of reports it is
known at little cost which of them are worth reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import MAX_BROKER_CHARS, BoolArray, IntArray
from quotaplane.wire.raw import PAD, U64, number, pieces, words_of
from quotaplane.wire.reasons import UnusableReportError, check_broker
from quotaplane.wire.report_own import MOST
from quotaplane.wire.utf8 import as_strings

_OWN_BROKER, _STOCK_BROKER = 0x12, 0x0A
_TAGS: Final = {
    "started_at_ms": 0x18,
    "sequence": 0x20,
    "window_ms": 0x28,
    "applied_epoch": 0x30,
    "applied_seq": 0x38,
}


class Heads(NamedTuple):
    """A row per report; of one whose head is not ``plain`` nothing else is known.

    ``size`` is how many bytes it takes, so where the groups begin; ``broker`` an index in
    ``names``, which are different and of which some are ``unusable``, with what is wrong.
    ``numbers`` are uint64 by name; ``applied``: the report says which limits were in force.
    ``absurd``: one of the numbers is ``MOST`` or more.
    """

    plain: BoolArray
    size: IntArray
    broker: IntArray
    names: pa.StringArray
    unusable: dict[int, str]
    numbers: Mapping[str, U64]
    applied: BoolArray
    absurd: BoolArray

    def absurdity(self, row: int) -> str:
        """What is ``absurd`` about a report."""
        return next(f"{n} is {a[row]}" for n, a in self.numbers.items() if a[row] >= MOST)


def read_heads(starts: Sequence[bytes], own: BoolArray) -> Heads:
    """Read the heads of reports, of which the ``starts`` hold all of the head.

    ``own`` are those in our own format; of these the first five bytes are not looked at.
    """
    size = np.fromiter(map(len, starts), np.int64, len(starts))
    data, end = b"".join((*starts, bytes(PAD))), np.cumsum(size)
    begin = end - size
    raw, words = np.frombuffer(data, np.uint8), words_of(data)
    at = begin + np.where(own, 5, 0)
    length, start, plain = number(raw, words, at, np.where(own, _OWN_BROKER, _STOCK_BROKER))
    stop = start + np.minimum(length, np.uint64(len(data))).astype(np.int64)
    plain &= (at < end) & (start <= end) & (stop <= end)
    start, stop = np.where(plain, start, end), np.where(plain, stop, end)

    numbers = {name: np.zeros(len(own), np.uint64) for name in _TAGS}
    given = {name: np.zeros(len(own), bool) for name in _TAGS}
    body = stop.copy()
    ours = np.flatnonzero(own & plain)
    for name, tag in _TAGS.items():
        has = ours[(raw[body[ours]] == tag) & (body[ours] < end[ours])]
        value, behind, fits = number(raw, words, body[has], tag)
        fits &= behind <= end[has]
        plain[has[~fits]] = False
        has, value, behind = has[fits], value[fits], behind[fits]
        numbers[name][has], given[name][has], body[has] = value, True, behind
    plain &= numbers["window_ms"] < 2**32

    absurd = np.zeros(len(own), bool)
    for name in _TAGS:
        absurd |= numbers[name] >= MOST
    coded = pieces(data, start, stop).dictionary_encode()
    names, broker = coded.dictionary, coded.indices.to_numpy().astype(np.int64)
    names, flawed = as_strings(names)
    if flawed is not None:  # the protobuf library says what it thinks of that
        plain &= ~flawed[broker]
    unusable = _unusable(names)
    if unusable:  # so does it where more follows, which may be another name
        plain &= (body == end) | ~np.isin(broker, [*unusable])
    return Heads(
        plain=plain,
        size=body - begin,
        broker=broker,
        names=names,
        unusable=unusable,
        numbers=numbers,
        applied=given["applied_epoch"] & given["applied_seq"],
        absurd=absurd,
    )


def _unusable(names: pa.StringArray) -> dict[int, str]:
    """What is wrong with the names that can't be a broker's, by index."""
    length = pc.binary_length(names)
    usual = pc.and_(pc.ascii_is_printable(names), pc.less_equal(length, MAX_BROKER_CHARS))
    usual = pc.and_(usual, pc.greater(length, 0))
    wrong = {}
    for index in np.flatnonzero(~usual.to_numpy(zero_copy_only=False)).tolist():
        try:
            check_broker(names[index].as_py())
        except UnusableReportError as error:
            wrong[index] = str(error)
    return wrong
