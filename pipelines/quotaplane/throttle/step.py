"""The throttle step: request events to decisions and metrics. For dry runs and the throttle job.

Pure, and the same on a stream and on a table: ``(states, events, now) -> (states, decided)``.
Events may come in any order; those of one step are answered in order of time. An event is late if
it is older than the newest that an earlier step answered for its entity: it is answered as of that
newest time, or rejected if it is too late. An event ahead of now counts as of now.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.errors import ThrottlingQuotaExceededError
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray, IntArray
from quotaplane.throttle import meter as meters
from quotaplane.throttle.entities import EntityStates
from quotaplane.throttle.requests import CODES, TOO_LATE, Bounds, in_order, read
from quotaplane.throttle.types import Answers, Requests

DECIDED: Final = pa.schema(
    [
        pa.field("admitted", pa.bool_(), nullable=False),
        pa.field("throttle_ms", pa.int64()),
        pa.field("balance", pa.float64()),
        pa.field("error", pa.string()),
        pa.field("late_ms", pa.int64(), nullable=False),
        pa.field("enforced", pa.bool_(), nullable=False),
    ]
)
"""Columns that are added to an answered event.

``throttle_ms``: how long the client must wait or, if refused, when it may retry; 0: not at all,
null: for ever. ``balance``: units left; null without a quota. ``error``: the error for a refused
client, else null. ``late_ms``: how much older the event is than the newest one answered before it,
as of whose time it was answered; 0: not late. ``enforced``: False if the group's mode is soft or
shadow, or its ``enforcement_percent`` below 100; the other columns are then hypothetical.
"""

METRICS: Final = pa.schema(
    [
        pa.field("entity", pa.string(), nullable=False),
        pa.field("dimension", pa.string(), nullable=False),
        pa.field("since_ms", pa.int64(), nullable=False),
        pa.field("until_ms", pa.int64(), nullable=False),
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in ("events", "refused", "delayed", "late")
        ),
        pa.field("units_asked", pa.float64(), nullable=False),
        pa.field("units_admitted", pa.float64(), nullable=False),
        pa.field("rate_per_s", pa.float64()),
        pa.field("tokens", pa.float64()),
        pa.field("throttle_ms", pa.float64()),
    ]
)
"""An entity's activity in a step, and KIP-599's metrics as of its last event (``until_ms``).

``rate_per_s`` and ``tokens`` are null without a quota; ``throttle_ms`` is null if nothing was
throttled in the last 11 seconds, or something for ever.
"""

_MAX_MS: Final = 2.0**63


class Decided(NamedTuple):
    """The results of a step."""

    decisions: pa.Table
    """The usable events in their order of arrival, with the columns of ``DECIDED``."""
    rejected: pa.Table
    """The other events, with ``reason``: a key of ``REASONS``."""
    metrics: pa.Table
    """One row of ``METRICS`` per entity with answers."""


def decide(
    states: EntityStates, events: pa.Table, now_ms: int, bounds: Bounds
) -> tuple[EntityStates, Decided]:
    """Answer events (``requests.EVENTS``); returns the new states, ``states`` is not modified.

    Events without a quota are admitted. Two steps give the same result as one with the events of
    both, unless an event of the second is late, or any event is ahead of now.

    >>> from quotaplane.throttle.entities import begin
    >>> states = begin(pa.table({"group": ["a"], "publish_messages_per_s": [5.0]}))
    >>> events = pa.table({"entity": ["a", "b"], "at_ms": [1000, 1000], "units": [7.0, 9.0]})
    >>> states, decided = decide(states, events, 1000, Bounds(60_000, 30_000))
    >>> decided.decisions.select(["entity", "throttle_ms", "balance"]).to_pylist()
    [{'entity': 'a', 'throttle_ms': 400, 'balance': -2.0},
     {'entity': 'b', 'throttle_ms': 0, 'balance': None}]
    """
    at_ms, units, dimension, reason = read(events, now_ms, bounds)
    used = np.flatnonzero(reason < 0)
    asker, names, dimensions = _askers(events["entity"].take(pa.array(used)), dimension[used])
    states, entity = states.with_all(names, dimensions)

    last_ms = np.append(states.last_ms, 0)[entity][asker]  # entity -1 reads the appended 0
    late_ms = np.maximum(last_ms - at_ms[used], 0)
    in_time = late_ms <= bounds.late_ms
    reason[used[~in_time]] = CODES.index(TOO_LATE)
    used, asker, late_ms = used[in_time], asker[in_time], late_ms[in_time]
    # Without this cap, one client with a fast clock would make all others' events late.
    at_ms, units = np.minimum(at_ms[used], now_ms), units[used]
    counted_ms = np.maximum(at_ms, last_ms[in_time])

    usable = events if len(used) == len(events) else events.take(pa.array(used))
    order = in_order(asker, at_ms, usable)
    order = order[entity[asker[order]] >= 0]
    requests = Requests(entity[asker[order]], counted_ms[order], units[order])
    states, own_answers = states.answer(requests)

    n = len(used)
    answers = Answers(np.ones(n, np.bool_), np.zeros(n), np.full(n, np.inf))
    for whole, part in zip(answers, own_answers, strict=True):
        whole[order] = part
    columns = (names, dimensions, entity)
    counts = _counts(len(entity), asker, at_ms, counted_ms, units, late_ms, answers)
    return states, Decided(
        _with_answers(usable, answers, late_ms, states.enforces(names)[asker]),
        _with_reasons(events, reason),
        _metrics(states, columns, counts),
    )


def _askers(
    names: pa.ChunkedArray, dimension: IntArray
) -> tuple[IntArray, pa.StringArray, IntArray]:
    """The distinct pairs of name and dimension, and the index of each event's pair."""
    coded = names.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    pair = coded.indices.to_numpy() * np.int64(len(DIMENSIONS)) + dimension
    occurs = np.bincount(pair, minlength=len(coded.dictionary) * len(DIMENSIONS)) > 0
    number = np.cumsum(occurs) - 1
    code, dimensions = np.divmod(np.flatnonzero(occurs), len(DIMENSIONS))
    return number[pair], coded.dictionary.take(pa.array(code)), dimensions


