"""Request events as tables: their columns, validation and order."""

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
"""Columns of an event; ``dimension`` and ``position`` may be missing, other columns are allowed.

A null dimension means ``DIMENSIONS[0]``. If events of an entity have equal times, the one with the
lower position comes first (shorter texts, then alphabetical order, so that offsets are in numeric
order); without positions, the one with fewer units.
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
    BAD_UNITS: f"the units are missing, not a number, below 0, or above {MAX_RATE:g}",
    BAD_DIMENSION: "there is no such dimension",
    TOO_LATE: "too much older than the newest event answered for its entity",
}
"""Descriptions of why an event can't be used; of several reasons the first one is given."""

CODES: Final = tuple(REASONS)


class Bounds(NamedTuple):
    """Limits for the time of an event."""

    late_ms: int
    """Before the newest event answered for its entity."""
    ahead_ms: int
    """After now."""


class Read(NamedTuple):
    """n events as arrays (n,); invalid values are 0."""

    at_ms: IntArray
    units: FloatArray
    dimension: IntArray
    """Indexes into ``DIMENSIONS``."""
    reason: IntArray
    """Why the event can't be used, an index into ``CODES``; -1: it can."""


def read(events: pa.Table, now_ms: int, bounds: Bounds) -> Read:
    """Convert events to arrays, and find those that can't be used.

    >>> columns = {"entity": ["a", "", "b"], "at_ms": [5, 5, None], "units": [1.0, 1.0, -1.0]}
    >>> events = pa.table(columns)
    >>> [CODES[reason] for reason in read(events, 5, Bounds(0, 0)).reason if reason >= 0]
    ['no_entity', 'no_time']
    """
    n = len(events)
    at_ms = events["at_ms"].cast(pa.int64()).fill_null(-1).to_numpy()
    units = events["units"].cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    dimension = np.zeros(n, np.int64)
    if "dimension" in events.column_names:
        names = events["dimension"].cast(pa.string()).fill_null(DIMENSIONS[0])
        dimension = pc.index_in(names, value_set=pa.array(DIMENSIONS)).fill_null(-1).to_numpy()
    flaws = {
        NO_ENTITY: pc.equal(events["entity"], "").fill_null(True).to_numpy(),
        NO_TIME: at_ms < 0,
        FUTURE: at_ms > now_ms + bounds.ahead_ms,
        # More than any quota: such a use would never be paid off.
        BAD_UNITS: ~((units >= 0) & (units <= MAX_RATE)),
        BAD_DIMENSION: dimension < 0,
    }
    reason = np.full(n, -1, np.int64)
    for name, flawed in reversed(flaws.items()):
        reason[flawed] = CODES.index(name)
    return Read(at_ms, units, dimension.astype(np.int64), reason)


def in_order(owner: IntArray, at_ms: IntArray, tie: pa.Table) -> IntArray:
    """The order of n events by owner, then time, then as described at ``EVENTS``.

    Args:
        owner: (n,) numbers.
        at_ms: (n,)
        tie: n rows with ``units`` and, if events have it, ``position``.

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
    values = tie[name].take(pa.array(among))  # only this column: others may have any name
    rows = pa.table({name: values})
    keys = [(name, "ascending")]
    if name == "position":
        rows = rows.append_column("length", pc.utf8_length(values))
        keys.insert(0, ("length", "ascending"))
    rank = np.empty(len(among), np.int64)
    ranked = pc.sort_indices(rows, keys, null_placement="at_start")
    rank[ranked.to_numpy()] = np.arange(len(among))
    order[tied] = among[np.lexsort((rank, at_ms[among], owner[among]))]
    return order
