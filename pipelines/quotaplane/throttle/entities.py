"""What one shard remembers of requests: the definitions, who asked under them, what they used.

An entity is a name in a dimension: it has a quota of its own there. Who never had a quota leaves no
trace, so that names out of the blue cost no memory.
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
from quotaplane.throttle.broker_quotas import held_to
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
"""The columns of ``resource_groups`` that say what holds for the entity called as the group: a null
quota is none, a null mode is hard, a null percentage 100, null terms are the defaults
(``throttle.terms``)."""

_HELD: Final = ("rate_per_s", "samples", "window_ms", "hard")
"""What definitions say of ``Quotas``: their bursts are those of the windows."""

_WATCHED: Final = tuple(mode for mode in MODES if mode != "hard")


@dataclass(frozen=True)
class EntityStates:
    """``definitions``: columns of ``DEFINITIONS``, each group once. Of e entities: ``names``,
    ``dimension`` (e,), an index into ``DIMENSIONS``, and ``last_ms`` (e,), the epoch milliseconds
    of the last answer, 0 for none; the bank and the meter have the same order.

    The bank has a last time, too, but begins anew with another law; what was said is said.
    """

    definitions: pa.Table
    names: pa.StringArray
    dimension: IntArray
    last_ms: IntArray
    bank: Bank
    meter: Meter

    def __len__(self) -> int:
        return len(self.names)

    def with_all(self, names: pa.StringArray, dimension: IntArray) -> tuple[EntityStates, IntArray]:
        """The ledger with n different askers, and which entity each is; -1: it has no quota.

        Those that have one and are new become its last entities.
        """
        entity = self._find(names, dimension)
        new = np.flatnonzero(entity < 0)
        law, quotas = held(self.definitions, names.take(pa.array(new)), dimension[new])
        limited = np.isfinite(quotas.rate_per_s)
        new = new[limited]
        if not len(new):
            return self, entity
        # What holds for the others is known: to read it again costs more than to answer them.
        law = np.concatenate([self.bank.law, law[limited]])
        of_all = zip(_held(self.bank.quotas), _held(quotas.take(limited)), strict=True)
        entity[new] = np.arange(len(self), len(self) + len(new))
        grown = replace(
            self,
            names=pa.concat_arrays([self.names, names.take(pa.array(new))]),
            dimension=np.concatenate([self.dimension, dimension[new]]),
            last_ms=np.concatenate([self.last_ms, np.zeros(len(new), np.int64)]),
            bank=self.bank.change(law, Quotas(*map(np.concatenate, of_all))),
            meter=meters.grown(self.meter, len(self) + len(new)),
        )
        return grown, entity

    def answer(self, requests: Requests) -> tuple[EntityStates, Answers]:
        """The answers to requests, none of which is before its entity's ``last_ms``, and the
        ledger after them.

        Raises:
            InputError: as ``Bank.answer``.
        """
        bank, said = self.bank.answer(requests)
        last_ms = self.last_ms.copy()
        np.maximum.at(last_ms, requests.entity, requests.at_ms)
        meter = meters.record(self.meter, requests, said)
        return replace(self, last_ms=last_ms, bank=bank, meter=meter), said

    def enforces(self, names: pa.StringArray) -> BoolArray:
        """Whether quotas bind the n names, or are only watched: soft or shadow (``model.Mode``), or
        not on 100 % of brokers. A share of one entity there is not.
        """
        only = pc.is_in(self.definitions["mode"], value_set=pa.array(_WATCHED))
        percent = self.definitions["enforcement_percent"].fill_null(100.0)
        watched = self.definitions.filter(pc.or_(only, pc.less(percent, 100.0)))
        return places(names, _joined(watched["group"])) < 0

    def _find(self, names: pa.StringArray, dimension: IntArray) -> IntArray:
        found = np.full(len(names), -1, np.int64)
        for one in np.unique(dimension).tolist():
            asked, own = np.flatnonzero(dimension == one), np.flatnonzero(self.dimension == one)
            at = places(names.take(pa.array(asked)), self.names.take(pa.array(own)))
            found[asked[at >= 0]] = own[at[at >= 0]]
        return found

    def defined(self, definitions: pa.Table) -> EntityStates:
        """Under other definitions: columns of ``DEFINITIONS``, and others that say nothing here.

        Entities keep what they used as ``Bank.change`` has it. Who has no quota any more is
        forgotten, or who comes and goes would fill up the memory.
        """
        told = _complete(definitions)
        law, quotas = held(told, self.names, self.dimension)
        stays = np.flatnonzero(np.isfinite(quotas.rate_per_s))
        return replace(
            self,
            definitions=told,
            names=self.names.take(pa.array(stays)),
            dimension=self.dimension[stays],
            last_ms=self.last_ms[stays],
            bank=self.bank.take(stays).change(law[stays], quotas.take(stays)),
            meter=self.meter.take(stays),
        )

    def changed(self, changes: pa.Table) -> EntityStates:
        """After changes of definitions; ``deleted`` and ``version`` are columns, too.

        Of several changes of a group the last version counts; of one version, what was put.
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
        kept = self.definitions.filter(stays)
        return self.defined(pa.concat_tables([kept, put.cast(DEFINITIONS)]))

    def to_bytes(self) -> bytes:
        """The ledger as Arrow IPC streams, one behind the other.

        >>> EntityStates.from_bytes(begin().to_bytes()).definitions.num_rows
        0
        """
        entities = pa.table(
            {
                "name": self.names,
                "dimension": self.dimension.astype(np.int8),
                "last_ms": self.last_ms,
                "law": self.bank.law.astype(np.int8),
                **dict(zip(_HELD, _held(self.bank.quotas), strict=True)),
            },
            metadata={"format": FORMAT},
        )
        states = (self.bank.states.get(law, ()) for law in LAWS)
        return pack(entities, self.definitions, *map(_packed, (*states, self.meter)))

    @classmethod
    def from_bytes(cls, blob: bytes) -> EntityStates:
        """Read ``to_bytes`` back: the same ledger, to the bit.

        Raises:
            HistoryError: the blob was written by another version of the ledger's format.
        """
        entities, definitions, *arrays = unpack(blob)
        found = (entities.schema.metadata or {}).get(b"format", b"none").decode()
        if found != FORMAT:
            raise HistoryError(
                f"checkpoint: throttle state has format {found}, this version reads {FORMAT}; "
                "start a new checkpoint folder"
            )
        column = {
            name: entities[name].to_numpy() for name in entities.column_names if name != "name"
        }
        law = column["law"].astype(np.int64)
        quotas = Quotas(*(column[name] for name in _HELD))
        states = {}
        for number, (name, table) in enumerate(zip(LAWS, arrays, strict=False)):
            if table.num_columns:
                blank = FORMS[name].begin(Quotas.of([]))
                states[name] = _unpacked(table, blank, np.count_nonzero(law == number))
        return cls(
            _complete(definitions),  # of an earlier version it may lack some
            _joined(entities["name"]),
            column["dimension"].astype(np.int64),
            column["last_ms"],
            Bank(law, quotas, states),
            _unpacked(arrays[-1], meters.begin(0), len(law)),
        )


