"""The throttle job's tables of the history: its decisions, their metrics, its dead letters."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from quotaplane.history.table_parts import TIMESTAMP, appended, column

_ENTITY: Final = column("entity", pa.string(), "who asked: called as its resource group")
_DIMENSION: Final = column("dimension", pa.string(), "what was asked for")
_EVENT: Final = [
    column("id", pa.string(), "what the service calls the request", null=True),
    column("position", pa.string(), "where the event stood in its topic"),
]

DECISIONS: Final = appended(
    "decisions",
    "What became of requests: one row per event that was answered.",
    [
        _ENTITY,
        _DIMENSION,
        column("requested_at", TIMESTAMP, "the event's own time"),
        column("units", pa.float64(), "how much was asked for"),
        *_EVENT,
        column("admitted", pa.bool_(), "false: refused, and counted for nothing"),
        column(
            "throttle_ms",
            pa.int64(),
            "for how long the client is to be delayed, or when to come back; null = for ever",
            null=True,
        ),
        column("balance", pa.float64(), "what is left, in units; null = no quota", null=True),
        column("error", pa.string(), "what a refused client is told", null=True),
        column("late_ms", pa.int64(), "how much older than the newest event answered before"),
        column(
            "enforced", pa.bool_(), "false: the group is soft or a shadow, and this what would be"
        ),
    ],
    by_date=True,
)

THROTTLE_METRICS: Final = appended(
    "throttle_metrics",
    "What each entity asked for in a micro-batch, and KIP-599's metrics as of its last event.",
    [
        _ENTITY,
        _DIMENSION,
        column("since", TIMESTAMP, "its first event's time in the micro-batch"),
        column("until", TIMESTAMP, "its last event's"),
        column("events", pa.int64(), "events answered"),
        column("refused", pa.int64(), "of these, refused"),
        column("delayed", pa.int64(), "of these, admitted and to be delayed"),
        column("late", pa.int64(), "of these, late"),
        column("units_asked", pa.float64(), "units of all of them"),
        column("units_admitted", pa.float64(), "units of those admitted"),
        column(
            "rate_per_s",
            pa.float64(),
            "units admitted over the last 11 windows of a second; null = no quota",
            null=True,
        ),
        column("tokens", pa.float64(), "what is left, in units; null = no quota", null=True),
        column(
            "throttle_ms",
            pa.float64(),
            "mean over what was throttled in these windows; null = nothing, or for ever",
            null=True,
        ),
    ],
    by_date=True,
)

REJECTED_EVENTS: Final = appended(
    "rejected_events",
    "Dead letters: events that could not be used, with the reason.",
    [
        *_EVENT,
        column("reason", pa.string(), "short code, for example bad_units or too_late"),
        column("entity", pa.string(), "what of the event could be read", null=True),
        column("dimension", pa.string(), "what of the event could be read", null=True),
        column("requested_at", TIMESTAMP, "what of the event could be read", null=True),
        column("units", pa.float64(), "what of the event could be read", null=True),
        column("raw", pa.binary(), "the event, cut off, where that is not all", null=True),
    ],
)

THROTTLED: Final = (DECISIONS, THROTTLE_METRICS, REJECTED_EVENTS)
"""The tables that a micro-batch of the throttle job appends to."""
