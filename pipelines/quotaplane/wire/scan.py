"""Stock Pulsar's reports, many at a time, read with numpy straight from their bytes.

Pulsar's brokers write every report in the same plain way: fields in ascending order, none twice, no
unknown ones. This module reads exactly that, for all entries of all reports in step, and says
for each report whether it was so written; one that was not must be given to the protobuf library.
Nothing is taken on trust: every position stays inside the buffer (see ``_PAD``), and a report is
called good only when its entries follow one another without gap or overlap from the end of its
header to its last byte, and the fields of each entry fill it exactly. What is then read is what
protobuf reads (proved by a property test), several times as fast (docs/wire.md).

Layout of one entry (all numbers are varints, base-128, low groups first)::

    12 LEN                                   ResourceUsageInfo.usageMap
       0A LEN owner                          ResourceUsage.owner
       12 LEN 08 bytes 10 messages           ResourceUsage.publish    (may be absent)
       1A LEN 08 bytes 10 messages           ResourceUsage.dispatch   (may be absent)
       22 LEN 08 bytes                       ResourceUsage.storage    (may be absent)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray

_ENTRY, _OWNER, _PUBLISH, _DISPATCH, _STORAGE = 0x12, 0x0A, 0x12, 0x1A, 0x22
_FIRST_NUMBER, _SECOND_NUMBER = 0x08, 0x10
_PAD: Final = 64
"""Zero bytes behind the reports: more than any step below reads past a position that it checked."""

_U8 = npt.NDArray[np.uint8]
_U64 = npt.NDArray[np.uint64]
_HIGH, _LOW7 = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)


class Scanned(NamedTuple):
    """``good`` (reports,), then a row per entry of good reports.

    ``report`` (n,) is its report's index, ``owners`` an Arrow string array, ``counts`` (4, n) are
    per period, NaN = absent.
    """

    good: BoolArray
    report: IntArray
    owners: pa.Array
    counts: FloatArray


def scan(values: Sequence[bytes], first_entry: Sequence[int]) -> Scanned:
    """Read serialized reports whose entries begin at byte ``first_entry`` of each.

    The values together have to be under 2 GiB, none of them empty.
    """
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    end = np.cumsum(lengths)
    begin = end - lengths + np.asarray(first_entry, np.int64)
    data = b"".join((*values, bytes(_PAD)))
    raw = np.frombuffer(data, np.uint8)
    # The eight bytes at every position as one number (unaligned, which numpy takes care of).
    words: _U64 = np.ndarray(len(data) - 7, dtype="<u8", buffer=data, strides=(1,))

    report, start, stop, good = _frames(raw, begin, end)
    owner_start, owner_end, counts, fits = _fields(raw, words, start, stop)
    good[report[~fits]] = False
    if not good.all():
        chosen = good[report]
        report, counts = report[chosen], counts[:, chosen]
        owner_start, owner_end = owner_start[chosen], owner_end[chosen]
    owners = _strings(data, owner_start, owner_end)
    if owners is None:
        good[:] = False
        return Scanned(good, report[:0], pa.array([], pa.string()), counts[:, :0])
    return Scanned(good, report, owners, counts)


def _frames(
    raw: _U8, begin: IntArray, end: IntArray
) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Where the entries are: report, start and stop of each body, and which reports are good.

    Finds every place that looks like the head of an entry (tag, length, tag of ``owner``) and drops
    those by chance so: their end is no other's start, or their start no other's end. A report is
    good when those that are left form a chain through all of it, so a wrong guess is never used.
    """
    size = len(raw) - _PAD
    # A head takes two or three bytes. (A filter of bytes: cheap, and bounds what noise can cost.)
    owner = raw[2 : size + 3] == _OWNER
    at = np.flatnonzero((raw[:size] == _ENTRY) & (owner[:-1] | owner[1:]))
    length = raw[at + 1].astype(np.int64)
    long = length >= 0x80  # a length of two bytes; Pulsar's longest entry has about 1.1 kB
    length += long * (raw[at + 2].astype(np.int64) - 1 << 7)
    body = at + 2 + long
    stop = body + length
    likely = (raw[body] == _OWNER) & ~(long & (raw[at + 2] >= 0x80)) & (stop <= size)
    at, body, stop = at[likely], body[likely], stop[likely]
    for _ in range(3):
        from_here, to_here = np.zeros(size + 1, bool), np.zeros(size + 1, bool)
        from_here[at] = from_here[end] = True
        to_here[stop] = to_here[begin] = True
        linked = from_here[stop] & to_here[at]
        at, body, stop = at[linked], body[linked], stop[linked]
        if linked.all():
            break

    report = np.searchsorted(end, at, side="right")
    good = np.bincount(report, minlength=len(end)).astype(bool) | (begin == end)
    if len(at):
        new = np.r_[True, report[1:] != report[:-1]]
        last = np.r_[new[1:], True]
        follows = np.where(new, begin[report], np.r_[0, stop[:-1]]) == at
        good[report[~follows | (last & (stop != end[report]))]] = False
    return report, body, stop, good


