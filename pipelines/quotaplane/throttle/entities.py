"""One shard's throttle state: the definitions, the entities with quotas, and what they used.

An entity is a name in a dimension, with a quota of its own there. Names without a quota are not
stored, so arbitrary names in events cost no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrays import places
from quotaplane.arrow_ipc import pack, unpack
from quotaplane.errors import HistoryError
from quotaplane.model import (
    DIMENSIONS,
    MAX_RATE,
    MODES,
    RATE_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
)
from quotaplane.throttle import bank as banks
from quotaplane.throttle import meter as meters
from quotaplane.throttle.bank import FORMS, LAWS, Bank
from quotaplane.throttle.broker_quotas import laws_and_quotas
from quotaplane.throttle.meter import Meter
from quotaplane.throttle.types import Answers, Quotas, Requests

FORMAT: Final = "1"

Fields = TypeVar("Fields", bound=tuple[Any, ...])

DEFINITIONS: Final = pa.schema(
    [
        pa.field("group", pa.string(), nullable=False),
        *(pa.field(name, pa.float64()) for name in RATE_COLUMNS),
        pa.field("mode", pa.string()),
        pa.field("enforcement_percent", pa.float64()),
        pa.field("throttle", pa.string()),
    ]
)
"""Columns of ``resource_groups`` that apply to the entity with the group's name. A null quota is
unlimited, a null mode is hard, a null percentage 100, null terms are the defaults
(``throttle.terms``)."""

_QUOTA_FIELDS: Final = ("rate_per_s", "samples", "window_ms", "hard")
"""Fields of ``Quotas`` that definitions give; bursts follow from the windows."""

_NOT_ENFORCED: Final = tuple(mode for mode in MODES if mode != "hard")


@dataclass(frozen=True)
class EntityStates:
    """The states of e entities, and all definitions.

    The bank has a last request time, too, but loses it if the law changes; ``last_ms`` does not.
    """

    definitions: pa.Table
    """Columns of ``DEFINITIONS``, one row per group."""
    names: pa.StringArray
    """(e,)"""
    dimension: IntArray
    """(e,) indexes into ``DIMENSIONS``."""
    last_ms: IntArray
    """(e,) epoch milliseconds of the newest answered request; 0: none."""
    bank: Bank
    """The laws' states, in the same order."""
    meter: Meter
    """Metrics, in the same order."""

    def __len__(self) -> int:
        return len(self.names)

    def with_all(self, names: pa.StringArray, dimension: IntArray) -> tuple[EntityStates, IntArray]:
        """Add entities for n distinct pairs; returns the states and each pair's entity (n,).

        -1: the pair has no quota. New entities are appended.
        """
        entity = self._find(names, dimension)
        new = np.flatnonzero(entity < 0)
        law, quotas = quotas_of(self.definitions, names.take(pa.array(new)), dimension[new])
        limited = np.isfinite(quotas.rate_per_s)
        new = new[limited]
        if not len(new):
            return self, entity
        # Keep the known quotas of the others: reading them again costs more than answering.
        law = np.concatenate([self.bank.law, law[limited]])
        columns = zip(_fields_of(self.bank.quotas), _fields_of(quotas.take(limited)), strict=True)
        entity[new] = np.arange(len(self), len(self) + len(new))
        grown = replace(
            self,
            names=pa.concat_arrays([self.names, names.take(pa.array(new))]),
            dimension=np.concatenate([self.dimension, dimension[new]]),
            last_ms=np.concatenate([self.last_ms, np.zeros(len(new), np.int64)]),
            bank=self.bank.change(law, Quotas(*map(np.concatenate, columns))),
            meter=meters.grown(self.meter, len(self) + len(new)),
        )
        return grown, entity

    def answer(self, requests: Requests) -> tuple[EntityStates, Answers]:
        """Answer requests, none of them before its entity's ``last_ms``; returns the new states.

        Raises:
            InputError: as ``Bank.answer``.
        """
        bank, answers = self.bank.answer(requests)
        last_ms = self.last_ms.copy()
        np.maximum.at(last_ms, requests.entity, requests.at_ms)
        meter = meters.record(self.meter, requests, answers)
        return replace(self, last_ms=last_ms, bank=bank, meter=meter), answers

    def enforces(self, names: pa.StringArray) -> BoolArray:
        """Which of n names are limited, not only observed.

        Observed are groups in soft or shadow mode (``model.Mode``), and those enforced on less than
        100 % of brokers: a single entity can't be limited in part.
        """
        observing = pc.is_in(self.definitions["mode"], value_set=pa.array(_NOT_ENFORCED))
        percent = self.definitions["enforcement_percent"].fill_null(100.0)
        observed = self.definitions.filter(pc.or_(observing, pc.less(percent, 100.0)))
        return places(names, _joined(observed["group"])) < 0

    def _find(self, names: pa.StringArray, dimension: IntArray) -> IntArray:
        entity = np.full(len(names), -1, np.int64)
        for number in np.unique(dimension).tolist():
            asked, own = (
                np.flatnonzero(dimension == number),
                np.flatnonzero(self.dimension == number),
            )
            at = places(names.take(pa.array(asked)), self.names.take(pa.array(own)))
            entity[asked[at >= 0]] = own[at[at >= 0]]
        return entity

    def defined(self, definitions: pa.Table) -> EntityStates:
        """The states under new definitions (columns of ``DEFINITIONS``; others are ignored).

        Entities keep what they used as ``Bank.change`` describes. Entities without a quota are
        removed, or names that come and go would fill the memory.
        """
        complete = _complete(definitions)
        law, quotas = quotas_of(complete, self.names, self.dimension)
        stays = np.flatnonzero(np.isfinite(quotas.rate_per_s))
        return replace(
            self,
            definitions=complete,
            names=self.names.take(pa.array(stays)),
            dimension=self.dimension[stays],
            last_ms=self.last_ms[stays],
            bank=self.bank.take(stays).change(law[stays], quotas.take(stays)),
            meter=self.meter.take(stays),
        )

    def changed(self, changes: pa.Table) -> EntityStates:
        """The states after changes of definitions, with columns ``deleted`` and ``version``.

        Of several changes of a group the highest version counts; within a version, a put counts.
        """
        put_last = pc.invert(changes["deleted"])
        changes = changes.append_column("put_last", put_last).sort_by(
            [("version", "ascending"), ("put_last", "ascending")]
        )
        names = changes["group"].to_pylist()
        last = list({name: row for row, name in enumerate(names)}.values())
        newest = changes.take(pa.array(last, pa.int64()))
        put = newest.filter(pc.invert(newest["deleted"])).select(DEFINITIONS.names)
        stays = pc.invert(pc.is_in(self.definitions["group"], value_set=_joined(newest["group"])))
        unchanged = self.definitions.filter(stays)
        return self.defined(pa.concat_tables([unchanged, put.cast(DEFINITIONS)]))

    def to_bytes(self) -> bytes:
        """Encode as Arrow IPC streams, one after the other.

        >>> EntityStates.from_bytes(begin().to_bytes()).definitions.num_rows
        0
        """
        entities = pa.table(
            {
                "name": self.names,
                "dimension": self.dimension.astype(np.int8),
                "last_ms": self.last_ms,
                "law": self.bank.law.astype(np.int8),
                **dict(zip(_QUOTA_FIELDS, _fields_of(self.bank.quotas), strict=True)),
            },
            metadata={"format": FORMAT},
        )
        states = (self.bank.states.get(law, ()) for law in LAWS)
        return pack(entities, self.definitions, *map(_packed, (*states, self.meter)))

    @classmethod
    def from_bytes(cls, blob: bytes) -> EntityStates:
        """Decode ``to_bytes``; the result is identical to the bit.

        Raises:
            HistoryError: another version of this format wrote the blob.
        """
        entities, definitions, *arrays = unpack(blob)
        version = (entities.schema.metadata or {}).get(b"format", b"none").decode()
        if version != FORMAT:
            raise HistoryError(
                f"checkpoint: throttle state has format {version}, this version reads {FORMAT}; "
                "start a new checkpoint folder"
            )
        column = {
            name: entities[name].to_numpy() for name in entities.column_names if name != "name"
        }
        law = column["law"].astype(np.int64)
        quotas = Quotas(*(column[name] for name in _QUOTA_FIELDS))
        states = {}
        for number, (name, table) in enumerate(zip(LAWS, arrays, strict=False)):
            if table.num_columns:
                blank = FORMS[name].begin(Quotas.of([]))
                states[name] = _unpacked(table, blank, np.count_nonzero(law == number))
        return cls(
            definitions,
            _joined(entities["name"]),
            column["dimension"].astype(np.int64),
            column["last_ms"],
            Bank(law, quotas, states),
            _unpacked(arrays[-1], meters.begin(0), len(law)),
        )


