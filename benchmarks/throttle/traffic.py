"""Random requests of many entities, more or less evenly spread over them."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import FloatArray
from quotaplane.throttle.types import Quotas, Requests

SPREADS: Final = ("uniform", "Zipf(1.1)", "one hot entity")
SECONDS: Final = 60
_UNITS: Final = 10.0
"""Mean units of a request."""
_TIMES: Final = 1.5
"""By how much what an entity asks for exceeds its quota."""
_SAMPLES, _WINDOW_MS = 11, 1000
"""Kafka's default."""


def traffic(spread: str, entities: int, count: int) -> tuple[Quotas, Requests]:
    """Requests of a minute; each entity asks for half more than its quota allows.

    Every other entity is hard. The hot entity is one of as many as ever.
    """
    random = np.random.default_rng(SPREADS.index(spread))
    part = _parts(spread, entities)
    random.shuffle(part)
    edges = part.cumsum()
    entity = np.searchsorted(edges, random.uniform(0, edges[-1], count), side="right")
    quotas = Quotas(
        np.maximum(part * count / SECONDS * _UNITS / _TIMES, 1.0),
        np.full(entities, _SAMPLES),
        np.full(entities, _WINDOW_MS),
        np.arange(entities) % 2 == 1,
    )
    begin_ms = 1_700_000_000_000
    at_ms = np.sort(random.integers(begin_ms, begin_ms + SECONDS * 1000, count))
    units = np.rint(random.uniform(0, 2 * _UNITS, count))
    return quotas, Requests(entity, at_ms, units)


def _parts(spread: str, entities: int) -> FloatArray:
    """Which part of the requests each entity has (e,), the greatest first."""
    part = {
        "uniform": np.ones(entities),
        "Zipf(1.1)": np.arange(1, entities + 1) ** -1.1,
        "one hot entity": (np.arange(entities) == 0).astype(np.float64),
    }[spread]
    parts: FloatArray = part / part.sum()
    return parts
