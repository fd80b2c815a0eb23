"""The metrics of the jobs: what all have, then those of the quota job."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from quotaplane.agents.known_conditions import CONDITIONS
from quotaplane.extensions import extensions, load
from quotaplane.metrics.declaration import Kind, Label, Metric
from quotaplane.model import MODES
from quotaplane.round_counts import MOST_NAMED, RoundCounts
from quotaplane.wire import reasons

_HELP: Final = {each.name: each.metadata["help"] for each in fields(RoundCounts) if each.metadata}
"""Texts of the counts that are metrics as they are."""

_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

STAGES: Final = ("decide", "prepare", "history", "publish")
"""The stages of a round, in order: Spark reads, decodes and decides; the driver joins the outputs
of the shards, appends them to the history, and publishes them."""

SPARK_PARTS: Final = (
    *("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets"),
    "triggerExecution",
)
"""Spark's own names of the parts of a micro-batch; ``triggerExecution`` is the whole."""

REPORT_REASONS: Final = (
    *reasons.REASONS,
    *reasons.BATCH_REASONS,
    *reasons.BROKER_REASONS,
    *("unknown_group", "bad_definition", "duplicate", "outdated"),
)
LOAD_REASONS: Final = (
    *reasons.REASONS,
    *reasons.BATCH_REASONS,
    *reasons.BROKER_REASONS,
    *reasons.LOAD_REASONS,
)
_ALL_REASONS: Final = tuple(dict.fromkeys((*REPORT_REASONS, *LOAD_REASONS)))

ROUND_SECONDS: Final = Metric(
    "quotaplane_round_seconds",
    Kind.HISTOGRAM,
    "how long a round took, from the start of its work in the driver to its end",
    "round",
    unit="seconds",
    buckets=_SECONDS,
)
STAGE_SECONDS: Final = Metric(
    "quotaplane_round_stage_seconds",
    Kind.HISTOGRAM,
    "how long a stage of a round took: Spark reads, decodes and decides; the driver joins the "
    "results of the shards; appends them to the history; publishes them",
    "stage",
    unit="seconds",
    labels=(Label("stage", STAGES),),
    buckets=_SECONDS,
)


JOBS_OF_EXTENSIONS: Final = {
    job: metrics for each in extensions() for job, metrics in each.metrics.items()
}
"""Where the metrics of further jobs are, by the job's name."""


def counter(name: str, text: str, source: str, *labels: Label) -> Metric:
    """A counter ``quotaplane_NAME_total``; ``source`` is its name in ``Readings``."""
    return Metric(f"quotaplane_{name}_total", Kind.COUNTER, text, source, labels=labels)


def gauge(name: str, text: str, source: str, *labels: Label, unit: str = "") -> Metric:
    """A gauge ``quotaplane_NAME``, which ends with its unit; ``source`` as of a counter."""
    ending = f"_{unit}" if unit else ""
    return Metric(f"quotaplane_{name}{ending}", Kind.GAUGE, text, source, unit, labels)


BUILD_INFO: Final = Metric(
    "quotaplane_build_info",
    Kind.INFO,
    "the program that runs, and its version",
    "build",
    labels=(
        Label("version", most=1),
        Label("program", ("quota", *JOBS_OF_EXTENSIONS, "enforcer", "server")),
    ),
)

ALL_CONDITIONS: Final = (
    *CONDITIONS,
    *(condition for each in extensions() for condition in load(each.conditions)),
)
"""The conditions of all programs, also of extensions."""

CONDITION: Final = gauge(
    "condition",
    "what is wrong now, by name, and with how many brokers, requests or others; 1 where it is "
    "about the program; nothing: it is not wrong",
    "conditions",
    Label("condition", tuple(each.name for each in ALL_CONDITIONS)),
)