def _counts(
    askers: int,
    asker: IntArray,
    at_ms: IntArray,
    counted_ms: IntArray,
    units: FloatArray,
    late_ms: IntArray,
    answers: Answers,
) -> dict[str, Any]:
    """Per asker (a,): columns of ``METRICS``."""

    def count(weights: Any = None) -> Any:
        return np.bincount(asker, weights, minlength=askers)

    oldest = np.full(askers, np.iinfo(np.int64).max)
    np.minimum.at(oldest, asker, at_ms)
    newest = np.zeros(askers, np.int64)
    np.maximum.at(newest, asker, counted_ms)
    return {
        "since_ms": oldest,
        "until_ms": newest,
        "events": count(),
        "refused": count(~answers.admitted).astype(np.int64),
        "delayed": count(answers.admitted & (answers.throttle_ms > 0)).astype(np.int64),
        "late": count(late_ms > 0).astype(np.int64),
        "units_asked": count(units),
        "units_admitted": count(np.where(answers.admitted, units, 0.0)),
    }


def _metrics(
    states: EntityStates, askers: tuple[pa.StringArray, IntArray, IntArray], counts: dict[str, Any]
) -> pa.Table:
    names, dimensions, entity = askers
    busy = np.flatnonzero(counts["events"])
    limited = entity[busy] >= 0
    own = entity[busy][limited]
    bank, meter = states.bank.take(own), states.meter.take(own)
    measured = meters.metrics(meter, bank, states.last_ms[own])
    columns = {name: column[busy] for name, column in counts.items()}
    for name, column in zip(measured._fields, measured, strict=True):
        values = np.full(len(busy), np.nan)
        values[limited] = column
        columns[name] = _finite(values)
    columns["entity"] = names.take(pa.array(busy))
    columns["dimension"] = pa.array(DIMENSIONS).take(pa.array(dimensions[busy]))
    return pa.table({name: columns[name] for name in METRICS.names}, schema=METRICS)


def _with_answers(
    events: pa.Table, answers: Answers, late_ms: IntArray, enforced: BoolArray
) -> pa.Table:
    known = answers.throttle_ms < _MAX_MS
    whole = np.where(known, answers.throttle_ms, 0.0).astype(np.int64)
    refused = pa.array(np.where(answers.admitted, -1, 0), mask=answers.admitted)
    columns = (
        pa.array(answers.admitted),
        pa.array(whole, mask=~known),
        _finite(answers.balance),
        pa.array([ThrottlingQuotaExceededError.name]).take(refused),
        pa.array(late_ms),
        pa.array(enforced),
    )
    for field, column in zip(DECIDED, columns, strict=True):
        events = events.append_column(field, column)
    return events


def _with_reasons(events: pa.Table, reason: IntArray) -> pa.Table:
    bad = np.flatnonzero(reason >= 0)
    texts = pa.array(CODES).take(pa.array(reason[bad]))
    field = pa.field("reason", pa.string(), nullable=False)
    return events.take(pa.array(bad)).append_column(field, texts)


def _finite(values: FloatArray) -> pa.Array:
    return pa.array(values, mask=~np.isfinite(values))
