"""Settings of reports: the origin of brokers' names, the allowed names, the reports used."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, field_validator

from quotaplane.settings.section import Section

CLUSTER: Final = "cluster"
"""``allowed_brokers``: the Pulsar cluster's own list."""

_MOST_PATTERNS: Final = 10_000
_MOST_CHARS: Final = 256


class Senders(Section):
    """The names of brokers that are used; usage reports and load reports have the same settings."""

    broker_from: Literal["payload", "key", "topic"] = "payload"
    """Origin of the broker's name. ``key``, ``topic``: the message key, or the topic's name, must
    name the same broker as the report; other reports are dead letters. ``topic`` needs a report
    topic per broker (docs/security.md)."""
    allowed_brokers: tuple[str, ...] | Literal["cluster"] | None = None
    """Patterns of the allowed names (``*``: any characters, ``?``: one), or ``cluster``: the Pulsar
    cluster's list of active brokers. null: every name."""
    max_brokers: int | None = Field(default=10_000, ge=1)
    """Most known brokers. Reports of further ones are not used, those of known ones always; null:
    no bound."""

    @field_validator("allowed_brokers")
    @classmethod
    def _patterns(cls, patterns: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        if not isinstance(patterns, tuple):
            return patterns
        if not patterns:
            raise ValueError("no broker would be allowed; leave it out to allow every name")
        if len(patterns) > _MOST_PATTERNS or any(len(one) > _MOST_CHARS for one in patterns):
            raise ValueError(
                f"at most {_MOST_PATTERNS} patterns of at most {_MOST_CHARS} characters"
            )
        if not all(patterns):
            raise ValueError("a pattern is empty")
        return patterns


class Reports(Senders):
    """Brokers' reports, and the conditions for their use."""

    interval_s: float = Field(default=5.0, gt=0)
    """Interval at which a broker reports; also the period of stock Pulsar's usage counts."""
    max_clock_skew_s: float = Field(default=30.0, ge=0)
    """A report is not used if it was published further in the future than this, or if its broker
    started then. The enforcer ignores limits that were decided further in the future."""
    max_report_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """A longer report is not used; a broker with more groups than fit needs more."""
    stop_when_unusable_intervals: float | None = Field(default=None, ge=3)
    """End the job (exit code 5) after this many intervals in which reports arrived and none was
    usable, because of a wrong clock or another format. null: never; a warning comes after 3
    intervals."""
