"""The metrics of the two jobs: quota and balance."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from quotaplane.balance.decisions import LABELS
from quotaplane.metrics.declaration import Kind, Label, Metric
from quotaplane.model import MODES
from quotaplane.round_counts import MOST_NAMED, RoundCounts
from quotaplane.wire import reasons

_HELP: Final = {each.name: each.metadata["help"] for each in fields(RoundCounts) if each.metadata}
"""Texts of the counts that are metrics as they are."""

_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

STAGES: Final = ("decide", "prepare", "history", "publish")
"""Of a round, in order: Spark reads, decodes and decides; the driver joins what the shards did;
appends it to the history; publishes it."""

SPARK_PARTS: Final = (
    *("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets"),
    "triggerExecution",
)
"""Spark's own names of what it does in a micro-batch; ``triggerExecution`` is all of it."""

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


def _counter(name: str, text: str, source: str, *labels: Label) -> Metric:
    return Metric(f"quotaplane_{name}_total", Kind.COUNTER, text, source, labels=labels)


def _gauge(name: str, text: str, source: str, *labels: Label, unit: str = "") -> Metric:
    ending = f"_{unit}" if unit else ""
    return Metric(f"quotaplane_{name}{ending}", Kind.GAUGE, text, source, unit, labels)


BUILD_INFO: Final = Metric(
    "quotaplane_build_info",
    Kind.INFO,
    "the program that runs, and its version",
    "build",
    labels=(
        Label("version", most=1),
        Label("program", ("quota", "balance", "enforcer", "server")),
    ),
)

EVERY_JOB: Final = (
    _gauge(
        "epoch", "number of the checkpoint: the time of its first start, in s since 1970", "epoch"
    ),
    _counter("rounds", "rounds that ended", "rounds"),
    ROUND_SECONDS,
    STAGE_SECONDS,
    _gauge(
        "round_started_timestamp",
        "when the current or last round began; above the end of the last round: it is running",
        "round_started",
        unit="seconds",
    ),
    _gauge(
        "round_ended_timestamp",
        "when the last round ended; before the first one: when the job started",
        "round_ended",
        unit="seconds",
    ),
    _gauge(
        "spark_batch",
        "how long Spark took for each part of a recent micro-batch, by Spark's names",
        "spark_s",
        Label("part", SPARK_PARTS),
        unit="seconds",
    ),
    _gauge(
        "lag",
        "age of the newest report at the end of its round",
        "lag_s",
        unit="seconds",
    ),
    _counter("clock_steps", "times that the clock of the job's host was set", "clock_steps"),
    _gauge(
        "backlog_messages", "messages that wait in the job's input topics (Kafka only)", "backlog"
    ),
    _counter(
        "rejected",
        "inputs that were not used, by reason: the key rejected of the status line",
        "rejected",
        Label("reason", _ALL_REASONS),
    ),
    _counter("dead_letters", "rows of rejected_reports", "dead_letters"),
    _counter("published_messages", "messages published to the job's output topic", "published"),
    _counter(
        "publish_failures",
        "rounds whose messages could not be published; the job ends, and its next start publishes "
        "them again",
        "publish_failures",
    ),
    _gauge(
        "disk_free",
        "free space of the file system that a local folder is on, as of the last round",
        "disk_free_bytes",
        Label("folder", ("history", "checkpoint")),
        unit="bytes",
    ),
    _gauge(
        "disk_size",
        "size of the file system that a local folder is on",
        "disk_size_bytes",
        Label("folder", ("history", "checkpoint")),
        unit="bytes",
    ),
)

NEWEST_REPORT: Final = _gauge(
    "newest_report_timestamp",
    "when the newest report was published, by the clock that stamps reports",
    "newest_report",
    unit="seconds",
)
ACCESS_REFUSED: Final = _gauge(
    "access_refused",
    "requests (of the resource group sync, or of the server) that the cluster refuses at present "
    "for lack of rights (401, 403)",
    "access_refused",
)
_MODE: Final = Label("mode", MODES)
_WORST: Final = Label("group", most=MOST_NAMED)

