"""Marks in the enforcer's rates of topics, which distinguish them from an administrator's.

A rate of a topic has two numbers, messages and bytes per second, and no other field for a writer.
If one of them is unlimited, Pulsar takes any number below 1 for that: we write -2 or -3, and
Pulsar's tools write -1. If both are limited, our bytes have a fixed odd remainder modulo 64. Rates
set by administrators are mostly even; one in 16 odd numbers would be taken for ours. The second of
each pair of marks says that the rate replaces an administrator's one, which is in the table
``administrator_rates``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray

_STEP: Final = 64
_REMAINDERS: Final = (37, 39)
_UNLIMITED: Final = (-2, -3)


class Mark(IntEnum):
    """The writer of a rate."""

    NONE = 0
    """Not written by the enforcer."""
    OURS = 1
    IN_PLACE = 2
    """Ours, in place of an administrator's rate that is recorded."""


def marked(rates: FloatArray, in_place: BoolArray) -> FloatArray:
    """Rates as we write them: where both numbers are limited, the bytes are rounded down to a mark.

    They lose less than 64 bytes per second, but are never below the mark itself. Marked rates stay
    as they are.

    Args:
        rates: (n, 2) in messages and bytes; inf = unlimited, NaN = not known.
        in_place: (n,) which of them stand in for an administrator's.

    >>> marked(np.array([[5.0, 20000.0], [5.0, np.inf]]), np.array([False, False])).tolist()
    [[5.0, 19941.0], [5.0, inf]]
    >>> marked(np.array([[5.0, 20000.0], [5.0, 9.0]]), np.array([True, False])).tolist()
    [[5.0, 19943.0], [5.0, 37.0]]
    """
    both = np.isfinite(rates).all(axis=1)
    if not both.any():
        return rates
    remainder = np.where(in_place[both], *_REMAINDERS[::-1])
    result = rates.copy()
    steps = np.maximum(np.floor((rates[both, 1] - remainder) / _STEP), 0.0)
    result[both, 1] = steps * _STEP + remainder
    return result


def unlimited_number(*, in_place: bool) -> int:
    """The number that we write for unlimited."""
    return _UNLIMITED[in_place]


def mark_of(messages: int, in_bytes: int) -> Mark:
    """The mark of a rate as Pulsar has it.

    >>> [mark_of(*rate).name for rate in ((5, -1), (5, -2), (-3, 900), (5, 19941), (5, 20000))]
    ['NONE', 'OURS', 'IN_PLACE', 'OURS', 'NONE']
    """
    if messages > 0 and in_bytes > 0:
        remainder = in_bytes % _STEP
        return Mark(_REMAINDERS.index(remainder) + 1) if remainder in _REMAINDERS else Mark.NONE
    unlimited = in_bytes if messages > 0 else messages
    return Mark(_UNLIMITED.index(unlimited) + 1) if unlimited in _UNLIMITED else Mark.NONE
