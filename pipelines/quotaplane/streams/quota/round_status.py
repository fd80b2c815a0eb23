"""Status line and metrics of a round of the quota job."""

from __future__ import annotations

import time
from collections.abc import Mapping

from quotaplane.metrics.readings import Key
from quotaplane.model import MODES
from quotaplane.round_counts import RoundCounts
from quotaplane.streams.quota.report_watch import DUPLICATE, OUTDATED, Arrivals
from quotaplane.streams.status import StatusUpdate


def quota_status(
    counts: RoundCounts,
    arrivals: Arrivals,
    dead_letters: int,
    now_ms: int,
    lease_s: float,
    wrong_clocks: Mapping[str, float],
) -> StatusUpdate:
    """The counts of all shards, by the names of the status line and of the metrics' sources.

    ``dead_letters``: rows that the round appends to ``rejected_reports``. ``wrong_clocks``: see
    ``BrokerClocks.wrong``.
    """
    events = counts.events()
    repeated = {DUPLICATE: counts.duplicates, OUTDATED: counts.outdated}
    results = {
        "used": counts.reports,
        "rejected": counts.rejected,
        "uncounted": counts.uncounted,
        **repeated,
    }
    return StatusUpdate(
        counts={**events, "limits": counts.limits_sent, "dead_letters": dead_letters},
        rejected={**counts.rejected_by_reason, **repeated},
        gauges=_gauges(counts, arrivals, now_ms, lease_s)
        | {"worst_clock_s": next(iter(wrong_clocks.values()), 0.0)},
        arrived=arrivals.total,
        counts_by={"reports_by_result": _by_one_label(results)},
        gauges_by=_gauges_by(counts, now_ms),
    )


def _gauges(
    counts: RoundCounts, arrivals: Arrivals, now_ms: int, lease_s: float
) -> dict[str, float]:
    state = counts.state()
    gauges = {name: value for name, value in state.items() if not isinstance(value, Mapping)}
    if counts.newest_report_ms:
        gauges["newest_report"] = counts.newest_report_ms / 1000
        gauges["lag_s"] = time.time() - counts.newest_report_ms / 1000
    if counts.oldest_renewal_ms:
        gauges["least_lease_end"] = counts.oldest_renewal_ms / 1000 + lease_s
    if arrivals.age_s is not None:
        gauges["refused_age_s"] = arrivals.age_s
    return gauges


def _gauges_by(counts: RoundCounts, now_ms: int) -> dict[str, dict[Key, float]]:
    state = {name: value for name, value in counts.state().items() if isinstance(value, Mapping)}
    gauges = {name: _by_one_label(value) for name, value in state.items()}
    for name in ("groups", "groups_over_quota"):
        gauges[name] = dict.fromkeys(((mode,) for mode in MODES), 0.0) | gauges[name]
    brokers = {"live": counts.brokers_live, "stale": counts.brokers_stale}
    gauges["brokers"] = _by_one_label(brokers)
    times = {"newest": counts.newest_report_ms, "oldest": counts.oldest_report_ms}
    if all(times.values()):
        ages_s = {report: (now_ms - at_ms) / 1000 for report, at_ms in times.items()}
        gauges["report_age_s"] = _by_one_label(ages_s)
    return gauges


def _by_one_label(numbers: Mapping[str, float]) -> dict[Key, float]:
    return {(value,): number for value, number in numbers.items()}
