"""Reads the heads of many reports at once: broker, times and numbers, without the groups.

A head is canonical if it is as all known writers encode it: the fields before the groups in
ascending order, none twice. A heartbeat consists of a head only, and so needs no protobuf library;
in a flood of reports the heads show, at little cost, which are worth decoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import MAX_BROKER_CHARS, BoolArray, IntArray
from quotaplane.wire.raw import PAD, U64, as_strings, number, pieces, words_of
from quotaplane.wire.reasons import UnusableReportError, check_broker
from quotaplane.wire.report_own import FAMILY, REPORT_HEAD, SIGNED_LIMIT

_OWN_BROKER, _STOCK_BROKER = 0x12, 0x0A
_TAGS: Final = {
    "started_at_ms": 0x18,
    "sequence": 0x20,
    "window_ms": 0x28,
    "applied_epoch": 0x30,
    "applied_seq": 0x38,
}


HEAD_BYTES: Final = 4 * MAX_BROKER_CHARS + 256
"""More than the head of a report with a valid broker name takes."""


class Heads(NamedTuple):
    """One row per report; if its head is not ``canonical``, the other fields have no meaning."""

    canonical: BoolArray
    size: IntArray
    """Bytes of the head, so where the groups begin."""
    broker: IntArray
    """Index in ``names``."""
    names: pa.StringArray
    """Distinct broker names."""
    unusable: dict[int, str]
    """Invalid ones of ``names``, by index, with the reason."""
    numbers: Mapping[str, U64]
    """By field name."""
    applied: BoolArray
    """The report has the (epoch, seq) of the limits in force."""
    absurd: BoolArray
    """A number is ``SIGNED_LIMIT`` or more."""

    def absurdity(self, row: int) -> str:
        """The number that makes a report ``absurd``."""
        return next(f"{n} is {a[row]}" for n, a in self.numbers.items() if a[row] >= SIGNED_LIMIT)


def read_heads(starts: Sequence[bytes], own: BoolArray) -> Heads:
    """Read the heads of reports; ``starts`` contain at least all of the head.

    ``own``: the report is in our own format; its first five bytes are not checked here.
    """
    size = np.fromiter(map(len, starts), np.int64, len(starts))
    data, end = b"".join((*starts, bytes(PAD))), np.cumsum(size)
    begin = end - size
    raw, words = np.frombuffer(data, np.uint8), words_of(data)
    at = begin + np.where(own, 5, 0)
    length, start, canonical = number(raw, words, at, np.where(own, _OWN_BROKER, _STOCK_BROKER))
    stop = start + np.minimum(length, np.uint64(len(data))).astype(np.int64)
    canonical &= (at < end) & (start <= end) & (stop <= end)
    start, stop = np.where(canonical, start, end), np.where(canonical, stop, end)

    numbers = {name: np.zeros(len(own), np.uint64) for name in _TAGS}
    given = {name: np.zeros(len(own), bool) for name in _TAGS}
    body = stop.copy()
    ours = np.flatnonzero(own & canonical)
    for name, tag in _TAGS.items():
        has = ours[(raw[body[ours]] == tag) & (body[ours] < end[ours])]
        value, behind, fits = number(raw, words, body[has], tag)
        fits &= behind <= end[has]
        canonical[has[~fits]] = False
        has, value, behind = has[fits], value[fits], behind[fits]
        numbers[name][has], given[name][has], body[has] = value, True, behind
    canonical &= numbers["window_ms"] < 2**32

    absurd = np.zeros(len(own), bool)
    for name in _TAGS:
        absurd |= numbers[name] >= SIGNED_LIMIT
    coded = pieces(data, start, stop).dictionary_encode()
    names, broker = coded.dictionary, coded.indices.to_numpy().astype(np.int64)
    names, flawed = as_strings(names)
    if flawed is not None:  # leave these to the protobuf library
        canonical &= ~flawed[broker]
    unusable = _unusable(names)
    if unusable:  # and those with further fields, as one may be another name
        canonical &= (body == end) | ~np.isin(broker, [*unusable])
    return Heads(
        canonical=canonical,
        size=body - begin,
        broker=broker,
        names=names,
        unusable=unusable,
        numbers=numbers,
        applied=given["applied_epoch"] & given["applied_seq"],
        absurd=absurd,
    )


def senders(values: Sequence[bytes]) -> list[str | None]:
    """The broker that each of a few reports names; None: it can't be read."""
    heads, known = _heads_of(values)
    names = heads.names.to_pylist()
    return [
        names[broker] if usable else None
        for broker, usable in zip(heads.broker.tolist(), known.tolist(), strict=True)
    ]


def senders_and_numbers(values: Sequence[bytes]) -> tuple[IntArray, U64, U64]:
    """(n,) each: a number for the broker that a report names, its start and sequence.

    Reports have the same number if they name the same broker. One whose broker can't be read has a
    number of its own. Stock reports have neither start nor sequence: 0.
    """
    heads, known = _heads_of(values)
    alone = len(heads.names) + np.arange(len(values))
    numbers = heads.numbers
    return np.where(known, heads.broker, alone), numbers["started_at_ms"], numbers["sequence"]


def _heads_of(values: Sequence[bytes]) -> tuple[Heads, BoolArray]:
    """The heads of reports, and which of them name a valid broker."""
    family = np.array([value.startswith(FAMILY) for value in values], bool)
    ours = np.array([value.startswith(REPORT_HEAD) for value in values], bool)
    heads = read_heads([value[:HEAD_BYTES] for value in values], family)
    return heads, heads.canonical & (ours | ~family) & ~np.isin(heads.broker, [*heads.unusable])


def _unusable(names: pa.StringArray) -> dict[int, str]:
    """Names that are not valid broker names, by index, with the reason."""
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
