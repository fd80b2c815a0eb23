"""``LoadReport`` messages, which say what one broker carries: encoding and decoding."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from quotabalance.planning.cluster_load import RATES
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.pb.balance_pb2 import LoadReport
from quotaplane.model import FloatArray, IntArray
from quotaplane.wire.packed_columns import ColumnView
from quotaplane.wire.reasons import (
    LENGTH_MISMATCH,
    NOT_PROTOBUF,
    TOO_MANY_ENTRIES,
    WRONG_PROTOBUF,
    UnusableReportError,
)
from quotaplane.wire.report_own import FAMILY

LOAD_HEAD: Final = FAMILY + b"B1"
LEAST_BUNDLE_BYTES: Final = 27
"""Bytes of the shortest bundle's name, ``t/n/0x00000000_0x00000001``, with tag and length."""
_MAGIC: Final = int.from_bytes(LOAD_HEAD[1:], "little")
_REPORT: Final = ColumnView(LoadReport)
_RATE_FIELDS: Final = (
    *("bytes_in_per_s", "bytes_out_per_s"),
    *("messages_in_per_s", "messages_out_per_s"),
)
"""The fields of ``RATES``, in their order."""


def encode_load_report(load: BrokerLoad) -> bytes:
    """Encode a load report.

    >>> load = BrokerLoad("b1", 1, 7, 5_000, np.zeros(5), np.zeros(5),
    ...     ["acme/orders/0x00000000_0xffffffff"], np.array([[1e6, 2e6, 10.0, 20.0]]))
    >>> value = encode_load_report(load)
    >>> value[:9].hex(" "), decode_load_report(value).rates.tolist()
    ('0d 51 50 42 31 12 02 62 31', [[1000000.0, 2000000.0, 10.0, 20.0]])

    Raises:
        UnusableReportError: a number or a length with which no receiver could use the report; the
            bundles' names and rates are not checked.
    """
    load.check()
    message: Any = LoadReport(
        magic=_MAGIC,
        broker=load.broker,
        started_at_ms=load.started_at_ms,
        sequence=load.sequence,
        measured_at_ms=load.measured_at_ms,
        draining=load.draining,
        topics=load.topics.tolist(),
        sessions=load.sessions.tolist(),
    )
    columns: dict[str, Any] = {"usage": load.usage, "limit": load.limit, "bundles": load.names()}
    columns.update(zip(_RATE_FIELDS, load.rates.T, strict=True))
    return _REPORT.write(message, columns)


def decode_load_report(value: bytes, most_bundles: int = 100_000) -> BrokerLoad:
    """Decode a load report; names and rates of bundles are not checked (``bundle_checks``).

    Raises:
        UnusableReportError: the whole report can't be used.
    """
    if value[:5] != LOAD_HEAD:
        begins = value[:5].hex(" ") or "nothing"
        raise UnusableReportError(WRONG_PROTOBUF, f"not a LoadReport: it begins with {begins}")

    def check_count(view: Any) -> None:
        count = len(view.bundles)
        if count > most_bundles or count * LEAST_BUNDLE_BYTES > len(value):
            raise UnusableReportError(
                TOO_MANY_ENTRIES, f"{count} bundles in {len(value)} bytes; at most {most_bundles}"
            )
        if max(len(view.topics), len(view.sessions)) > count:
            raise UnusableReportError(LENGTH_MISMATCH, f"more topics or sessions than {count}")

    try:
        message, columns = _REPORT.parse(value, check_count)
    except DecodeError:
        raise UnusableReportError(
            NOT_PROTOBUF, f"{len(value)} bytes that are not a LoadReport, or truncated"
        ) from None
    count = len(message.bundles)
    rates = np.zeros((count, len(RATES)))
    for place, name in enumerate(_RATE_FIELDS):
        rates[:, place] = _of_length(columns[name], name, count)
    load = BrokerLoad(
        broker=message.broker,
        started_at_ms=message.started_at_ms,
        sequence=message.sequence,
        measured_at_ms=message.measured_at_ms,
        usage=columns["usage"].astype(np.float64),
        limit=columns["limit"].astype(np.float64),
        bundles=list(message.bundles),
        rates=rates,
        topics=np.array(message.topics, np.int64),
        sessions=np.array(message.sessions, np.int64),
        draining=message.draining,
    )
    load.check()
    return load


def _of_length(column: FloatArray | IntArray, name: str, count: int) -> FloatArray | IntArray:
    if len(column) != count:
        raise UnusableReportError(
            LENGTH_MISMATCH, f"{name} has {len(column)} values for {count} bundles"
        )
    return column