def _fields(
    raw: _U8, words: _U64, start: IntArray, stop: IntArray
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    """The fields of the entries: start and end of the owner, counts, and whether all was plain."""
    length = raw[start + 1].astype(np.int64)
    long = length >= 0x80
    second = raw[start + 2].astype(np.int64)
    length += long * (second - 1 << 7)
    owner_start = start + 2 + long
    owner_end = owner_start + length
    fits = (raw[start] == _OWNER) & ~(long & (second >= 0x80)) & (owner_end <= stop)
    owner_start = np.minimum(owner_start, stop)
    at = owner_end = np.minimum(owner_end, stop)

    counts = np.full((BASIC, len(start)), np.nan)
    for tag, messages in ((_PUBLISH, 0), (_DISPATCH, 2)):
        has = np.flatnonzero((raw[at] == tag) & (at < stop))
        begin = at[has]
        first, middle, plain = _number(raw, words, begin + 2, _FIRST_NUMBER)
        second_, finish, also = _number(raw, words, middle, _SECOND_NUMBER)
        plain &= also & (raw[begin + 1] == finish - begin - 2) & (finish <= stop[has])
        counts[messages, has], counts[messages + 1, has] = second_, first
        fits[has] &= plain
        at = at.copy()
        at[has] = np.minimum(finish, stop[has])
    has = np.flatnonzero((raw[at] == _STORAGE) & (at < stop))
    if len(has):
        begin = at[has]
        _, finish, plain = _number(raw, words, begin + 2, _FIRST_NUMBER)
        fits[has] &= plain & (raw[begin + 1] == finish - begin - 2) & (finish <= stop[has])
        at = at.copy()
        at[has] = np.minimum(finish, stop[has])
    fits &= at == stop
    return owner_start, owner_end, counts, fits


def _number(raw: _U8, words: _U64, at: IntArray, tag: int) -> tuple[_U64, IntArray, BoolArray]:
    """The varint field ``tag`` at each position: value, position behind it, and whether it is one.

    Up to eight bytes, so values below 2**56; a longer one is left to protobuf.
    """
    word = words[at + 1]
    ends = ~word & _HIGH  # the high bit of a varint's last byte is 0
    kept = ends ^ (ends - np.uint64(1))  # all bits up to the lowest of them
    word = word & kept & _LOW7
    # 8 groups of 7 bits, one in each byte -> 4 of 14 -> 2 of 28 -> one of 56
    one, two, four = np.uint64(1), np.uint64(2), np.uint64(4)
    word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> one)
    word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x3FFF00003FFF0000)) >> two)
    word = (word & np.uint64(0x000000000FFFFFFF)) | ((word & np.uint64(0x0FFFFFFF00000000)) >> four)
    size = np.bitwise_count(kept).astype(np.int64) >> 3
    return word, at + 1 + size, (raw[at] == tag) & (ends != 0)


def _strings(data: bytes, start: IntArray, end: IntArray) -> pa.Array | None:
    """Ascending pieces of ``data`` as an Arrow string array; None when one is not UTF-8."""
    # Arrow wants strings that touch. So: owner, gap, owner, gap ... of which every other is taken.
    offsets = np.zeros(2 * len(start) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = start, end
    offsets[-1] = end[-1] if len(end) else 0
    pieces = pa.Array.from_buffers(
        pa.binary(), 2 * len(start), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    try:
        return pieces.take(pa.array(np.arange(0, 2 * len(start), 2))).cast(pa.string())
    except pa.ArrowInvalid:
        return None
