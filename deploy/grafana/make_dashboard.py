"""Write deploy/grafana/dashboard.json, the Grafana dashboard, from the declared metrics.

Usage: python deploy/grafana/make_dashboard.py [FILE]. A panel's description is the help text of its
metrics, so a metric that is renamed or explained anew changes the dashboard with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from quotaplane.metrics.declaration import Kind, Metric
from quotaplane.metrics.of_programs import METRICS

FILE: Final = Path(__file__).parent / "dashboard.json"
_WIDTH: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_UNITS: Final = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit", "": "short"}
_PICK: Final = 'instance=~"$instance"'


class Query(NamedTuple):
    """One query of a panel."""

    metric: Metric
    expr: str
    legend: str
    unit: str


class Panel(NamedTuple):
    """One panel: its title and queries."""

    title: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"

    @property
    def description(self) -> str:
        """What its metrics are, one sentence each."""
        texts = dict.fromkeys(query.metric.help for query in self.queries)
        return " ".join(f"{text[0].upper()}{text[1:]}." for text in texts)


def _legend(metric: Metric, name: str) -> str:
    labels = " ".join(f"{{{{{label.name}}}}}" for label in metric.labels)
    return f"{name} {labels}".strip() or "{{instance}}"


def now(name: str, legend: str = "") -> Query:
    """The current value."""
    metric = METRICS[f"quotaplane_{name}"]
    unit = _UNITS[metric.unit]
    return Query(metric, f"{metric.name}{{{_PICK}}}", _legend(metric, legend), unit)


def per_second(name: str, legend: str = "") -> Query:
    """How fast a counter grows."""
    metric = METRICS[f"quotaplane_{name}"]
    return Query(metric, f"rate({metric.name}{{{_PICK}}}[5m])", _legend(metric, legend), "cps")


def since(name: str, legend: str = "") -> Query:
    """The time since a timestamp; below 0: until it."""
    metric = METRICS[f"quotaplane_{name}"]
    return Query(metric, f"time() - {metric.name}{{{_PICK}}}", _legend(metric, legend), "s")


def quantile(name: str, share: float) -> Query:
    """The duration that a share of all are below."""
    metric = METRICS[f"quotaplane_{name}"]
    by = ", ".join(("le", "instance", *(label.name for label in metric.labels)))
    rates = f"rate({metric.name}_bucket{{{_PICK}}}[5m])"
    expr = f"histogram_quantile({share:g}, sum by ({by}) ({rates}))"
    return Query(metric, expr, _legend(metric, f"{share:.0%}"), "s")


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "At a glance": (
        Panel("Version", (now("build_info"),), "table"),
        Panel("What is wrong now", (now("condition"),), "table"),
        Panel("Time since the last round", (since("round_ended_timestamp_seconds"),), "stat"),
        Panel("Lag", (now("lag_seconds"),), "stat"),
        Panel(
            "Time since the first lease ended",
            (since("least_lease_end_timestamp_seconds"),),
            "stat",
        ),
        Panel("Brokers", (now("brokers"),), "stat"),
        Panel("Groups above their quotas", (now("groups_over_quota"),), "stat"),
        Panel("Starving groups", (now("groups_starving"),), "stat"),
        Panel("Overcommitted groups", (now("groups_overcommitted"),), "stat"),
    ),
    "Rounds": (
        Panel(
            "Duration of rounds", (quantile("round_seconds", 0.5), quantile("round_seconds", 0.95))
        ),
        Panel("Duration of stages", (quantile("round_stage_seconds", 0.95),)),
        Panel("Rounds", (per_second("rounds_total"),)),
        Panel(
            "Time since the current or last round began",
            (since("round_started_timestamp_seconds"),),
        ),
        Panel("A recent micro-batch by Spark's parts", (now("spark_batch_seconds"),)),
        Panel("Backlog", (now("backlog_messages"),)),
        Panel("Free disk space", (now("disk_free_bytes"), now("disk_size_bytes", "size"))),
        Panel("Epoch", (now("epoch"),)),
    ),
    "Reports": (
        Panel("Reports by result", (per_second("reports_total"),)),
        Panel("Inputs that were not used, by reason", (per_second("rejected_total"),)),
        Panel("Reports that wait to be recorded", (now("unrecorded_reports"),)),
        Panel("Entries of groups", (per_second("report_entries_total"),)),
        Panel("Dead letters", (per_second("dead_letters_total"),)),
        Panel(
            "Age of reports in their round",
            (now("report_age_seconds"), now("lease_seconds", "not used from")),
        ),
        Panel("Age of refused reports", (now("refused_report_age_seconds"),)),
        Panel(
            "Clocks of brokers",
            (now("worst_broker_clock_seconds", "difference of the worst, seconds"),),
        ),
        Panel(
            "Clocks of hosts that were set",
            (
                now("clock_steps_total", "times, of a job"),
                now("enforcer_clock_steps_total", "times, of the enforcer"),
            ),
        ),
        Panel(
            "Time since the newest report",
            (since("newest_report_timestamp_seconds"), now("report_interval_seconds", "interval")),
        ),
        Panel("Brokers that left the cluster's list", (now("brokers_departed_total"),)),
        Panel("Changes of quotas", (per_second("quota_changes_total"),)),
    ),
    "Groups and limits": (
        Panel("Share of the quota used, the worst groups", (now("group_quota_used_ratio"),)),
        Panel("Share of the quota used, the worst one", (now("worst_quota_used_ratio"),)),
        Panel(
            "Limits as a share of the quota",
            (now("worst_overcommit_ratio"), now("group_overcommit_ratio")),
        ),
        Panel("Groups by mode", (now("groups"),)),
        Panel(
            "Limits sent and changed",
            (
                per_second("limits_sent_total", "sent"),
                per_second("limits_changed_total", "changed"),
            ),
        ),
        Panel("Groups computed again", (per_second("groups_recomputed_total"),)),
        Panel("Limits in force", (now("limits_in_force"),)),
        Panel(
            "Messages published, and failures",
            (
                per_second("published_messages_total", "published"),
                per_second("publish_failures_total", "failures"),
            ),
        ),
        Panel("Shards in learning mode", (now("learning_shards"),)),
        Panel("Observed pairs of broker and group", (now("observed_pairs"),)),
        Panel("Reports unlike observations", (per_second("sources_differing_total"),)),
        Panel("Standby", (now("standby"),), "stat"),
        Panel("Lease", (now("lease_seconds"),), "stat"),
    ),
    "Enforcer": (
        Panel("Writes of rates by result", (per_second("enforcer_rate_writes_total"),)),
        Panel("Waiting writes", (now("enforcer_waiting_writes"),)),
        Panel("Rates in force", (now("enforcer_rates_in_force"), now("enforcer_topics", "topics"))),
        Panel("Age of the newest limits", (since("enforcer_limits_timestamp_seconds"),)),
        Panel("Age of limits on arrival", (now("enforcer_limits_on_arrival_seconds"),)),
        Panel(
            "Limits by lease",
            (now("enforcer_limits_in_force", "running"), now("enforcer_ended_limits", "ended")),
        ),
        Panel(
            "Time since the first lease ended",
            (since("enforcer_least_lease_end_timestamp_seconds"),),
        ),
        Panel("Failures by part", (per_second("enforcer_failures_total"),)),
        Panel(
            "Take-over",
            (
                now("enforcer_take_over", "on"),
                per_second("enforcer_taken_over_total", "taken over"),
                per_second("enforcer_given_back_total", "given back"),
                per_second("enforcer_closed_connections_total", "closed connections"),
            ),
        ),
        Panel("Usage reports sent", (per_second("enforcer_usage_reports_total"),)),
        Panel("Leader", (now("enforcer_leads", "leads"),)),
        Panel(
            "Brokers and groups",
            (now("enforcer_brokers", "brokers"), now("enforcer_groups", "groups")),
        ),
        Panel(
            "Reads of rates, writes of namespaces",
            (
                per_second("enforcer_rate_reads_total", "reads"),
                per_second("enforcer_namespace_writes_total", "namespaces"),
            ),
        ),
        Panel(
            "Limits that are not used",
            (per_second("enforcer_refused_messages_total", "messages"),),
        ),
        Panel("Time since the enforcer's loop ran", (since("enforcer_alive_timestamp_seconds"),)),
    ),
    "Balance": (
        Panel("Decisions of the balancer", (per_second("balance_decisions_total"),)),
        Panel("Imbalance", (now("balance_imbalance_ratio"),)),
        Panel("Brokers and bundles", (now("balance_brokers"), now("balance_bundles", "bundles"))),
        Panel(
            "Load reports and rounds",
            (
                per_second("load_reports_total", "reports"),
                per_second("balance_rounds_total", "rounds"),
            ),
        ),
        Panel("Age from which numbers do not count", (now("balance_stale_after_seconds"),), "stat"),
    ),
    "Server": (
        Panel("Requests", (per_second("http_requests_total"),)),
        Panel("Duration of requests", (quantile("http_request_seconds", 0.95),)),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": _WIDTH, "h": 1}
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": place})
        top += 1
        per_line = 4 if row[0].kind != "timeseries" else 2
        width = _WIDTH // per_line
        height = _HEIGHT // 2 if per_line == 4 else _HEIGHT
        for number, panel in enumerate(row):
            line, column = divmod(number, per_line)
            at = {"x": column * width, "y": top + line * height, "w": width, "h": height}
            panels.append(_panel(panel, at))
        top += -(-len(row) // per_line) * height
    for number, made in enumerate(panels, 1):
        made["id"] = number
    return {
        "uid": "quotaplane",
        "title": "quotaplane",
        "tags": ["quotaplane"],
        "editable": True,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _panel(panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    instant = panel.kind != "timeseries"
    unit = panel.queries[0].unit
    made: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": _OPTIONS[panel.kind](),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": instant,
                "range": not instant,
                **({"format": "table"} if panel.kind == "table" else {}),
            }
            for number, query in enumerate(panel.queries)
        ],
    }
    return made


_OPTIONS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "timeseries": lambda: {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": lambda: {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "textMode": "auto",
    },
    "table": lambda: {"showHeader": True},
}


def _variables() -> list[dict[str, Any]]:
    info = METRICS["quotaplane_build_info"]
    assert info.kind is Kind.INFO
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Instance",
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({info.name}, instance)", "refId": "instance"},
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def text() -> str:
    """The file's text."""
    return json.dumps(dashboard(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else FILE).write_text(text(), encoding="utf-8")