def begin(definitions: pa.Table | None = None) -> EntityStates:
    """Nobody asked yet; ``definitions`` as ``EntityStates.defined`` takes them.

    >>> ledger = begin(pa.table({"group": ["a"], "publish_messages_per_s": [5.0]}))
    >>> ledger, entity = ledger.with_all(pa.array(["a", "b"]), np.array([0, 0]))
    >>> ledger.names.to_pylist(), entity.tolist()
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


def held(
    definitions: pa.Table, names: pa.StringArray, dimension: IntArray
) -> tuple[IntArray, Quotas]:
    """The law (n,), a place in ``LAWS``, and the quotas of n names in dimensions (n,).

    Without a definition, or a quota in it, the rate is inf. What ``groups put`` would refuse is
    taken for the nearest that it allows.
    """
    place = places(names, _joined(definitions["group"]))
    found = definitions.take(pa.array(place, mask=place < 0))
    texts = np.array(found["throttle"].fill_null("").to_pylist(), dtype=object)
    law, quotas = np.zeros(len(names), np.int64), Quotas.of(np.full(len(names), np.inf))
    for one in np.unique(dimension).tolist():
        mine = np.flatnonzero(dimension == one)
        rates = _rates(found, RATE_COLUMNS[one])[mine]
        law[mine], own = held_to(texts[mine].tolist(), rates[:, None], [DIMENSIONS[one]])
        for whole, part in zip(_held(quotas), _held(own), strict=True):
            whole[mine] = part
    return law, quotas


def _held(quotas: Quotas) -> list[Any]:
    return [getattr(quotas, name) for name in _HELD]


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
    """The arrays of a named tuple, or of none, in one row: each a list, written out row by row."""
    names = getattr(arrays, "_fields", ())
    return pa.table(
        {
            name: pa.ListArray.from_arrays([0, array.size], array.ravel())
            for name, array in zip(names, arrays, strict=True)
        }
    )


def _unpacked(table: pa.Table, blank: Fields, entities: int) -> Fields:
    """Read ``_packed`` back; ``blank`` is of the same kind, and the entities are its last axis."""
    if not entities:
        return blank
    flat = (_joined(column).values.to_numpy() for column in table.columns)
    shapes = (field.shape[:-1] for field in blank)
    return type(blank)(
        *(a.reshape(-1, entities) if s else a for a, s in zip(flat, shapes, strict=True))
    )
