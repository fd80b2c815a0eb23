"""From what a scenario's clients wrote down to numbers; no clock, no cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from quotaplane.model import FloatArray

Owners: TypeAlias = Sequence[Sequence[tuple[float, int | None]]]
"""For each broker's partition: times, and who led it from then on."""
_RECONNECTED_S: Final = 2.0
"""A client's time to find a new leader, which is no fault of a quota."""
_KB: Final = 1000.0


def rows_of(path: Path, columns: int) -> FloatArray:
    """A file of numbers, shape (rows, columns); a line that is not complete yet is left out."""
    lines = (line.split(",") for line in path.read_text().splitlines())
    rows = [[float(cell) for cell in line] for line in lines if len(line) == columns]
    return np.array(rows).reshape(len(rows), columns)


def message_kb(wire: FloatArray, from_s: float) -> float:
    """Size of a message as brokers count it, of all that was sent from a moment on.

    Args:
        wire: Rows of a time, and all bytes and messages so far.
        from_s: The moment.

    >>> message_kb(np.array([[0.0, 0, 0], [1.0, 900, 1], [2.0, 5900, 6]]), 1.0)
    1.0
    """
    after = wire[wire[:, 0] >= from_s]
    size, messages = after[-1, 1:] - after[0, 1:]
    return float(size / messages / _KB)


def longest_waits(
    waits: FloatArray, places: int, owners: Owners, from_s: float, to_s: float
) -> list[float]:
    """Seconds of each place's longest wait; those for a leader do not count.

    Args:
        waits: Rows of a time, a place, and the seconds since which it waits.
        places: Their number.
        owners: Who leads the partition of a broker; places are ordered by tenant and broker.
        from_s: Only what was waited after this time.
        to_s: Only waits seen before this time.
    """
    longest = [0.0] * places
    for seen_s, number, waited_s in waits.tolist():
        place, begun_s = int(number), max(seen_s - waited_s, from_s)
        if from_s <= seen_s <= to_s and not _moved(owners[place % len(owners)], begun_s, seen_s):
            longest[place] = max(longest[place], seen_s - begun_s)
    return longest


def _moved(owners: Sequence[tuple[float, int | None]], begun_s: float, seen_s: float) -> bool:
    """Whether a partition had no leader in this time, or had just got another one."""
    ends = [at_s for at_s, _ in owners[1:]] + [np.inf]
    for (at_s, owner), until_s in zip(owners, ends, strict=True):
        last_s = until_s if owner is None else at_s
        if at_s > 0.0 and at_s <= seen_s and begun_s <= last_s + _RECONNECTED_S:
            return True
    return False


def longest_throttle_s(throttles: FloatArray, from_s: float) -> float:
    """The longest throttle time in rows of a time and milliseconds."""
    return float(np.max(throttles[throttles[:, 0] >= from_s, 1], initial=0.0)) / 1000.0


def once_served(owners: Sequence[int | None], done: FloatArray) -> list[int | None]:
    """Owners of a partition in each slot, where a new one counts from its first message on.

    How soon clients find a new leader is not what is measured.

    Args:
        owners: Leader in each slot.
        done: Messages that got through, in each slot.

    >>> once_served([0, None, 1, 1, 1], np.array([4, 0, 0, 2, 0]))
    [0, None, None, 1, 1]
    """
    served: list[int | None] = []
    lost = False
    for owner, messages in zip(owners, done.tolist(), strict=True):
        lost = owner is None or (lost and messages == 0)
        served.append(None if lost else owner)
    return served