QUOTA_JOB: Final = (
    _counter(
        "reports",
        "reports by what became of them; rejected: not used, or only in part",
        "reports_by_result",
        Label("result", ("used", "duplicate", "outdated", "rejected", "uncounted")),
    ),
    _gauge(
        "unrecorded_reports",
        "reports that rounds left out, which are still to be recorded in usage",
        "unrecorded",
    ),
    _counter("report_entries", "entries of groups in the reports that were used", "entries"),
    NEWEST_REPORT,
    _gauge(
        "report_age",
        "time of the round minus publish time, of the newest and of the oldest report of the last "
        "round with reports; below 0: the clock that stamps reports is ahead",
        "report_age_s",
        Label("report", ("newest", "oldest")),
        unit="seconds",
    ),
    _gauge(
        "refused_report_age",
        "median age of the reports that were last refused as stale or future; with a wrong clock "
        "it is the clocks' difference",
        "refused_age_s",
        unit="seconds",
    ),
    _gauge(
        "brokers_with_wrong_clock",
        "brokers whose reports are, and stay, older than slow rounds explain, or from the future",
        "wrong_clocks",
    ),
    _gauge(
        "worst_broker_clock",
        "age of the reports of the worst of these brokers; below 0: its clock is ahead",
        "worst_clock_s",
        unit="seconds",
    ),
    _counter("quota_changes", _HELP["quota_changes"], "quota_changes"),
    ACCESS_REFUSED,
    _gauge(
        "brokers",
        "brokers that report (live), and that fell silent and have not expired (stale)",
        "brokers",
        Label("status", ("live", "stale")),
    ),
    _counter("brokers_departed", _HELP["brokers_departed"], "brokers_departed"),
    _gauge("groups", _HELP["groups"], "groups", _MODE),
    _gauge("groups_over_quota", _HELP["groups_over_quota"], "groups_over_quota", _MODE),
    _gauge("worst_quota_used", _HELP["worst_quota_used"], "worst_quota_used", unit="ratio"),
    _gauge("group_quota_used", _HELP["shares"], "shares", _WORST, unit="ratio"),
    _gauge("groups_starving", _HELP["groups_starving"], "groups_starving"),
    _gauge("groups_overcommitted", _HELP["groups_overcommitted"], "groups_overcommitted"),
    _gauge("worst_overcommit", _HELP["worst_overcommit"], "worst_overcommit", unit="ratio"),
    _gauge("group_overcommit", _HELP["overcommits"], "overcommits", _WORST, unit="ratio"),
    _counter("groups_recomputed", _HELP["groups_recomputed"], "groups_recomputed"),
    _counter("limits_changed", _HELP["limits_changed"], "limits_changed"),
    _counter("limits_sent", _HELP["limits_sent"], "limits_sent"),
    _gauge("limits_in_force", _HELP["limits_in_force"], "limits_in_force"),
    _gauge(
        "least_lease_end_timestamp",
        "when the first lease of a limit ends unless it is renewed; limits of stale brokers do not "
        "count",
        "least_lease_end",
        unit="seconds",
    ),
    _gauge("observed_pairs", _HELP["observed_pairs"], "observed_pairs"),
    _counter("sources_differing", _HELP["sources_differing"], "sources_differing"),
    _gauge("learning_shards", _HELP["learning_shards"], "learning_shards"),
    _gauge("lease", "the setting limits.lease_s", "lease_s", unit="seconds"),
    _gauge("report_interval", "the setting reports.interval_s", "interval_s", unit="seconds"),
)

BALANCE_JOB: Final = (
    _counter("load_reports", "load reports used", "reports"),
    NEWEST_REPORT,
    _counter("balance_rounds", "rounds of the balancer: decisions taken", "decided"),
    _counter(
        "balance_decisions",
        "decisions by kind and label; most labels are Pulsar's own words",
        "decisions",
        Label("decision", ("move", "split", "skip")),
        Label("label", tuple(LABELS)),
    ),
    _gauge(
        "balance_brokers",
        "brokers with fresh numbers (live), and with too old ones (silent)",
        "balance_brokers",
        Label("status", ("live", "silent")),
    ),
    _gauge("balance_bundles", "bundles in the newest load reports", "bundles"),
    _gauge(
        "balance_imbalance",
        "by how much the bytes per second of the most loaded broker exceed the mean of all",
        "imbalance",
        unit="ratio",
    ),
    _gauge(
        "balance_stale_after",
        "age from which a broker's numbers do not count, the option stale_after_s",
        "stale_after_s",
        unit="seconds",
    ),
)
