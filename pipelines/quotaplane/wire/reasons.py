"""Codes of dead letters: why a report, or a part of it, can't be used."""

from __future__ import annotations

from typing import Final

from quotaplane.errors import InputError
from quotaplane.model import MAX_BROKER_CHARS

EMPTY: Final = "empty"
TOO_LARGE: Final = "too_large"
NOT_PROTOBUF: Final = "not_protobuf"
WRONG_PROTOBUF: Final = "wrong_protobuf"
MISSING_FIELD: Final = "missing_field"
NO_BROKER: Final = "no_broker"
BAD_GROUP: Final = "bad_group"
LENGTH_MISMATCH: Final = "length_mismatch"
NEGATIVE: Final = "negative"
NOT_FINITE: Final = "not_finite"
ABSURD: Final = "absurd"
FUTURE: Final = "future"
STALE: Final = "stale"
TOO_MANY_ENTRIES: Final = "too_many_entries"
TOO_MANY_REPORTS: Final = "too_many_reports"
TOO_MUCH: Final = "too_much"
SKIPPED_BATCH: Final = "skipped_batch"
GONE: Final = "gone"
NOT_JSON: Final = "not_json"
BAD_BUNDLE: Final = "bad_bundle"
NOT_NEWER: Final = "not_newer"
TOO_MANY_BUNDLES: Final = "too_many_bundles"
TOO_MANY_BROKERS: Final = "too_many_brokers"
OTHER_BROKER: Final = "other_broker"
BROKER_NOT_ALLOWED: Final = "broker_not_allowed"
OTHER_INCARNATION: Final = "other_incarnation"
TWO_INCARNATIONS: Final = "two_incarnations"

REASONS: Final = {
    EMPTY: "no bytes at all",
    TOO_LARGE: "longer than reports.max_report_bytes; not parsed",
    NOT_PROTOBUF: "can't be parsed: truncated, or never was one of our messages",
    WRONG_PROTOBUF: "parses, but is another message",
    MISSING_FIELD: "a required field of the stock format is missing",
    NO_BROKER: "the broker's name is empty, too long or not printable",
    BAD_GROUP: "a group's name is empty, too long or not printable, or its id is negative",
    LENGTH_MISMATCH: "a column is not as long as the list of groups, or names and ids are mixed",
    NEGATIVE: "a rate below zero",
    NOT_FINITE: "an infinite rate, or NaN where it has no meaning",
    ABSURD: "an impossible number: a rate above 10 to the 15 per second, a count beyond 63 bits",
    FUTURE: "published, or its broker started, more than reports.max_clock_skew_s ahead of now",
    STALE: "published more than limits.lease_s ago (usage reports of a stored topic are recorded "
    "later)",
    TOO_MANY_ENTRIES: "more entries than its size allows; of single entries: too many new names",
}
"""Descriptions of the codes that ``decode`` gives."""

NOT_BAD: Final = frozenset(
    {
        STALE,
        TOO_MANY_REPORTS,
        TOO_MUCH,
        NOT_NEWER,
        TOO_MANY_BUNDLES,
        TOO_MANY_BROKERS,
        OTHER_INCARNATION,
        TWO_INCARNATIONS,
    }
)
"""Reasons for refusing reports that may be well-formed, as a healthy system has after a pause."""

LOAD_REASONS: Final = {
    NOT_JSON: "begins like JSON, but is not; has too many values or levels; a field has another "
    "type or occurs twice",
    BAD_BUNDLE: "a bundle's name is not one of Pulsar's, or is in the report twice",
    NOT_NEWER: "its broker has sent a report with the same or a later start time and sequence",
    TOO_MANY_BUNDLES: "more bundles of all brokers than the job keeps",
}
"""Descriptions of the codes that only load reports have."""

BROKER_REASONS: Final = {
    OTHER_BROKER: "names another broker than its key or topic (broker_from)",
    BROKER_NOT_ALLOWED: "names a broker that is not one of allowed_brokers",
    TOO_MANY_BROKERS: "of a broker that is not known, and there are max_brokers known ones",
    OTHER_INCARNATION: "of another incarnation of its broker than the one that counts, which may "
    "still report, as after a quick restart (usage reports; with a later start they are recorded)",
    TWO_INCARNATIONS: "of another incarnation of its broker than the one that counts, which goes "
    "on to report: two programs use one name (usage reports)",
}
"""Descriptions of the codes that are about the broker that a report names."""

BATCH_REASONS: Final = {
    TOO_MANY_REPORTS: "its broker sent newer ones, and more than a round can read (usage reports "
    "of a stored topic are recorded later)",
    TOO_MUCH: "the micro-batch already had as many bytes or entries as one task decodes; not read "
    "(usage reports of a topic that stores them are recorded later)",
    SKIPPED_BATCH: "an administrator skipped the micro-batch; one letter for all of its reports",
    GONE: "was to be recorded in usage later, and its topic does not have it any more",
}
"""Descriptions of the codes of reports that never reach ``decode``."""


class UnusableReportError(InputError):
    """A whole report can't be used: ``reason`` is the code, the message is the detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def shown(name: str, most: int = 60) -> str:
    r"""A name from outside, in a form that fits into one line of a log or a table.

    >>> shown("a\nb")
    "'a\\nb'"
    >>> shown("x" * 100, most=5)
    "'xxxxx'..."
    """
    return repr(name) if len(name) <= most else f"{name[:most]!r}..."


def check_broker(broker: str) -> str:
    """Return the broker's name if it is valid.

    Raises:
        UnusableReportError: with ``no_broker``.
    """
    if not broker:
        raise UnusableReportError(NO_BROKER, "the broker's name is empty")
    if len(broker) > MAX_BROKER_CHARS:
        raise UnusableReportError(
            NO_BROKER,
            f"the broker's name has {len(broker)} characters (at most {MAX_BROKER_CHARS})",
        )
    if not broker.isprintable():
        raise UnusableReportError(NO_BROKER, f"the broker's name is not printable: {shown(broker)}")
    return broker