def begin(definitions: pa.Table | None = None) -> EntityStates:
    """States without entities; ``definitions`` as for ``EntityStates.defined``.

    >>> states = begin(pa.table({"group": ["a"], "publish_messages_per_s": [5.0]}))
    >>> states, entity = states.with_all(pa.array(["a", "b"]), np.array([0, 0]))
    >>> states.names.to_pylist(), entity.tolist()
    (['a'], [0, -1])
    """
    none = np.empty(0, np.int64)
    empty = EntityStates(
        DEFINITIONS.empty_table(),
        pa.array([], pa.string()),
        none,
        none,
        banks.begin(none, Quotas.of([])),
        meters.begin(0),
    )
    return empty if definitions is None else empty.defined(definitions)


def quotas_of(
    definitions: pa.Table, names: pa.StringArray, dimension: IntArray
) -> tuple[IntArray, Quotas]:
    """The laws (n,), as indexes into ``LAWS``, and quotas of n pairs of name and dimension.

    Without a definition, or without a quota in it, the rate is inf. A value that ``groups put``
    would refuse is replaced by the nearest valid one.
    """
    place = places(names, _joined(definitions["group"]))
    rows = definitions.take(pa.array(place, mask=place < 0))
    texts = np.array(rows["throttle"].fill_null("").to_pylist(), dtype=object)
    law, quotas = np.zeros(len(names), np.int64), Quotas.of(np.full(len(names), np.inf))
    for number in np.unique(dimension).tolist():
        mine = np.flatnonzero(dimension == number)
        rates = _rates(rows, RATE_COLUMNS[number])[mine]
        law[mine], own = laws_and_quotas(texts[mine].tolist(), rates[:, None], [DIMENSIONS[number]])
        for whole, part in zip(_fields_of(quotas), _fields_of(own), strict=True):
            whole[mine] = part
    return law, quotas


