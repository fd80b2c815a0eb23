"""Load reports for tests: of our format and of Pulsar's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_batch import DecodedLoads, LoadBounds, decode_load_reports

NOW_MS: Final = 1_700_000_000_000
BOUNDS: Final = LoadBounds()


def bundle_of(number: int, namespace: str = "acme/orders") -> str:
    """One of 256 bundles of a namespace."""
    return f"{namespace}/0x{number << 24:08x}_0x{min((number + 1) << 24, 0xFFFFFFFF):08x}"


def load_of(
    broker: str = "b1:8080",
    bytes_per_s: Sequence[float] = (1e6,),
    *,
    first: int = 0,
    sequence: int = 1,
    at_ms: int = NOW_MS,
    cpu: float = 10.0,
    **more: Any,
) -> BrokerLoad:
    """A report with a bundle for each of the throughputs (half of it is in)."""
    count = len(bytes_per_s)
    loads = np.array(bytes_per_s, float)
    rates = np.stack([loads / 2, loads / 2, loads / 2000, loads / 2000], axis=1)
    given = {
        "usage": np.array([cpu, 1.0, 1.0, 10.0, 10.0]),
        "limit": np.array([100.0, 100.0, 100.0, 1e6, 1e6]),
        "bundles": [bundle_of(first + number) for number in range(count)],
        "rates": rates,
        "topics": np.full(count, 3),
        "sessions": np.full(count, 5),
        **more,
    }
    return BrokerLoad(broker, 1_000, sequence, at_ms, **given)


def local_broker_data(broker: str = "b1:8080", bundles: int = 1, **more: Any) -> dict[str, Any]:
    """A ``LocalBrokerData`` as Pulsar 4.0 writes it, without the fields that nobody reads."""
    stats = {
        bundle_of(number): {
            "msgRateIn": 10.0,
            "msgThroughputIn": 1000.0,
            "msgRateOut": 20.0,
            "msgThroughputOut": 2000.0,
            "consumerCount": 2,
            "producerCount": 1,
            "topics": 4,
            "cacheSize": 0,
        }
        for number in range(bundles)
    }
    return {
        "webServiceUrl": f"http://{broker}",
        "pulsarServiceUrl": "pulsar://b1:6650",
        "cpu": {"usage": 50.0, "limit": 400.0},
        "memory": {"usage": 100.0, "limit": 2048.0},
        "directMemory": {"usage": 10.0, "limit": 4096.0},
        "bandwidthIn": {"usage": 8.0, "limit": 10_000_000.0},
        "bandwidthOut": {"usage": 16.0, "limit": 10_000_000.0},
        "lastUpdate": NOW_MS - 1000,
        "startTimestamp": NOW_MS - 90_000,
        "lastStats": stats,
        "bundles": list(stats),
        "numTopics": 4 * bundles,
        "loadReportType": "LocalBrokerData",
        **more,
    }


def decoded(*values: bytes | dict[str, Any] | None, now_ms: int = NOW_MS) -> DecodedLoads:
    """A batch of reports, published at ``NOW_MS``."""
    raw = [json.dumps(value).encode() if isinstance(value, dict) else value for value in values]
    return decode_load_reports(
        raw,
        np.full(len(raw), NOW_MS),
        [f"loads/0@{place}" for place in range(len(raw))],
        now_ms=now_ms,
        bounds=BOUNDS,
    )


def letters(*values: bytes | dict[str, Any] | None) -> list[tuple[str, str]]:
    """Reason and detail of the dead letters of a batch."""
    rows = decoded(*values).rejected.select(["reason", "detail"]).to_pylist()
    return [(row["reason"], row["detail"]) for row in rows]
