"""The metrics of the balance job."""

from __future__ import annotations

from typing import Final

from quotabalance.planning.decisions import LABELS
from quotaplane.metrics.declaration import Label
from quotaplane.metrics.of_jobs import NEWEST_REPORT, counter, gauge

BALANCE_JOB: Final = (
    counter("load_reports", "load reports used", "reports"),
    NEWEST_REPORT,
    counter("balance_rounds", "rounds of the balancer: decisions taken", "decided"),
    counter(
        "balance_decisions",
        "decisions by kind and label; most labels are Pulsar's own words",
        "decisions",
        Label("decision", ("move", "split", "skip")),
        Label("label", tuple(LABELS)),
    ),
    gauge(
        "balance_brokers",
        "brokers with fresh numbers (live), and with too old ones (silent)",
        "balance_brokers",
        Label("status", ("live", "silent")),
    ),
    gauge("balance_bundles", "bundles in the newest load reports", "bundles"),
    gauge(
        "balance_imbalance",
        "by how much the bytes per second of the most loaded broker exceed the mean of all",
        "imbalance",
        unit="ratio",
    ),
    gauge(
        "balance_stale_after",
        "age from which a broker's numbers do not count, the option stale_after_s",
        "stale_after_s",
        unit="seconds",
    ),
)
