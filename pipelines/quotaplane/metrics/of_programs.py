"""The metrics of the enforcer and of the server, and the list of all metrics by program."""

from __future__ import annotations

from typing import Final

from quotaplane.extensions import load
from quotaplane.metrics.declaration import Kind, Label, Metric
from quotaplane.metrics.of_jobs import (
    BUILD_INFO,
    CONDITION,
    EVERY_JOB,
    JOBS_OF_EXTENSIONS,
    QUOTA_JOB,
)


def _counter(name: str, text: str, source: str, *labels: Label) -> Metric:
    return Metric(f"quotaplane_enforcer_{name}_total", Kind.COUNTER, text, source, labels=labels)


def _gauge(name: str, text: str, source: str, unit: str = "") -> Metric:
    ending = f"_{unit}" if unit else ""
    return Metric(f"quotaplane_enforcer_{name}{ending}", Kind.GAUGE, text, source, unit)


ENFORCER: Final = (
    _gauge(
        "alive_timestamp", "when the enforcer last read its own numbers", "alive", unit="seconds"
    ),
    _gauge("leads", "whether this enforcer leads and writes rates: 1 or 0", "leads"),
    _gauge("brokers", "brokers of the cluster", "brokers"),
    _gauge("groups", "groups with attached namespaces", "groups"),
    _gauge("topics", "topics in attached namespaces", "topics"),
    _gauge("rates_in_force", "topics with a rate", "limited"),
    _gauge("waiting_writes", "rates that should be written and are not yet", "waiting"),
    _counter(
        "rate_writes",
        "requests that write rates of topics, by result; given_back: an administrator's rate, in "
        "place of ours; vanished: the topic was deleted meanwhile",
        "writes",
        Label("result", ("written", "removed", "given_back", "vanished", "failed")),
    ),
    _counter("rate_reads", "rates of topics that were read", "read"),
    _counter("namespace_writes", "rates of namespaces that were written", "namespaces"),
    _counter(
        "failures",
        "failures of a part of the enforcer: most are requests that the cluster did not answer or "
        "refused",
        "failures",
        Label("part", most=32),
    ),
    _counter("refused_messages", "limits messages that were not used", "refused_messages"),
    _gauge("take_over", "the setting enforce.take_over: 1 or 0", "take_over"),
    _counter("taken_over", "publish quotas of groups that were taken over", "taken_over"),
    _counter("given_back", "publish quotas of groups that were given back", "quotas_given_back"),
    _counter(
        "closed_connections",
        "connections of producers that were closed after a take-over, as the cluster's own limiter "
        "still held them back",
        "closed_connections",
    ),
    _gauge(
        "limits_timestamp",
        "when the newest limits were decided",
        "newest_limits",
        unit="seconds",
    ),
    _counter("usage_reports", "reports of brokers' usage that were sent", "usage_reports"),
    _counter("clock_steps", "times that the clock of the enforcer's host was set", "clock_steps"),
    _gauge(
        "limits_on_arrival",
        "age of limits when they arrive, the least of 10 s; above 10, or below 0: the clocks of "
        "the enforcer's and the job's host differ, or messages wait",
        "limits_on_arrival_s",
        unit="seconds",
    ),
    _gauge(
        "limits_in_force",
        "limits of the cluster's brokers and groups whose lease runs",
        "limits_in_force",
    ),
    _gauge(
        "ended_limits",
        "the same with a lease that is over, so that the safe limit applies; a broker that does "
        "not use a group any more has them for good",
        "leases_over",
    ),
    _gauge(
        "least_lease_end_timestamp",
        "when the first of the running leases ends unless it is renewed",
        "least_lease_end",
        unit="seconds",
    ),
)

HTTP_REQUESTS: Final = Metric(
    "quotaplane_http_requests_total",
    Kind.COUNTER,
    "requests by method, route (the path's pattern) and status code",
    labels=(Label("method", most=8), Label("route", most=64), Label("code", most=24)),
)
HTTP_SECONDS: Final = Metric(
    "quotaplane_http_request_seconds",
    Kind.HISTOGRAM,
    "how long a request took, by route",
    unit="seconds",
    labels=(Label("route", most=64),),
    buckets=(0.005, 0.02, 0.1, 0.3, 1.0, 5.0, 30.0),
)
SERVER: Final = (HTTP_REQUESTS, HTTP_SECONDS)

PROGRAMS: Final = {
    "quota": (BUILD_INFO, CONDITION, *EVERY_JOB, *QUOTA_JOB),
    **{
        job: (BUILD_INFO, CONDITION, *EVERY_JOB, *load(name))
        for job, name in JOBS_OF_EXTENSIONS.items()
    },
    "enforcer": (BUILD_INFO, CONDITION, *ENFORCER),
    "server": (BUILD_INFO, CONDITION, *SERVER),
}
"""The metrics of each program."""

METRICS: Final = {metric.name: metric for metrics in PROGRAMS.values() for metric in metrics}
"""All metrics by name."""