EVERY_JOB: Final = (
    gauge(
        "epoch", "number of the checkpoint: the time of its first start, in s since 1970", "epoch"
    ),
    gauge("standby", "whether it waits, warm, while another process leads the job (1)", "standby"),
    counter("rounds", "rounds that ended", "rounds"),
    ROUND_SECONDS,
    STAGE_SECONDS,
    gauge(
        "round_started_timestamp",
        "when the current or last round began; above the end of the last round: it is running",
        "round_started",
        unit="seconds",
    ),
    gauge(
        "round_ended_timestamp",
        "when the last round ended; before the first one: when the job started",
        "round_ended",
        unit="seconds",
    ),
    gauge(
        "spark_batch",
        "how long Spark took for each part of a recent micro-batch, by Spark's names",
        "spark_s",
        Label("part", SPARK_PARTS),
        unit="seconds",
    ),
    gauge(
        "lag",
        "age of the newest report at the end of its round",
        "lag_s",
        unit="seconds",
    ),
    counter("clock_steps", "times that the clock of the job's host was set", "clock_steps"),
    gauge(
        "backlog_messages", "messages that wait in the job's input topics (Kafka only)", "backlog"
    ),
    counter(
        "rejected",
        "inputs that were not used, by reason: the key rejected of the status line",
        "rejected",
        Label("reason", _ALL_REASONS),
    ),
    counter("dead_letters", "rows of rejected_reports", "dead_letters"),
    counter("published_messages", "messages published to the job's output topic", "published"),
    counter(
        "publish_failures",
        "rounds whose messages could not be published; the job ends, and its next start publishes "
        "them again",
        "publish_failures",
    ),
    gauge(
        "disk_free",
        "free space of the file system that a local folder is on, as of the last round",
        "disk_free_bytes",
        Label("folder", ("history", "checkpoint")),
        unit="bytes",
    ),
    gauge(
        "disk_size",
        "size of the file system that a local folder is on",
        "disk_size_bytes",
        Label("folder", ("history", "checkpoint")),
        unit="bytes",
    ),
)

NEWEST_REPORT: Final = gauge(
    "newest_report_timestamp",
    "when the newest report was published, by the clock that stamps reports",
    "newest_report",
    unit="seconds",
)
_MODE: Final = Label("mode", MODES)
_WORST: Final = Label("group", most=MOST_NAMED)

QUOTA_JOB: Final = (
    counter(
        "reports",
        "reports by what became of them; rejected: not used, or only in part",
        "reports_by_result",
        Label("result", ("used", "duplicate", "outdated", "rejected", "uncounted")),
    ),
    gauge(
        "unrecorded_reports",
        "reports that rounds left out, which are still to be recorded in usage",
        "unrecorded",
    ),
    counter("report_entries", "entries of groups in the reports that were used", "entries"),
    NEWEST_REPORT,
    gauge(
        "report_age",
        "time of the round minus publish time, of the newest and of the oldest report of the last "
        "round with reports; below 0: the clock that stamps reports is ahead",
        "report_age_s",
        Label("report", ("newest", "oldest")),
        unit="seconds",
    ),
    gauge(
        "refused_report_age",
        "median age of the reports that were last refused as stale or future; with a wrong clock "
        "it is the clocks' difference",
        "refused_age_s",
        unit="seconds",
    ),
    gauge(
        "worst_broker_clock",
        "age of the reports of the worst broker with a wrong clock; below 0: its clock is ahead",
        "worst_clock_s",
        unit="seconds",
    ),
    counter("quota_changes", _HELP["quota_changes"], "quota_changes"),
    gauge(
        "brokers",
        "brokers that report (live), and that fell silent and have not expired (stale)",
        "brokers",
        Label("status", ("live", "stale")),
    ),
    counter("brokers_departed", _HELP["brokers_departed"], "brokers_departed"),
    gauge("groups", _HELP["groups"], "groups", _MODE),
    gauge("groups_over_quota", _HELP["groups_over_quota"], "groups_over_quota", _MODE),
    gauge("worst_quota_used", _HELP["worst_quota_used"], "worst_quota_used", unit="ratio"),
    gauge("group_quota_used", _HELP["shares"], "shares", _WORST, unit="ratio"),
    gauge("groups_starving", _HELP["groups_starving"], "groups_starving"),
    gauge("groups_overcommitted", _HELP["groups_overcommitted"], "groups_overcommitted"),
    gauge("worst_overcommit", _HELP["worst_overcommit"], "worst_overcommit", unit="ratio"),
    gauge("group_overcommit", _HELP["overcommits"], "overcommits", _WORST, unit="ratio"),
    counter("groups_recomputed", _HELP["groups_recomputed"], "groups_recomputed"),
    counter("limits_changed", _HELP["limits_changed"], "limits_changed"),
    counter("limits_sent", _HELP["limits_sent"], "limits_sent"),
    gauge("limits_in_force", _HELP["limits_in_force"], "limits_in_force"),
    gauge(
        "least_lease_end_timestamp",
        "when the first lease of a limit ends unless it is renewed; limits of stale brokers do not "
        "count",
        "least_lease_end",
        unit="seconds",
    ),
    gauge("observed_pairs", _HELP["observed_pairs"], "observed_pairs"),
    counter("sources_differing", _HELP["sources_differing"], "sources_differing"),
    gauge("learning_shards", _HELP["learning_shards"], "learning_shards"),
    gauge("lease", "the setting limits.lease_s", "lease_s", unit="seconds"),
    gauge("report_interval", "the setting reports.interval_s", "interval_s", unit="seconds"),
)
