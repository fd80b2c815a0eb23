"""Reads the entries of many stock Pulsar reports with numpy, straight from their bytes.

Pulsar's brokers write every report canonically: fields in ascending order, none twice, no unknown
ones. This module reads exactly that form, all entries of all reports at once, and returns for each
report whether it had that form; others must be parsed by the protobuf library.
It trusts nothing: every position stays inside the buffer (see ``PAD``), and a report is ``good``
only if its entries follow one another without gap or overlap from the end of its head to its last
byte, and the fields of each entry fill it exactly. The result equals protobuf's (shown by a
property test), several times as fast (docs/measured/parts.md).

Layout of one entry (all numbers are varints, base-128, low groups first)::

    12 LEN                                   ResourceUsageInfo.usageMap
       0A LEN owner                          ResourceUsage.owner
       12 LEN 08 bytes 10 messages           ResourceUsage.publish    (may be absent)
       1A LEN 08 bytes 10 messages           ResourceUsage.dispatch   (may be absent)
       22 LEN 08 bytes                       ResourceUsage.storage    (may be absent)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.wire.intake import BYTES_PER_ENTRY, LEAST_STOCK, DenseEntries
from quotaplane.wire.raw import PAD, U8, U64, as_strings, number, pieces, words_of

_ENTRY, _OWNER, _PUBLISH, _DISPATCH, _STORAGE = 0x12, 0x0A, 0x12, 0x1A, 0x22
_FIRST_NUMBER, _SECOND_NUMBER = 0x08, 0x10


class Scanned(NamedTuple):
    """The result of ``scan`` for r reports, with n entries of good reports."""

    good: BoolArray
    """(r,) canonical, and read."""
    report: IntArray
    """(n,) index of the entry's report."""
    owners: pa.Array
    """(n,) group names."""
    counts: FloatArray
    """(4, n) per period; NaN: absent."""
    refused: BoolArray
    """(r,) not read, because it has too many entries."""
    garbled: BoolArray
    """(r,) canonical, but with a name that is not UTF-8."""


def scan(values: Sequence[bytes], first_entry: IntArray, dense: DenseEntries | None) -> Scanned:
    """Read serialized reports, whose entries begin at byte ``first_entry`` of each.

    ``dense``: None if their entries were counted before. The values must be under 2 GiB together,
    and none may be empty.
    """
    size = np.fromiter(map(len, values), np.int64, len(values))
    data, end = b"".join((*values, bytes(PAD))), np.cumsum(size)
    raw, words = np.frombuffer(data, np.uint8), words_of(data)

    report, start, stop, good, refused = _frames(raw, end - size + first_entry, end, dense)
    owner_start, owner_end, counts, fits = _fields(raw, words, start, stop)
    good[report[~fits]] = False
    garbled = np.zeros(len(good), bool)
    owners, flawed = as_strings(pieces(data, owner_start, owner_end))
    if flawed is not None:
        garbled[report[flawed]] = True
        garbled &= good
        good &= ~garbled
    if not good.all():
        chosen = good[report]
        report, counts = report[chosen], counts[:, chosen]
        owners = owners.filter(pa.array(chosen))
    return Scanned(good, report, owners, counts, refused, garbled)


def _frames(
    raw: U8, begin: IntArray, end: IntArray, dense: DenseEntries | None
) -> tuple[IntArray, IntArray, IntArray, BoolArray, BoolArray]:
    """Locate the entries: report, start and stop of each body; also ``good`` and ``refused``.

    Finds every position that looks like the head of an entry (tag, length, tag of ``owner``), then
    drops false ones: those whose end is no other's start, or whose start is no other's end. A
    report is good if the remaining ones form a chain through all of it, so a wrong guess is never
    used.
    """
    size = len(raw) - PAD
    # A head takes two or three bytes. (This filter is cheap, and bounds the cost of noise.)
    owner = raw[2 : size + 3] == _OWNER
    at = np.flatnonzero((raw[:size] == _ENTRY) & (owner[:-1] | owner[1:]))
    length = raw[at + 1].astype(np.int64)
    long = length >= 0x80  # a length of two bytes; Pulsar's longest entry has about 1.1 kB
    length += long * (raw[at + 2].astype(np.int64) - 1 << 7)
    body = at + 2 + long
    stop = body + length
    likely = (raw[body] == _OWNER) & ~(long & (raw[at + 2] >= 0x80)) & (stop <= size)
    at, body, stop = at[likely], body[likely], stop[likely]
    refused: BoolArray = np.zeros(len(end), bool)
    if dense is not None and len(at) > size // BYTES_PER_ENTRY:
        report = np.searchsorted(end, at, side="right")
        refused = dense.refuse(np.bincount(report, minlength=len(end)), end - begin, LEAST_STOCK)
        is_read = ~refused[report]
        at, body, stop = at[is_read], body[is_read], stop[is_read]
    for _ in range(3):
        from_here, to_here = np.zeros(size + 1, bool), np.zeros(size + 1, bool)
        from_here[at] = from_here[end] = True
        to_here[stop] = to_here[begin] = True
        linked = from_here[stop] & to_here[at]
        at, body, stop = at[linked], body[linked], stop[linked]
        if linked.all():
            break

    report = np.searchsorted(end, at, side="right")
    inside = at >= begin[report]  # not in a report's head
    if not inside.all():
        at, body, stop, report = at[inside], body[inside], stop[inside], report[inside]
    good = np.bincount(report, minlength=len(end)).astype(bool) | (begin == end)
    if len(at):
        new = np.r_[True, report[1:] != report[:-1]]
        last = np.r_[new[1:], True]
        follows = np.where(new, begin[report], np.r_[0, stop[:-1]]) == at
        good[report[~follows | (last & (stop != end[report]))]] = False
    return report, body, stop, good & ~refused, refused


def _fields(
    raw: U8, words: U64, start: IntArray, stop: IntArray
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    """The entries' fields: start and end of the owner, counts, and whether all is canonical."""
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
        first, middle, canonical = number(raw, words, begin + 2, _FIRST_NUMBER)
        second_, finish, also = number(raw, words, middle, _SECOND_NUMBER)
        canonical &= also & (raw[begin + 1] == finish - begin - 2) & (finish <= stop[has])
        counts[messages, has], counts[messages + 1, has] = second_, first
        fits[has] &= canonical
        at = at.copy()
        at[has] = np.minimum(finish, stop[has])
    has = np.flatnonzero((raw[at] == _STORAGE) & (at < stop))
    if len(has):
        begin = at[has]
        _, finish, canonical = number(raw, words, begin + 2, _FIRST_NUMBER)
        fits[has] &= canonical & (raw[begin + 1] == finish - begin - 2) & (finish <= stop[has])
        at = at.copy()
        at[has] = np.minimum(finish, stop[has])
    fits &= at == stop
    return owner_start, owner_end, counts, fits
