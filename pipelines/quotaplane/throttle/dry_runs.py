"""Answers recorded requests as the throttle laws would have.

An entity is a name in a dimension; its quota is that of the group with the name. Events come in
pieces, so that any number of them need only the memory of one piece.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import one_chunk
from quotaplane.model import DIMENSIONS, MAX_RATE, FloatArray, IntArray
from quotaplane.throttle import bank as banks
from quotaplane.throttle import meter as meters
from quotaplane.throttle.bank import Bank
from quotaplane.throttle.definitions import quotas_of
from quotaplane.throttle.meter import Meter
from quotaplane.throttle.types import Answers, Quotas, Requests

DECIDED: Final = pa.schema(
    [
        pa.field("admitted", pa.bool_(), nullable=False),
        pa.field("throttle_ms", pa.int64()),
        pa.field("balance", pa.float64()),
    ]
)
"""Columns that are added to an answered event.

``throttle_ms``: how long the client must wait or, if refused, when it may retry; 0: not at all,
null: for ever. ``balance``: units left; null without a quota.
"""

METRICS: Final = pa.schema(
    [
        pa.field("entity", pa.string(), nullable=False),
        pa.field("dimension", pa.string(), nullable=False),
        pa.field("since", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("until", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("events", pa.int64(), nullable=False),
        pa.field("refused", pa.int64(), nullable=False),
        pa.field("delayed", pa.int64(), nullable=False),
        pa.field("units_asked", pa.float64(), nullable=False),
        pa.field("units_admitted", pa.float64(), nullable=False),
        pa.field("quota_per_s", pa.float64()),
        pa.field("rate_per_s", pa.float64()),
        pa.field("tokens", pa.float64()),
        pa.field("throttle_ms", pa.float64()),
    ]
)
"""An entity's totals from its first event to its last one, and KIP-599's metrics as of the last.

``delayed``: admitted and to wait. ``quota_per_s``, ``rate_per_s`` and ``tokens`` are null without a
quota; ``throttle_ms`` is the mean over what was throttled in the last 11 s, null: nothing, or for
ever.
"""

REASONS: Final = {
    "no_entity": "the entity is missing or empty",
    "no_time": "the time is missing, or before 1970",
    "bad_units": f"the units are missing, not a number, below 0, or above {MAX_RATE:g}",
    "bad_dimension": "there is no such dimension",
}
"""Descriptions of why an event can't be used; of several reasons the first one is given."""

_REASON: Final = pa.field("reason", pa.string(), nullable=False)
_MAX_MS: Final = 2.0**63
"""More is for ever."""


class Tried(NamedTuple):
    """The results of one piece."""

    decisions: pa.Table
    """The usable events with the columns ``DECIDED``, in the order of the piece."""
    metrics: pa.Table
    """Rows of ``METRICS`` of the entities that have no event after this piece."""
    rejected: pa.Table
    """The other events, with ``reason``: a key of ``REASONS``."""


class _Totals(NamedTuple):
    """Sums over the events of e entities, (e,) each."""

    since_ms: IntArray
    until_ms: IntArray
    events: IntArray
    refused: IntArray
    delayed: IntArray
    units_asked: FloatArray
    units_admitted: FloatArray


