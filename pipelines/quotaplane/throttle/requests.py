"""Request events as tables: what they say, which can be used, and in which order they count."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import DIMENSIONS, MAX_RATE, FloatArray, IntArray

EVENTS: Final = pa.schema(
    [
        pa.field("entity", pa.string()),
        pa.field("at_ms", pa.int64()),
        pa.field("units", pa.float64()),
        pa.field("dimension", pa.string()),
        pa.field("position", pa.string()),
    ]
)
"""What an event says; ``dimension`` and ``position`` may be absent, and other columns be there.

Null is no dimension said: ``DIMENSIONS[0]``. Of events of an entity at the same time the one with
the lower position comes first (the shorter text, then the order of the alphabet, so that offsets
are in the order of numbers); without positions, the one that asks for less.
"""

NO_ENTITY: Final = "no_entity"
NO_TIME: Final = "no_time"
FUTURE: Final = "future"
BAD_UNITS: Final = "bad_units"
BAD_DIMENSION: Final = "bad_dimension"
TOO_LATE: Final = "too_late"

REASONS: Final = {
    NO_ENTITY: "the entity is missing or empty",
    NO_TIME: "the time is missing, or before 1970",
    FUTURE: "the time is too far ahead of now: it would make everything after it late",
    BAD_UNITS: f"the units are missing, no number, below 0, or above {MAX_RATE:g}",
    BAD_DIMENSION: "there is no such dimension",
    TOO_LATE: "too much older than the newest event answered for its entity",
}
"""Why an event can't be used, in words; of several reasons the first one is told."""

CODES: Final = tuple(REASONS)


class Bounds(NamedTuple):
    """How far an event's time may be from where it is expected."""

    late_ms: int
    """Before the newest one answered for its entity."""
    ahead_ms: int
    """After now."""


class Read(NamedTuple):
    """n events as arrays, (n,) each; what is wrong is 0."""

    at_ms: IntArray
    units: FloatArray
    dimension: IntArray
    """Indexes into ``DIMENSIONS``."""
    reason: IntArray
    """Why it can't be used, a place in ``CODES``; -1: it can."""


def read(events: pa.Table, now_ms: int, bounds: Bounds) -> Read:
    """The numbers of events, and which can't be used whatever came before.

    >>> said = {"entity": ["a", "", "b"], "at_ms": [5, 5, None], "units": [1.0, 1.0, -1.0]}
    >>> events = pa.table(said)
    >>> [CODES[reason] for reason in read(events, 5, Bounds(0, 0)).reason if reason >= 0]
    ['no_entity', 'no_time']
    """
    n = len(events)
    at_ms = events["at_ms"].cast(pa.int64()).fill_null(-1).to_numpy()
    units = events["units"].cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    dimension = np.zeros(n, np.int64)
    if "dimension" in events.column_names:
        said = events["dimension"].cast(pa.string()).fill_null(DIMENSIONS[0])
        dimension = pc.index_in(said, value_set=pa.array(DIMENSIONS)).fill_null(-1).to_numpy()
    flaws = {
        NO_ENTITY: pc.equal(events["entity"], "").fill_null(True).to_numpy(),
        NO_TIME: at_ms < 0,
        FUTURE: at_ms > now_ms + bounds.ahead_ms,
        # More than any quota: what was used would not be paid off in a lifetime, nor forgotten.
        BAD_UNITS: ~((units >= 0) & (units <= MAX_RATE)),
        BAD_DIMENSION: dimension < 0,
    }
    reason = np.full(n, -1, np.int64)
    for name, flawed in reversed(flaws.items()):
        reason[flawed] = CODES.index(name)
    return Read(at_ms, units, dimension.astype(np.int64), reason)


def in_order(owner: IntArray, at_ms: IntArray, tie: pa.Table) -> IntArray:
    """Places of n events by owner, time and, where both are the same, as ``EVENTS`` has it.

    Args:
        owner: (n,) numbers.
        at_ms: (n,)
        tie: n rows with ``units`` and, where events have it, ``position``.

    >>> tie = pa.table({"units": [1.0] * 4, "position": ["t@10", "t@9", "t@8", "t@7"]})
    >>> in_order(np.array([1, 1, 0, 1]), np.array([5, 5, 5, 4]), tie).tolist()
    [2, 3, 1, 0]
    """
    order: IntArray = np.lexsort((at_ms, owner))
    alike = (np.diff(owner[order]) == 0) & (np.diff(at_ms[order]) == 0)
    if not alike.any():
        return order
    tied = np.append(alike, False)
    tied[1:] |= alike
    among = order[tied]
    name = "position" if "position" in tie.column_names else "units"
    said = tie[name].take(pa.array(among))  # alone: events have columns of any name
    rows = pa.table({name: said})
    keys = [(name, "ascending")]
    if name == "position":
        rows = rows.append_column("length", pc.utf8_length(said))
        keys.insert(0, ("length", "ascending"))
    rank = np.empty(len(among), np.int64)
    ranked = pc.sort_indices(rows, keys, null_placement="at_start")
    rank[ranked.to_numpy()] = np.arange(len(among))
    order[tied] = among[np.lexsort((rank, at_ms[among], owner[among]))]
    return order
