"""Finds names that are not UTF-8."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.raw import U8


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
