"""When a stock broker sends a load report, and for how long an unloaded bundle is left alone."""

from __future__ import annotations

from typing import Final, NamedTuple

from quotabalance.planning.cluster_load import RESOURCES, ClusterLoad
from quotabalance.stock.bundle_ranking import max_usage, traffic_of
from quotabalance.stock.java import percent_usage
from quotabalance.stock.stock_settings import StockSettings

_MINUTE_S: Final = 60


class BrokerSummary(NamedTuple):
    """The numbers that a broker compares with its last report."""

    messages_per_s: float
    """In and out together, of all bundles."""
    bytes_per_s: float
    """As ``messages_per_s``."""
    bundles: int
    usage: float
    """The greatest use of a resource; 1 = the whole limit. Memory does not count."""


def summaries(
    load: ClusterLoad, settings: StockSettings, *, extensible: bool
) -> list[BrokerSummary]:
    """The summary of each broker. Only the modular manager gives resources weights."""
    if extensible:
        columns = [number for number, name in enumerate(RESOURCES) if name != "memory"]
        usage = percent_usage(load.usage, load.limit)[:, columns].max(axis=1) / 100
    else:
        usage = max_usage(load, settings)
    traffic = traffic_of(load)
    columns_of = (traffic.messages_per_s, traffic.bytes_per_s, traffic.bundles, usage)
    return [
        BrokerSummary(*row) for row in zip(*(column.tolist() for column in columns_of), strict=True)
    ]


def needs_report(
    last: BrokerSummary, now: BrokerSummary, age_s: float, settings: StockSettings
) -> bool:
    """Whether the broker reports (``needBrokerDataUpdate``, the same in both managers).

    Args:
        last: what the last report said.
        now: what is measured.
        age_s: time since the last report. (Of the modular manager it is the time since the last
            *measurement that was reported*.)
        settings: ``loadBalancerReportUpdate...``.

    Usage is compared in points, all else in per cent: from 80 to 89 % use is no reason.

    >>> last = BrokerSummary(100.0, 1e6, 10, 0.80)
    >>> needs_report(last, last._replace(usage=0.89), 60, StockSettings())
    False
    >>> needs_report(last, last._replace(messages_per_s=111.0), 60, StockSettings())
    True
    """
    if age_s > settings.loadBalancerReportUpdateMaxIntervalMinutes * _MINUTE_S:
        return True
    return greatest_change(last, now) > settings.loadBalancerReportUpdateThresholdPercentage


def greatest_change(last: BrokerSummary, now: BrokerSummary) -> float:
    """The number that is compared with the threshold; infinite if something starts from 0."""
    return max(
        percent_change(last.messages_per_s, now.messages_per_s),
        percent_change(last.bytes_per_s, now.bytes_per_s),
        percent_change(last.bundles, now.bundles),
        100.0 * abs(last.usage - now.usage),
    )


def percent_change(old: float, new: float) -> float:
    """How much a number has changed, in per cent of what it was.

    >>> percent_change(4, 5), percent_change(0, 0), percent_change(0, 1e-9)
    (25.0, 0.0, inf)
    """
    if old == 0:
        return 0.0 if new == 0 else float("inf")
    return 100 * abs((old - new) / old)


def is_recent(unloaded_s: float, now_s: float, settings: StockSettings) -> bool:
    """Whether a bundle was unloaded less than the grace period ago, or exactly as long.

    >>> is_recent(0, 1800, StockSettings()), is_recent(0, 1800.001, StockSettings())
    (True, False)
    """
    grace_s = settings.loadBalancerSheddingGracePeriodMinutes * _MINUTE_S
    return unloaded_s >= now_s - grace_s
