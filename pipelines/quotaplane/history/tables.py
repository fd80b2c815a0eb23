"""The history's Delta tables: what they hold (``store`` makes and opens them).

Times are UTC timestamps (microseconds, what Delta's ``TIMESTAMP`` is) so that they read well in
SQL. Rates are per second; a null rate means "unchanged since the last report" in ``usage`` and
"unlimited" in ``limits`` and ``resource_groups``, never NaN or infinity. ``schemas/tables/*.sql``
holds the same schemas as DDL (``quotaplane.history.ddl`` writes it; a test compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from quotaplane.groups.policy_options import BY_COLUMN
from quotaplane.model import BASIC, DIMENSIONS, RATE_COLUMNS
from quotaplane.round_counts import COLUMNS

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

STAMP_COLUMNS: Final = ("epoch", "seq", "at", "date")
"""Filled in by the writer from the round; rows handed to it do not have them."""


@dataclass(frozen=True)
class Table:
    """One history table; ``schema`` fields carry their comment as metadata."""

    name: str
    comment: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    since_later: frozenset[str] = frozenset()
    """Nullable columns that a table made by an earlier version lacks."""


def _column(name: str, kind: pa.DataType, comment: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"comment": comment})


def _rates(meaning: str) -> list[pa.Field]:
    return [_column(name, pa.float64(), meaning, null=True) for name in RATE_COLUMNS]


_LATER_RATES: Final = RATE_COLUMNS[BASIC:]
_LATER_REASONS: Final = tuple(f"{name}_reason" for name in DIMENSIONS[BASIC:])

_STAMP: Final = [
    _column("epoch", pa.int64(), "bumped for each new checkpoint or owner"),
    _column("seq", pa.int64(), "the round: id of the micro-batch"),
    _column("at", TIMESTAMP, "the round's now"),
]
_DATE: Final = _column("date", pa.date32(), "UTC day of `at`; the partition that maintain expires")
_POSITION: Final = _column("position", pa.string(), "where the report stood in its topic")
_PUBLISHED: Final = _column(
    "published_at",
    TIMESTAMP,
    "when the report was published; null if the topic does not say",
    null=True,
)
_BROKER: Final = _column("broker", pa.string(), "name of the broker")
_GROUP: Final = _column("group", pa.string(), "name of the resource group")

CHECKPOINT_INTERVAL: Final = 25
CHANGES_PER_CHECKPOINT: Final = 100
# Measured (docs/adr/0004): an append costs 0.25 ms more for each commit since the last checkpoint,
# 0.03 ms for each old entry left in the log and 0.004 ms for each live file. So there are frequent
# checkpoints, the log is kept for minutes only (nobody travels in time through these tables), and
# `maintain` compacts the files.
_HOT: Final = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.enableExpiredLogCleanup": "true",
    "delta.logRetentionDuration": "interval 30 minutes",
    "delta.deletedFileRetentionDuration": "interval 30 minutes",
}


def _appended(
    name: str,
    comment: str,
    columns: list[pa.Field],
    *,
    by_date: bool = False,
    since_later: tuple[str, ...] = (),
) -> Table:
    stamp = [*_STAMP, _DATE] if by_date else _STAMP
    partitions = ("date",) if by_date else ()
    schema = pa.schema([*stamp, *columns])
    return Table(name, comment, schema, partitions, _HOT, frozenset(since_later))


USAGE: Final = _appended(
    "usage",
    "What each broker reported to have used of each resource group: one row per report entry.",
    [
        _BROKER,
        _GROUP,
        _PUBLISHED,
        _POSITION,
        *_rates("used rate per second; null = unchanged since the last report, or not told"),
    ],
    by_date=True,
    since_later=_LATER_RATES,
)

LIMITS: Final = _appended(
    "limits",
    "What each broker was allowed of each resource group, and why: one row per limit that changed.",
    [
        _BROKER,
        _GROUP,
        *_rates("limit per second; null = unlimited"),
        *(
            _column(f"{name}_reason", pa.string(), f"why {name}_per_s is what it is", null=True)
            for name in DIMENSIONS
        ),
        _column("lease_ms", pa.int64(), "how long the limit holds without being renewed"),
        _column("ended", pa.bool_(), "the broker no longer has the group; the limits are void"),
        _column(
            "enforced",
            pa.bool_(),
            "false: only what the limits would be, the broker is not limited; null = true",
            null=True,
        ),
    ],
    by_date=True,
    since_later=("enforced", *_LATER_RATES, *_LATER_REASONS),
)

BROKERS: Final = _appended(
    "brokers",
    "One row per change of a broker's status.",
    [
        _BROKER,
        _column("status", pa.string(), "live, stale or gone, from this round on"),
        _column("last_seen_at", TIMESTAMP, "when its last usable report was published"),
    ],
)

ROUNDS: Final = _appended(
    "rounds",
    "One row per round, written after everything else of it: a round that is here is complete.",
    [
        _column("positions", pa.string(), "JSON: where the round's input began and ended"),
        *(
            _column(
                name, pa.int64(), f"{text}; null = 0" if since_later else text, null=since_later
            )
            for name, text, since_later in COLUMNS
        ),
    ],
    since_later=tuple(each.name for each in COLUMNS if each.since_later),
)

REJECTED_REPORTS: Final = _appended(
    "rejected_reports",
    "Dead letters: reports that could not be used, with the reason and the raw bytes.",
    [
        _POSITION,
        _PUBLISHED,
        _column("reason", pa.string(), "short code, for example truncated or stale"),
        _column("detail", pa.string(), "what exactly was wrong", null=True),
        _column("counts_as_bad", pa.bool_(), "the whole report was refused, and not for its age"),
        _column(
            "raw",
            pa.binary(),
            "the report, or what of it could not be used; empty when there was too much",
            null=True,
        ),
        _column(
            "reports",
            pa.int64(),
            "how many reports it stands for, position is of the first; null: 1; 0: not known",
            null=True,
        ),
    ],
    since_later=("reports",),
)

_ENTITY: Final = _column("entity", pa.string(), "who asked: called as its resource group")
_DIMENSION: Final = _column("dimension", pa.string(), "what was asked for")
_EVENT: Final = [
    _column("id", pa.string(), "what the service calls the request", null=True),
    _column("position", pa.string(), "where the event stood in its topic"),
]

DECISIONS: Final = _appended(
    "decisions",
    "What became of requests: one row per event that was answered.",
    [
        _ENTITY,
        _DIMENSION,
        _column("requested_at", TIMESTAMP, "the event's own time"),
        _column("units", pa.float64(), "how much was asked for"),
        *_EVENT,
        _column("admitted", pa.bool_(), "false: refused, and counted for nothing"),
        _column(
            "throttle_ms",
            pa.int64(),
            "for how long the client is to be delayed, or when to come back; null = for ever",
            null=True,
        ),
        _column("balance", pa.float64(), "what is left, in units; null = no quota", null=True),
        _column("error", pa.string(), "what a refused client is told", null=True),
        _column("late_ms", pa.int64(), "how much older than the newest event answered before"),
        _column(
            "enforced", pa.bool_(), "false: the group is soft or a shadow, and this what would be"
        ),
    ],
    by_date=True,
)

THROTTLE_METRICS: Final = _appended(
    "throttle_metrics",
    "What each entity asked for in a micro-batch, and KIP-599's metrics as of its last event.",
    [
        _ENTITY,
        _DIMENSION,
        _column("since", TIMESTAMP, "its first event's time in the micro-batch"),
        _column("until", TIMESTAMP, "its last event's"),
        _column("events", pa.int64(), "events answered"),
        _column("refused", pa.int64(), "of these, refused"),
        _column("delayed", pa.int64(), "of these, admitted and to be delayed"),
        _column("late", pa.int64(), "of these, late"),
        _column("units_asked", pa.float64(), "units of all of them"),
        _column("units_admitted", pa.float64(), "units of those admitted"),
        _column(
            "rate_per_s",
            pa.float64(),
            "units admitted over the last 11 windows of a second; null = no quota",
            null=True,
        ),
        _column("tokens", pa.float64(), "what is left, in units; null = no quota", null=True),
        _column(
            "throttle_ms",
            pa.float64(),
            "mean over what was throttled in these windows; null = nothing, or for ever",
            null=True,
        ),
    ],
    by_date=True,
)

REJECTED_EVENTS: Final = _appended(
    "rejected_events",
    "Dead letters: events that could not be used, with the reason.",
    [
        *_EVENT,
        _column("reason", pa.string(), "short code, for example bad_units or too_late"),
        _column("entity", pa.string(), "what of the event could be read", null=True),
        _column("dimension", pa.string(), "what of the event could be read", null=True),
        _column("requested_at", TIMESTAMP, "what of the event could be read", null=True),
        _column("units", pa.float64(), "what of the event could be read", null=True),
        _column("raw", pa.binary(), "the event, cut off, where that is not all", null=True),
    ],
)

_POLICY: Final = [
    _column(name, option.column_type, option.comment, null=True)
    for name, option in BY_COLUMN.items()
]

RESOURCE_GROUPS: Final = Table(
    "resource_groups",
    "The quotas. Its change feed drives the job and says who changed what, when, from and to.",
    pa.schema(
        [
            _GROUP,
            *_rates("the group's global quota per second; null = unlimited"),
            *_POLICY,
            _column("updated_at", TIMESTAMP, "when the row was last written"),
            _column("updated_by", pa.string(), "who wrote it"),
        ]
    ),
    # Changes are rare, and the change feed is the audit trail: its log is kept for a year. Data
    # files that a change replaced are not part of that and go after a week.
    properties={
        "delta.enableChangeDataFeed": "true",
        "delta.checkpointInterval": str(CHANGES_PER_CHECKPOINT),
        "delta.logRetentionDuration": "interval 365 days",
        "delta.deletedFileRetentionDuration": "interval 7 days",
    },
    since_later=frozenset((*BY_COLUMN, *_LATER_RATES)),
)

BALANCE_ACTIONS: Final = _appended(
    "balance_actions",
    "What `quotaplane balance execute` did: begin and end of each plan, each move, each split.",
    [
        _column("plan_hash", pa.string(), "identifies the plan's moves and splits"),
        _column("plan_epoch", pa.int64(), "epoch of the plan"),
        _column("plan_seq", pa.int64(), "round of the balancer that decided the plan"),
        _column("mode", pa.string(), "manual (approved by hash) or auto"),
        _column("why", pa.string(), "the administrator's reason; empty in mode auto"),
        _column("by", pa.string(), "user and host of the executor"),
        _column("action", pa.string(), "plan, move or split"),
        _column(
            "outcome",
            pa.string(),
            "plan: begun, ended, refused; otherwise: done, already there, missed, failed, moved on,"
            " not done",
        ),
        _column("bundle", pa.string(), "the bundle; empty for a plan"),
        _column("source", pa.string(), "its owner before"),
        _column("target", pa.string(), "the broker that was to get it; of a split: boundaries"),
        _column("owner", pa.string(), "its owner afterwards; empty if not known"),
        _column("bytes_per_s", pa.float64(), "the bundle's traffic in the plan"),
        _column("attempts", pa.int64(), "unloads that were made"),
        _column("took_ms", pa.float64(), "from the last unload until the new owner answered"),
        _column("message", pa.string(), "why it failed or was not done"),
    ],
    by_date=True,
)

APPENDED: Final = (USAGE, LIMITS, BROKERS, REJECTED_REPORTS, ROUNDS)
"""What a round appends to, rounds last."""

THROTTLED: Final = (DECISIONS, THROTTLE_METRICS, REJECTED_EVENTS)
"""What a micro-batch of the throttle job appends to."""

TABLES: Final[Mapping[str, Table]] = {
    t.name: t for t in (RESOURCE_GROUPS, *APPENDED, *THROTTLED, BALANCE_ACTIONS)
}
