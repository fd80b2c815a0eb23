"""Settings of brokers' usage reports."""

from __future__ import annotations

from pydantic import Field

from quotaplane.settings.senders import Senders


class Reports(Senders):
    """Brokers' reports, and which of them are used."""

    interval_s: float = Field(default=5.0, gt=0)
    """How often a broker reports; also the period of stock Pulsar's usage counts."""
    max_clock_skew_s: float = Field(default=30.0, ge=0)
    """A report is not used if it was published further in the future than this, or if its broker
    started then. The enforcer ignores limits that were decided further in the future."""
    max_report_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """A longer report is not used; a broker with more groups than fit needs more."""
    stop_when_unusable_intervals: float | None = Field(default=None, ge=3)
    """End the job (exit code 5) after so many intervals in which reports arrived and none was
    usable: a wrong clock, another format. null: never; a warning comes after 3 intervals."""
