"""Settings of brokers' usage reports."""

from __future__ import annotations

from pydantic import Field

from quotaplane.settings.senders import Senders


class Reports(Senders):
    """Brokers' reports, and the conditions for their use."""

    interval_s: float = Field(default=5.0, gt=0)
    """Interval at which a broker reports; also the period of stock Pulsar's usage counts."""
    max_clock_skew_s: float = Field(default=30.0, ge=0)
    """A report is not used if it was published further in the future than this, or if its broker
    started then. The enforcer ignores limits that were decided further in the future."""
    max_report_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    max_entries_per_report: int = Field(default=300_000, ge=1)
    """A report with more groups is not used; in a batch of many reports, nor is one whose groups
    have a few bytes each (docs/wire.md)."""
    max_reports_per_broker: int = Field(default=16, ge=1)
    """Most reports of one broker used of those that arrive together: the newest."""
    max_rate_per_s: float = Field(default=1e15, gt=0)
    """Higher usage counts as noise."""
    stop_when_unusable_intervals: float | None = Field(default=None, ge=3)
    """End the job (exit code 5) after this many intervals in which reports arrived and none was
    usable, because of a wrong clock or another format. null: never; a warning comes after 3
    intervals."""