@dataclass(frozen=True)
class Entities:
    """The states of e entities, in the order of their events."""

    definitions: pa.Table
    """As for ``definitions.quotas_of``."""
    names: pa.StringArray
    """(e,)"""
    dimension: IntArray
    """(e,) indexes into ``DIMENSIONS``."""
    bank: Bank
    meter: Meter
    totals: _Totals

    def __len__(self) -> int:
        return len(self.names)

    def metrics(self) -> pa.Table:
        """Their rows of ``METRICS``."""
        totals = self.totals._asdict()
        since, until = (
            pa.array(totals.pop(name) * 1000, pa.timestamp("us", "UTC"))
            for name in ("since_ms", "until_ms")
        )
        rate, tokens, throttle_ms = meters.metrics(self.meter, self.bank, self.totals.until_ms)
        quota = self.bank.quotas.rate_per_s
        columns = {
            "entity": self.names,
            "dimension": pa.array(DIMENSIONS).take(pa.array(self.dimension)),
            "since": since,
            "until": until,
            **totals,
            "quota_per_s": _finite(quota),
            "rate_per_s": _finite(np.where(np.isfinite(quota), rate, np.nan)),
            "tokens": _finite(tokens),
            "throttle_ms": _finite(throttle_ms),
        }
        return pa.table(columns, schema=METRICS)

    def part(self, begin: int, end: int) -> Entities:
        """The entities from ``begin`` up to, not with, ``end``."""
        chosen = np.arange(begin, end)
        return Entities(
            self.definitions,
            self.names.slice(begin, end - begin),
            self.dimension[chosen],
            self.bank.take(chosen),
            self.meter.take(chosen),
            _Totals(*(column[chosen] for column in self.totals)),
        )

    def grown(self, names: pa.StringArray, dimension: IntArray) -> Entities:
        """These, and after them new ones."""
        names = pa.concat_arrays([self.names, names])
        dimension = np.concatenate([self.dimension, dimension])
        added = len(names) - len(self)
        return Entities(
            self.definitions,
            names,
            dimension,
            self.bank.change(*quotas_of(self.definitions, names, dimension)),
            meters.grown(self.meter, len(names)),
            _Totals(*(_padded(column, added) for column in self.totals)),
        )


def begin(definitions: pa.Table) -> Entities:
    """No entities yet; ``definitions`` as for ``definitions.quotas_of``."""
    none = np.zeros(0, np.int64)
    empty = _Totals(none, none, none, none, none, np.zeros(0), np.zeros(0))
    names = pa.array([], pa.string())
    return Entities(
        definitions, names, none, banks.begin(none, Quotas.of([])), meters.begin(0), empty
    )


def answer(entities: Entities, events: pa.Table) -> tuple[Entities, Tried]:
    """Answer one piece; returns the entity that may have events in the next one, and the results.

    Args:
        entities: from ``begin``, or from the piece before.
        events: in the order of entity, dimension and time, with the columns ``entity``, ``at_ms``
            (epoch milliseconds), ``units`` and ``dimension`` (null: ``DIMENSIONS[0]``). Others
            are passed through. The events of an entity may be in several pieces.

    >>> groups = pa.table({"group": ["a"], "publish_messages_per_s": [5.0]})
    >>> events = pa.table({"entity": ["a", "b"], "at_ms": [1000, 1000], "units": [7.0, 9.0],
    ...     "dimension": pa.nulls(2, pa.string())})
    >>> entities, tried = answer(begin(groups), events)
    >>> tried.decisions.select(["entity", "throttle_ms", "balance"]).to_pylist()
    [{'entity': 'a', 'throttle_ms': 400, 'balance': -2.0},
     {'entity': 'b', 'throttle_ms': 0, 'balance': None}]
    >>> tried.metrics["entity"].to_pylist(), entities.metrics()["entity"].to_pylist()
    (['a'], ['b'])
    """
    at_ms, units, dimension, reason = _read(events)
    used = reason < 0
    usable = events.filter(pa.array(used))
    entity, names, dimensions = _entities_of(usable["entity"], dimension[used])
    before = len(entities)
    if before and len(names):
        same = entities.names[0] == names[0] and entities.dimension[0] == dimensions[0]
        names, dimensions, entity = names[int(same) :], dimensions[int(same) :], entity - int(same)
    requests = Requests(entity + before, at_ms[used], units[used])
    grown = entities.grown(names, dimensions)
    bank, answers = grown.bank.answer(requests)
    after = replace(
        grown,
        bank=bank,
        meter=meters.record(grown.meter, requests, answers),
        totals=_added(grown.totals, requests, answers),
    )
    last = max(len(after) - 1, 0)
    metrics = after.part(0, last).metrics()
    return after.part(last, len(after)), Tried(
        _with_answers(usable, answers), metrics, _with_reasons(events, reason)
    )


