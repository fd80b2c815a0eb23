"""Reads protobuf's wire format and its texts with numpy, at many positions of a buffer at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray, IntArray

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

PAD: Final = 64
"""Bytes of padding after the data: more than any step reads past a checked position."""

_HIGH, _LOW7 = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)


def words_of(data: bytes) -> U64:
    """The eight bytes at every position as one number (unaligned, which numpy handles)."""
    return np.ndarray(len(data) - 7, dtype="<u8", buffer=data, strides=(1,))


def number(raw: U8, words: U64, at: IntArray, tag: int | U8) -> tuple[U64, IntArray, BoolArray]:
    """The varint after ``tag`` at each position: its value, the position after it, and its
    validity.

    If it is invalid, value and position have no meaning, but the position is at most 11 after the
    first.
    """
    word = words[at + 1]
    ends = ~word & _HIGH  # the high bit of a varint's last byte is 0
    mask = ends ^ (ends - np.uint64(1))  # all bits up to the lowest of these
    word = word & mask & _LOW7
    # 8 groups of 7 bits, one per byte -> 4 of 14 -> 2 of 28 -> one of 56
    one, two, four = np.uint64(1), np.uint64(2), np.uint64(4)
    word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> one)
    word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x3FFF00003FFF0000)) >> two)
    word = (word & np.uint64(0x000000000FFFFFFF)) | ((word & np.uint64(0x0FFFFFFF00000000)) >> four)
    size = np.bitwise_count(mask).astype(np.int64) >> 3
    good = raw[at] == tag
    long = np.flatnonzero(ends == 0)
    if len(long):  # nine or ten bytes
        ninth, tenth = raw[at[long] + 9].astype(np.uint64), raw[at[long] + 10].astype(np.uint64)
        ten = ninth >= 0x80
        word[long] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        word[long] |= np.where(ten, tenth & one, 0).astype(np.uint64) << np.uint64(63)
        size[long] = 9 + ten
        good[long] &= ~ten | (tenth <= 1)
    return word, at + 1 + size, good


def pieces(data: bytes, start: IntArray, end: IntArray) -> pa.BinaryArray:
    """Slices of ``data``, in ascending order, as an Arrow array."""
    # Arrow needs adjacent values, so build piece, gap, piece, gap ... and take every other one.
    offsets = np.zeros(2 * len(start) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = start, end
    offsets[-1] = end[-1] if len(end) else 0
    adjacent = pa.Array.from_buffers(
        pa.binary(), 2 * len(start), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return adjacent.take(pa.array(np.arange(0, 2 * len(start), 2)))


def as_strings(names: pa.BinaryArray) -> tuple[pa.StringArray, BoolArray | None]:
    r"""The names as strings, and which are not UTF-8 (None if all are). No nulls.

    A name that is not UTF-8 becomes "".

    >>> as_strings(pa.array([b"plain", "größe".encode()], pa.binary()))[1] is None
    True
    >>> names, flawed = as_strings(pa.array([b"good", b"\xc0\xa1", b"cut \xe2\x82"], pa.binary()))
    >>> names.to_pylist(), flawed.tolist()
    (['good', '', ''], [False, True, True])
    """
    try:
        return names.cast(pa.string()), None
    except pa.ArrowInvalid:
        flawed = _flawed(names)
    return pc.if_else(pa.array(flawed), b"", names).cast(pa.string()), flawed


def _flawed(names: pa.BinaryArray) -> BoolArray:
    _, offset_buffer, data = names.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[names.offset :][: len(names) + 1]
    raw = np.frombuffer(data, np.uint8)[: offsets[-1]]
    flawed: BoolArray = np.zeros(len(names), bool)
    at = np.flatnonzero(raw[offsets[0] :] >= 0x80) + offsets[0]
    name = np.searchsorted(offsets, at, side="right") - 1
    flawed[name[_misplaced(raw, at, name, offsets)]] = True
    return flawed


def _misplaced(raw: U8, at: IntArray, name: IntArray, offsets: npt.NDArray[np.int32]) -> BoolArray:
    """Which of the bytes from 0x80 on are at a position where they are invalid.

    One to three continuation bytes, from 0x80 to 0xBF, must follow a lead byte in the same name.
    After four of the lead bytes the second byte's range is narrower (overlong forms, surrogates,
    code points beyond the last).
    """
    byte = raw[at]
    follows = byte < 0xC0
    wanted = np.select([byte < 0xC2, byte < 0xE0, byte < 0xF0, byte < 0xF5], [0, 1, 2, 3], 0)
    bad: BoolArray = ~follows & (wanted == 0)
    expected = np.zeros(len(at), bool)
    for step in (1, 2, 3):
        first = np.flatnonzero(wanted >= step)
        place = at[first] + step
        valid = place < offsets[name[first] + 1]
        valid[valid] = (raw[place[valid]] & 0xC0) == 0x80
        bad[first[~valid]] = True
        # If present, the bytes of a character are adjacent in ``at``, too.
        expected[(first + step)[valid & ~bad[first]]] = True
    first = np.flatnonzero((wanted > 0) & ~bad)
    lead, second = byte[first], raw[at[first] + 1]
    bad[first] = (
        ((lead == 0xE0) & (second < 0xA0))
        | ((lead == 0xED) & (second >= 0xA0))
        | ((lead == 0xF0) & (second < 0x90))
        | ((lead == 0xF4) & (second >= 0x90))
    )
    bad |= follows & ~expected
    return bad
