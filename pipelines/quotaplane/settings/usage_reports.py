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
    """Origin of the broker's name; a report with another name is refused. Set ``key``, or ``topic``
    (of usage reports; one each), where others may write."""
    allowed_brokers: tuple[str, ...] | Literal["cluster"] | None = None
    """Names that count: patterns (``*``, ``?``), or ``cluster``: those that the Pulsar cluster
    lists. null: all. Set it where others may write to the topics."""

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
    """Interval at which brokers report; also the period of stock Pulsar's counts. Set it to that of
    your brokers."""
    max_clock_skew_s: float = Field(default=30.0, ge=0)
    """Reports and limits from further in the future are not used. Leave it; raise it only while
    clocks can't be synchronised."""
    max_report_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """A longer report is not used. Raise it if a broker has more groups than fit, and the topic's
    own bound with it."""
    max_brokers: int | None = Field(default=10_000, ge=1)
    """Most known brokers; reports of further ones are not used. Raise it for a larger cluster; set
    your number of brokers where others may write. null: no bound."""
    stop_when_unusable_intervals: float | None = Field(default=None, ge=3)
    """End the job (exit code 5) after so many intervals in which no report was usable. null: never.
    Set it if a supervisor should notice."""
