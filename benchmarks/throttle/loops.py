"""The throttle laws request by request in plain Python: lists and floats, no array anywhere.

The fastest of these is what the arrays are compared with.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from quotaplane.throttle import token_bucket
from quotaplane.throttle.types import Quotas, Requests


class Prepared(NamedTuple):
    """Data of a service: state, terms and mode by entity; entity, time and units of requests."""

    states: list[list[Any]]
    terms: list[tuple[Any, ...]]
    hard: list[bool]
    entity: list[int]
    at_ms: list[float]
    units: list[float]


class Told(NamedTuple):
    """The answers, as ``quotaplane.throttle.types.Answers``."""

    admitted: list[bool]
    throttle_ms: list[float]
    balance: list[float]


def prepare(form: Any, quotas: Quotas, requests: Requests) -> Prepared:
    """Everything as Python's own numbers."""
    return Prepared(
        [list(fields) for fields in zip(*(f.T.tolist() for f in form.begin(quotas)), strict=True)],
        list(zip(*(field.tolist() for field in form.terms(quotas)), strict=True)),
        quotas.hard.tolist(),
        requests.entity.tolist(),
        requests.at_ms.astype(float).tolist(),
        requests.units.tolist(),
    )


def one_by_one(form: Any, given: Prepared) -> Told:
    """Each request as it comes, by the law's own plain loop."""
    told = Told([], [], [])
    for one, now, asked in zip(given.entity, given.at_ms, given.units, strict=True):
        (refused,), (over_ms,), (left,) = form.sequence(
            given.states[one], given.terms[one], [now], [asked]
        )
        waits = over_ms > 0 and (refused or not given.hard[one])
        told.admitted.append(not refused)
        told.throttle_ms.append(_rounded(over_ms) if waits else 0.0)
        told.balance.append(left)
    return told


def by_entity(form: Any, given: Prepared) -> Told:
    """All requests of an entity together, by the law's own plain loop."""
    rows_of: dict[int, list[int]] = {}
    for row, one in enumerate(given.entity):
        if one in rows_of:
            rows_of[one].append(row)
        else:
            rows_of[one] = [row]
    n = len(given.entity)
    told = Told([True] * n, [0.0] * n, [0.0] * n)
    for one, rows in rows_of.items():
        outcomes = form.sequence(
            given.states[one],
            given.terms[one],
            [given.at_ms[row] for row in rows],
            [given.units[row] for row in rows],
        )
        soft = not given.hard[one]
        for row, refused, over_ms, left in zip(rows, *outcomes, strict=True):
            told.balance[row] = left
            if over_ms > 0 and (refused or soft):
                told.admitted[row] = not refused
                told.throttle_ms[row] = _rounded(over_ms)
    return told


def token_bucket_by_hand(form: Any, given: Prepared) -> Told:
    """The token bucket without a function call per request, nor anything general."""
    assert form is token_bucket
    last_ms, tokens = map(list, zip(*given.states, strict=True))
    rates, bursts, _ = map(list, zip(*given.terms, strict=True))
    hard = given.hard
    told = Told([], [], [])
    for one, now, asked in zip(given.entity, given.at_ms, given.units, strict=True):
        rate = rates[one]
        left = tokens[one] + rate * ((now - last_ms[one]) / 1000.0)
        if left > bursts[one]:
            left = bursts[one]
        refused = left < 0 and hard[one]
        if not refused:
            left -= asked
        last_ms[one], tokens[one] = now, left
        waits = left < 0 and (refused or not hard[one])
        told.admitted.append(not refused)
        told.throttle_ms.append(float(math.floor(-left / rate * 1000 + 0.5)) if waits else 0.0)
        told.balance.append(left)
    return told


def _rounded(over_ms: float) -> float:
    return float(math.floor(over_ms + 0.5)) if over_ms < math.inf else over_ms