def _fields_of(quotas: Quotas) -> list[Any]:
    return [getattr(quotas, name) for name in _QUOTA_FIELDS]


def _complete(definitions: pa.Table) -> pa.Table:
    for name in DEFINITIONS.names:
        if name not in definitions.column_names:
            nothing = pa.nulls(len(definitions), DEFINITIONS.field(name).type)
            definitions = definitions.append_column(name, nothing)
    return definitions.select(DEFINITIONS.names).cast(DEFINITIONS).combine_chunks()


def _rates(definitions: pa.Table, name: str) -> FloatArray:
    given: FloatArray = definitions[name].fill_null(np.inf).to_numpy()
    known = np.where(np.isnan(given), np.inf, given)
    return np.where(np.isinf(known), np.inf, np.clip(known, 0.0, MAX_RATE))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _packed(arrays: tuple[Any, ...]) -> pa.Table:
    """One row with each array of a named tuple (or of an empty tuple) as a flattened list."""
    names = getattr(arrays, "_fields", ())
    return pa.table(
        {
            name: pa.ListArray.from_arrays([0, array.size], array.ravel())
            for name, array in zip(names, arrays, strict=True)
        }
    )


def _unpacked(table: pa.Table, blank: Fields, entities: int) -> Fields:
    """Decode ``_packed``; ``blank`` has the same type, with the entities on the last axis."""
    if not entities:
        return blank
    flat = (_joined(column).values.to_numpy() for column in table.columns)
    shapes = (field.shape[:-1] for field in blank)
    return type(blank)(
        *(a.reshape(-1, entities) if s else a for a, s in zip(flat, shapes, strict=True))
    )
