"""Brokers that left their cluster's list, as an input of the quota job's rounds: JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

DEPARTURES: Final = "departures"
"""Kind of the input."""

_COLUMNS: Final = pa.schema(
    [
        pa.field("broker", pa.string(), nullable=False),
        pa.field("left_at_ms", pa.int64(), nullable=False),
    ]
)
"""A row per broker that is not in the cluster's list and was there; ``left_at_ms``: when the first
list without it was read."""


def pack_departures(left_at_ms: Mapping[str, int]) -> bytes:
    """Encode the departures by broker."""
    return json.dumps(left_at_ms, sort_keys=True).encode()


def unpack_departures(payloads: Sequence[bytes]) -> pa.Table:
    """Decode departures; each broker has one row.

    >>> unpack_departures([pack_departures({"b1": 7})]).to_pylist()
    [{'broker': 'b1', 'left_at_ms': 7}]
    """
    left_at_ms: dict[str, int] = {}
    for payload in payloads:
        left_at_ms |= json.loads(payload)
    return pa.table([list(left_at_ms), list(left_at_ms.values())], schema=_COLUMNS)
