"""Load reports as Pulsar's brokers write them: ``LocalBrokerData`` as JSON.

It is what the modular load manager keeps under ``/loadbalance/brokers`` and returns for
``GET /admin/v2/broker-stats/load-report``. The extensible manager's ``BrokerLoadData`` does not
name its broker and has no bundles, so it can't be used alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import numpy as np

from quotabalance.planning.cluster_load import RATES, RESOURCES
from quotabalance.wire.broker_loads import BrokerLoad
from quotaplane.model import FloatArray, IntArray
from quotaplane.parsing.bounded_json import parse_bounded
from quotaplane.wire.reasons import (
    ABSURD,
    MISSING_FIELD,
    NOT_FINITE,
    NOT_JSON,
    TOO_MANY_ENTRIES,
    UnusableReportError,
    shown,
)

_STATS: Final = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
"""Fields of a bundle's stats, in the order of ``RATES``."""
_URLS: Final = ("webServiceUrl", "webServiceUrlTls")
_UNKNOWN: Final = -1.0
"""Pulsar's usage and limit of a resource that it did not measure."""


def is_json(value: bytes) -> bool:
    r"""Whether a report is meant to be JSON: an object begins it.

    >>> is_json(b' {"cpu": ...'), is_json(b"\x0dQPB1")
    (True, False)
    """
    return value[:64].lstrip()[:1] == b"{"


def decode_local_broker_data(
    value: bytes, published_at_ms: int, most_bundles: int = 100_000
) -> BrokerLoad:
    """Decode a ``LocalBrokerData``; names and rates of bundles are not checked.

    The broker is called as in Pulsar's list of brokers: host and port of its web service. The
    report has no number, so ``published_at_ms`` orders reports (its own time if that is unknown).

    Raises:
        UnusableReportError: the whole report can't be used.
    """
    fields = _object(_parsed(value), "the report")
    broker = next((fields[url] for url in _URLS if isinstance(fields.get(url), str)), None)
    if broker is None:
        detail = "webServiceUrl, which names the broker"
        if "weightedMaxEMA" in fields or "topBundlesLoadData" in fields:
            detail += "; the extensible manager's load data is without it"
        raise UnusableReportError(MISSING_FIELD, f"without {detail}")
    pairs = [_usage(fields, resource) for resource in RESOURCES]
    measured_at_ms = _whole(fields, "lastUpdate")
    stats = _object(fields.get("lastStats") or {}, "lastStats")
    listed = fields.get("bundles") or []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise UnusableReportError(NOT_JSON, "bundles is not a list of strings")
    # A bundle that was loaded after the last measurement has no stats yet.
    names = list(dict.fromkeys([*stats, *listed]))
    if len(names) > most_bundles:
        raise UnusableReportError(TOO_MANY_ENTRIES, f"{len(names)} bundles; at most {most_bundles}")
    rates, topics, sessions = _bundles([stats.get(name, {}) for name in names], names)
    load = BrokerLoad(
        broker=broker.rpartition("://")[2].rstrip("/"),
        started_at_ms=_whole(fields, "startTimestamp", 0),
        sequence=published_at_ms if published_at_ms >= 0 else measured_at_ms,
        measured_at_ms=measured_at_ms,
        usage=np.array([usage for usage, _ in pairs]),
        limit=np.array([limit for _, limit in pairs]),
        bundles=names,
        rates=rates,
        topics=topics,
        sessions=sessions,
    )
    load.check()
    return load


def _parsed(value: bytes) -> object:
    def refuse(name: str) -> NoReturn:
        raise UnusableReportError(NOT_FINITE, f"{name} is not a JSON number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
            raise UnusableReportError(NOT_JSON, f"the key {shown(repeated)} occurs twice")
        return found

    try:
        return parse_bounded(value, parse_constant=refuse, object_pairs_hook=unique)
    except UnusableReportError:
        raise
    except ValueError as error:  # also too many values, not UTF-8, a number with too many digits
        raise UnusableReportError(NOT_JSON, f"{error}"[:200]) from None


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnusableReportError(NOT_JSON, f"{what} is not an object")
    return value


def _usage(fields: Mapping[str, Any], resource: str) -> tuple[float, float]:
    given = _object(fields.get(resource) or {}, resource)
    usage, limit = (
        _number(given.get(name, _UNKNOWN), f"{name} of {resource}") for name in ("usage", "limit")
    )
    if limit <= 0:  # also Pulsar's percentUsage takes it as 0 %
        return (0.0 if usage == _UNKNOWN else usage), 0.0
    return usage, limit


def _number(value: object, what: str) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):  # as Jackson writes it
        raise UnusableReportError(NOT_FINITE, f"{what} is {value}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnusableReportError(NOT_JSON, f"{what} is not a number: {shown(str(value))}")
    try:
        return float(value)
    except OverflowError:
        raise UnusableReportError(ABSURD, f"{what} has too many digits") from None


def _whole(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if value is None:
        raise UnusableReportError(MISSING_FIELD, f"without {name}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnusableReportError(NOT_JSON, f"{name} is not a whole number")
    return value


def _bundles(stats: list[Any], names: list[str]) -> tuple[FloatArray, IntArray, IntArray]:
    """Rates (n, 4), topics and sessions (n) of bundles; what is missing is 0.

    A number that is none becomes NaN, so that only its bundle is refused.
    """
    for name, each in zip(names, stats, strict=True):
        _object(each, f"lastStats of {shown(name, 100)}")
    rates = np.zeros((len(names), len(RATES)))
    for place, field in enumerate(_STATS):
        rates[:, place] = [_rate(each.get(field, 0.0)) for each in stats]
    topics, consumers, producers = (
        np.array([_count(each.get(field, 0)) for each in stats], np.int64)
        for field in ("topics", "consumerCount", "producerCount")
    )
    flawed = (topics < 0) | (consumers < 0) | (producers < 0)
    rates[flawed] = np.nan
    return rates, np.maximum(topics, 0), np.maximum(consumers, 0) + np.maximum(producers, 0)


def _rate(value: object) -> float:
    try:
        return _number(value, "")
    except UnusableReportError:
        return float("nan")


def _count(value: object) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return value if good else -1  # type: ignore[return-value]
