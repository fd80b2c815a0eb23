"""The history's Delta tables and their columns (``store`` makes and opens them).

Times are UTC timestamps (microseconds, what Delta's ``TIMESTAMP`` is) so that they read well in
SQL. Rates are per second; a null rate means "unchanged since the last report" in ``usage`` and
"unlimited" in ``limits`` and ``resource_groups``, never NaN or infinity. ``schemas/tables/*.sql``
holds the same schemas as DDL (``quotaplane.history.ddl`` writes it; a test compares them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from quotaplane.extensions import extensions, load
from quotaplane.groups.policy_options import BY_COLUMN
from quotaplane.history.table_parts import CHECKPOINT_INTERVAL as CHECKPOINT_INTERVAL
from quotaplane.history.table_parts import HOT as HOT
from quotaplane.history.table_parts import STAMP_COLUMNS as STAMP_COLUMNS
from quotaplane.history.table_parts import TIMESTAMP as TIMESTAMP
from quotaplane.history.table_parts import Table as Table
from quotaplane.history.table_parts import appended, column, columns, list_of, snapshot
from quotaplane.model import (
    COUNTER_COLUMNS,
    DEMAND_COLUMNS,
    DIMENSIONS,
    LIMIT_COLUMNS,
    QUOTA_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    USED_COLUMNS,
)
from quotaplane.round_counts import COLUMNS

if TYPE_CHECKING:
    from deltalake import ColumnProperties

_POSITION: Final = column("position", pa.string(), "where the report stood in its topic")
_PUBLISHED: Final = column(
    "published_at",
    TIMESTAMP,
    "when the report was published; null if the topic does not say",
    null=True,
)
_BROKER: Final = column("broker", pa.string(), "name of the broker")
_GROUP: Final = column("resource_group", pa.string(), "name of the resource group")


def _reason(dimension: str) -> list[pa.Field]:
    rate = f"{dimension}_per_s"
    return [
        column(f"{dimension}_reason_code", pa.int32(), f"why {rate} is what it is", null=True),
        column(
            f"{dimension}_reason_numbers",
            list_of(pa.float64()),
            "the numbers of the reason; null = the limit is no law's",
            null=True,
        ),
    ]


USAGE: Final = appended(
    "usage",
    "Usage of each resource group as each broker reported it: one row per report entry.",
    [
        _BROKER,
        _GROUP,
        _PUBLISHED,
        _POSITION,
        column("window_ms", pa.int64(), "the time over which the rates were measured", null=True),
        column(
            "counted",
            pa.bool_(),
            "limits were decided with it; false: it was too old, or its broker sent too many at "
            "once; null = true",
            null=True,
        ),
        column(
            "named_every",
            pa.int64(),
            "one of so many reports of the broker names the group, or more if it changes; null = "
            "each names it",
            null=True,
        ),
        *columns(
            RATE_COLUMNS,
            "used rate per second; null = unchanged since the last report, or not reported",
        ),
        *columns(THROTTLED_COLUMNS, "refused or delayed per second; null = not reported"),
        column(
            "broker_started_at", TIMESTAMP, "the broker's start; null = not reported", null=True
        ),
        *columns(COUNTER_COLUMNS, "used since broker_started_at; null = not counted"),
    ],
    by_date=True,
    by_group=True,
)

LIMITS: Final = appended(
    "limits",
    "Limits of each broker for each resource group, and their reasons: one row per change.",
    [
        _BROKER,
        _GROUP,
        # Before the rates: Delta keeps statistics of a table's first 32 columns.
        column("lease_ms", pa.int64(), "how long the limit holds without being renewed"),
        column("ended", pa.bool_(), "the broker no longer has the group; the limits are void"),
        column(
            "enforced",
            pa.bool_(),
            "false: only what the limits would be, the broker is not limited; null = true",
            null=True,
        ),
        *columns(RATE_COLUMNS, "limit per second; null = unlimited"),
        *columns(DEMAND_COLUMNS, "demand that the law was given; null = saturated"),
        *columns(QUOTA_COLUMNS, "quota that the law divided; null = none"),
        *(part for name in DIMENSIONS for part in _reason(name)),
        column(
            "ended_because",
            pa.string(),
            "silent, departed or group_deleted; null = the limit did not end",
            null=True,
        ),
    ],
    by_date=True,
    by_group=True,
)

BROKERS: Final = appended(
    "brokers",
    "One row per change of a broker's status.",
    [
        _BROKER,
        column("status", pa.string(), "live, stale or gone, from this round on"),
        column("last_seen_at", TIMESTAMP, "when its last usable report was published"),
    ],
)

ROUND_TIMES: Final = {
    "duration_ms": "from the micro-batch's start until its decisions were made: reading, deciding",
    "previous_duration_ms": "the micro-batch before, with history and publishing; null: first",
    "lag_ms": "age of the newest report, when the decisions were made; null: no report",
}
"""Columns of ``rounds`` that differ if the round is run again."""

ROUNDS: Final = appended(
    "rounds",
    "One row per round, written after everything else of it: a round that is here is complete. Of "
    "rounds in which nothing happened, one in half a minute has a row.",
    [
        column("positions", pa.string(), "JSON: where the round's input began and ended"),
        *(column(name, pa.int64(), text) for name, text in COLUMNS.items()),
        *(column(name, pa.int64(), text, null=True) for name, text in ROUND_TIMES.items()),
        column("law", pa.string(), "the law that divided the quotas", null=True),
        column(
            "renewal_age_ms",
            pa.int64(),
            "how long ago the limit was published that waits longest for its renewal; null: no "
            "limit, or nothing happened",
            null=True,
        ),
    ],
)

REJECTED_REPORTS: Final = appended(
    "rejected_reports",
    "Dead letters: reports that could not be used, with the reason and the raw bytes.",
    [
        _POSITION,
        _PUBLISHED,
        column("reason", pa.string(), "short code, for example truncated or stale"),
        column("detail", pa.string(), "what exactly was wrong", null=True),
        column("counts_as_bad", pa.bool_(), "the whole report was refused, and not for its age"),
        column(
            "raw",
            pa.binary(),
            "the report, or what of it could not be used; empty when there was too much",
            null=True,
        ),
        column(
            "reports",
            pa.int64(),
            "how many reports it stands for, position is of the first; null: 1; 0: not known",
            null=True,
        ),
        column(
            "sender",
            pa.string(),
            "the broker that the report names; null: it could not be read, or several",
            null=True,
        ),
    ],
)

LEFT_OUT: Final = appended(
    "left_out",
    "Reports that a round did not read, as they were too old or too many to decide with: one row "
    "per round and stretch of the topic. The job records them in `usage` later.",
    [
        column("number", pa.int64(), "number of reports left out before, in all rounds"),
        column("reports", pa.int64(), "how many reports were left out; at least 1"),
        column("positions", pa.string(), "JSON: where the stretch begins and ends"),
        column(
            "chosen",
            list_of(pa.string()),
            "positions of the reports that were left out; null = the whole stretch",
            null=True,
        ),
    ],
)

LEASES: Final = snapshot(
    "leases",
    "The newest state of each broker's use of each resource group: one row per pair. The job "
    "replaces the rows every few seconds.",
    [
        column("shard", pa.int64(), "the part of the job's state that the group belongs to"),
        _BROKER,
        _GROUP,
        column("broker_status", pa.string(), "live or stale"),
        column("seen_at", TIMESTAMP, "when the newest report that names the group was published"),
        column("has_limit", pa.bool_(), "a limit was issued; else all limits are null"),
        column("enforced", pa.bool_(), "false: the broker is not limited, the limit is computed"),
        column(
            "lease_ends_at",
            TIMESTAMP,
            "when the lease ends if the limit is not sent again; null = not sent",
            null=True,
        ),
        *columns(USED_COLUMNS, "used rate per second in the newest report"),
        *columns(DEMAND_COLUMNS, "estimated demand; null = saturated, not known"),
        *columns(LIMIT_COLUMNS, "limit per second; null = unlimited"),
    ],
    by="shard",
)

RECORDING: Final = appended(
    "recording",
    "The quota job's inputs as each shard got them, and its state from time to time: what "
    "`quotaplane replay` runs again.",
    [
        column("shard", pa.int64(), "the part of the state; -1 = the job's settings"),
        column(
            "kind",
            pa.string(),
            "reports, groups, rejected, departures, timer (nothing arrived), state, settings",
        ),
        column("payload", pa.binary(), "Arrow IPC streams; departures, settings: JSON"),
    ],
    by_date=True,
)

_AMOUNT: Final = (
    "used on this day: messages, bytes, partitions or milliseconds, not a rate; null = not reported"
)

USAGE_DAILY: Final = Table(
    "usage_daily",
    "Usage of each resource group by each broker on each past day. `quotaplane maintain` "
    "makes the rows, once for each day.",
    pa.schema(
        [
            column("date", pa.date32(), "the UTC day"),
            column(
                "tenant", pa.string(), 'the part of the group\'s name before the first "/" or "::"'
            ),
            _GROUP,
            _BROKER,
            column("reports", pa.int64(), "reports that name the group"),
            column(
                "covered",
                pa.float64(),
                "the part of the day for which the broker's reports are there, 0 to 1",
                null=True,
            ),
            column(
                "by_counters",
                pa.bool_(),
                "true: all amounts are differences of the broker's counters; else some are rates "
                "times their windows",
                null=True,
            ),
            *columns(DIMENSIONS, _AMOUNT),
            *columns(
                (f"throttled_{name}" for name in DIMENSIONS), "refused or delayed on this day"
            ),
            *columns((f"peak_{name}" for name in RATE_COLUMNS), "highest reported rate per second"),
        ]
    ),
    partition_by=("date",),
    properties=HOT,
)

LEADERS: Final = Table(
    "leaders",
    "The process of each job that leads: only it may write to the history and publish. A job "
    "claims the row when it starts, and ends when it finds another claim there.",
    pa.schema(
        [
            column("job", pa.string(), "quota or balance"),
            column("epoch", pa.int64(), "of the leader's checkpoint"),
            column("checkpoint_id", pa.string(), "which checkpoint that is"),
            column("claim_id", pa.string(), "random; another one for each process"),
            column("process", pa.string(), "where the leader runs: process id, host, checkpoint"),
            column("claimed_at", TIMESTAMP, "when it began to lead"),
        ]
    ),
    properties=HOT,
)

_POLICY: Final = [
    column(name, option.column_type, option.comment, null=True)
    for name, option in BY_COLUMN.items()
]

# Changes are rare, and the change feed is the audit trail: its log is kept for a year. Data files
# that a change replaced are not part of that and go after a week.
_CHANGE_FEED: Final = {
    "delta.enableChangeDataFeed": "true",
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.logRetentionDuration": "interval 365 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
}
_UPDATED: Final = [
    column("updated_at", TIMESTAMP, "when the row was last written"),
    column("updated_by", pa.string(), "who wrote it"),
]

RESOURCE_GROUPS: Final = Table(
    "resource_groups",
    "The quotas. Its change feed drives the job and says who changed what, when, from and to.",
    pa.schema(
        [
            _GROUP,
            *columns(RATE_COLUMNS, "the group's global quota per second; null = unlimited"),
            *_POLICY,
            *_UPDATED,
        ]
    ),
    properties=_CHANGE_FEED,
)

ATTACHMENTS: Final = Table(
    "attachments",
    "Attachments to resource groups, without tenants and namespaces of a Pulsar cluster "
    "that groups are copied from. Its change feed says who changed what, when, from and to.",
    pa.schema(
        [
            column("kind", pa.string(), "scope, tenant, namespace or topic"),
            column(
                "name", pa.string(), "user=alice,client=a; acme; acme/a; how names of topics begin"
            ),
            _GROUP,
            *_UPDATED,
        ]
    ),
    properties=_CHANGE_FEED,
)

ADMINISTRATOR_RATES: Final = Table(
    "administrator_rates",
    "Rates that administrators set on topics and namespaces of a Pulsar cluster, as the enforcer "
    "found them: it enforces no higher ones, and writes a topic's again when it leaves the topic.",
    pa.schema(
        [
            column("cluster", pa.string(), "name of the Pulsar cluster"),
            column("place", pa.string(), "full name of the topic, or the namespace: tenant/name"),
            column("kind", pa.string(), "publish or dispatch"),
            _GROUP,
            *columns(("messages_per_s", "bytes_per_s"), "null = unlimited"),
            column(
                "policy",
                pa.string(),
                "the rate as Pulsar has it, JSON; null: of a namespace, where it stays",
                null=True,
            ),
            column("seen_at", TIMESTAMP, "when the enforcer read it"),
            column("seen_by", pa.string(), "the process that read it, and its host"),
        ]
    ),
    properties=HOT,
)

APPENDED: Final = (USAGE, LIMITS, BROKERS, REJECTED_REPORTS, LEFT_OUT, LEASES, RECORDING, ROUNDS)
"""The tables that a round of the quota job writes, rounds last."""


BYTES_COLUMNS: Final = ("payload", "raw")
"""Columns of all tables that have bytes."""


def column_properties() -> dict[str, ColumnProperties]:
    """Parquet properties of columns with bytes: no statistics.

    Statistics have the smallest and the largest value; of payloads, these would be most of the
    file.
    """
    from deltalake import ColumnProperties  # executors start sooner without it

    bytes_only = ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
    return dict.fromkeys(BYTES_COLUMNS, bytes_only)


TABLES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        *(RESOURCE_GROUPS, *APPENDED, USAGE_DAILY, ATTACHMENTS, LEADERS, ADMINISTRATOR_RATES),
        *(table for each in extensions() for table in load(each.tables)),
    )
}
"""All tables by name; ``store.ensure_tables`` makes them."""