def _read(events: pa.Table) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
    """Times, units, dimensions and indexes into ``REASONS`` (-1: usable) of n events, (n,) each.

    >>> events = pa.table({"entity": ["a", "", "b"], "at_ms": [5, 5, None], "units": [1.0, 1, -1],
    ...     "dimension": [None, None, "x"]})
    >>> _read(events)[3].tolist()
    [-1, 0, 1]
    """
    at_ms = events["at_ms"].fill_null(-1).to_numpy()
    units = events["units"].cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
    names = events["dimension"].fill_null(DIMENSIONS[0])
    dimension = pc.index_in(names, value_set=pa.array(DIMENSIONS)).fill_null(-1).to_numpy()
    flaws = (
        pc.equal(events["entity"], "").fill_null(True).to_numpy(),
        at_ms < 0,
        # More than any quota: such a use would never be paid off.
        ~((units >= 0) & (units <= MAX_RATE)),
        dimension < 0,
    )
    reason = np.full(len(events), -1, np.int64)
    for code, flawed in reversed(list(enumerate(flaws))):
        reason[flawed] = code
    return at_ms, units, dimension.astype(np.int64), reason


def _entities_of(
    names: pa.ChunkedArray, dimension: IntArray
) -> tuple[IntArray, pa.StringArray, IntArray]:
    """The number of each event's entity (n,), and names and dimensions of the entities (e,)."""
    whole = one_chunk(names)
    other = pc.not_equal(whole[1:], whole[:-1]).to_numpy(zero_copy_only=False)
    begins = np.ones(len(whole), np.bool_)
    begins[1:] = other | (np.diff(dimension) != 0)
    return np.cumsum(begins) - 1, whole.filter(pa.array(begins)), dimension[begins]


def _added(totals: _Totals, requests: Requests, answers: Answers) -> _Totals:
    """The totals (e,) with further requests."""

    def count(which: Any) -> Any:
        return np.bincount(requests.entity, which, minlength=len(totals.events))

    first, until_ms = np.full(len(totals.events), np.iinfo(np.int64).max), totals.until_ms.copy()
    np.minimum.at(first, requests.entity, requests.at_ms)
    np.maximum.at(until_ms, requests.entity, requests.at_ms)
    return _Totals(
        np.where(totals.events > 0, totals.since_ms, first),
        until_ms,
        totals.events + np.bincount(requests.entity, minlength=len(totals.events)),
        totals.refused + count(~answers.admitted).astype(np.int64),
        totals.delayed + count(answers.admitted & (answers.throttle_ms > 0)).astype(np.int64),
        totals.units_asked + count(requests.units),
        totals.units_admitted + count(np.where(answers.admitted, requests.units, 0.0)),
    )


def _with_answers(events: pa.Table, answers: Answers) -> pa.Table:
    known = answers.throttle_ms < _MAX_MS
    whole = np.where(known, answers.throttle_ms, 0.0).astype(np.int64)
    columns = (
        pa.array(answers.admitted),
        pa.array(whole, mask=~known),
        _finite(answers.balance),
    )
    for field, column in zip(DECIDED, columns, strict=True):
        events = events.append_column(field, column)
    return events


def _with_reasons(events: pa.Table, reason: IntArray) -> pa.Table:
    bad = np.flatnonzero(reason >= 0)
    texts = pa.array(list(REASONS)).take(pa.array(reason[bad]))
    return events.take(pa.array(bad)).append_column(_REASON, texts)


def _padded(column: Any, count: int) -> Any:
    return np.pad(column, (0, count))


def _finite(values: FloatArray) -> pa.Array:
    return pa.array(values, mask=~np.isfinite(values))
