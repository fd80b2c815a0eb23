"""What one shard remembers between rounds, and its form at rest: one Arrow blob.

Everything is a numpy array so that a round costs a handful of array operations, however many
groups the shard holds. Arrays over the dimensions have shape (d, n): one contiguous vector per
dimension, which is also how Arrow stores them. Of rows, which are many, d is only the dimensions
that matter (``dimensions_in_use``).

At rest a row takes 40 to 75 bytes: a round reads and writes its shard's whole blob, so bytes are
time. Rates are therefore kept to float32 precision (``to_single``): 7 digits of a measured rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.arrow_ipc import pack, unpack
from quotaplane.errors import HistoryError
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.deleted_groups import DeletedReservations
from quotaplane.quota.groups import (
    Groups,
    group_columns,
    groups_from,
    override_columns,
    plain_groups,
)
from quotaplane.quota.learning import Learning
from quotaplane.quota.leases import Leases, fresh_rows
from quotaplane.quota.undefined_groups import UndefinedGroups

FORMAT = 4
_READ = ("2", "3", "4")
"""In format 2 there were the first four dimensions only, and they were in no list. Up to format 3
there was no table of undefined groups."""
_MOST_INT32 = np.iinfo(np.int32).max
_D = len(DIMENSIONS)
_FLAGS = ("issued", "tells", "enforced", "told")
"""Bits of a row; those below are "saturated", one per dimension that it has."""


def _in_memory(column: pa.ChunkedArray) -> Any:
    """Numbers as numpy has them; a dictionary's column is there only where it has rows."""
    if pa.types.is_dictionary(column.type):
        return column.chunk(0)
    return column.combine_chunks() if pa.types.is_string(column.type) else column.to_numpy()


def _none(dtype: type = np.int64) -> npt.NDArray[Any]:
    return np.empty(0, dtype)


@dataclass(frozen=True)
class ShardState:
    """All that one shard knows. Immutable: a step returns a new one and shares what it can."""

    groups: Groups = field(
        default_factory=lambda: plain_groups(_none(), pa.array([], pa.string()), np.empty((_D, 0)))
    )
    brokers: Brokers = field(
        default_factory=lambda: Brokers((), _none(), _none(), _none(), _none(bool), _none(bool))
    )
    rows: Leases = field(default_factory=lambda: fresh_rows(_none(), _none()))
    learning: Learning = field(default_factory=Learning)
    left: DeletedReservations = field(default_factory=DeletedReservations)
    undefined: UndefinedGroups = field(default_factory=UndefinedGroups)
    rounds: int = 0
    """Rounds this shard took part in: which groups' limits are due to be renewed turns with it."""

    def to_bytes(self) -> bytes:
        """The state as Arrow IPC streams, one behind the other in one buffer.

        >>> ShardState.from_bytes(ShardState(rounds=7).to_bytes()).rounds
        7
        """
        groups, brokers, rows = self.groups, self.brokers, self.rows
        base = int(rows.seen_at_ms.max(initial=0))
        # Also where nothing is young any more nothing may be lost: a round that runs again must
        # decide the same.
        differs = ((rows.before != rows.limit) | (rows.held != rows.limit)).any(axis=0)
        young = np.flatnonzero((rows.issued_seq >= 0) | differs)
        saturated = np.isinf(rows.demand)
        age_ms = base - rows.seen_at_ms
        d = len(rows.dimensions)
        kind = np.uint8 if d + len(_FLAGS) <= 8 else np.uint16
        bits = (*saturated, *(vars(rows)[name] for name in _FLAGS))
        flags: npt.NDArray[Any] = np.zeros(len(rows), kind)
        for place, bit in enumerate(bits):
            flags = flags | bit * kind(1 << place)
        narrow = {
            "broker": rows.broker.astype(np.int32),
            "flags": flags,
            "age_ms": age_ms.astype(np.int32 if age_ms.max(initial=0) <= _MOST_INT32 else np.int64),
        }
        wide = {"usage": rows.usage, "limit": rows.limit}
        if not (saturated | (rows.demand == rows.usage)).all():
            wide["demand"] = rows.demand
        recent = {
            "at": young.astype(np.int32),
            "issued_at_ms": rows.issued_at_ms[young],
            "issued_seq": rows.issued_seq[young],
            **{f"before_{i}": rows.before[i, young].astype(np.float32) for i in range(d)},
        }
        if not (rows.held[:, young] == rows.limit[:, young]).all():
            recent |= {f"held_{i}": rows.held[i, young].astype(np.float32) for i in range(d)}
        track: dict[str, npt.NDArray[Any]] = {
            "noise": rows.noise.ravel().astype(np.float16),
            "swing": rows.swing.ravel().astype(np.float16),
            "doubt": rows.doubt.ravel().astype(np.uint8),
        }
        size = np.bincount(rows.group, minlength=len(groups)).astype(np.int32)
        tables = (
            {"size": size, **group_columns(groups)},
            {"name": groups.names},
            override_columns(groups.overrides),
            {**vars(brokers), "names": pa.array(brokers.names, pa.string())},
            narrow,
            {name: array.ravel().astype(np.float32) for name, array in wide.items()},
            recent,
            {name: array for name, array in track.items() if array.any()},
            {
                "name": pa.array(self.left.names, pa.string()),
                "until_ms": self.left.until_ms,
                **{f"held_{i}": held for i, held in enumerate(self.left.held)},
            },
            vars(self.undefined),
        )
        meta = {
            "format": str(FORMAT),
            "dimensions": ",".join(DIMENSIONS[i] for i in rows.dimensions),
            "rounds": str(self.rounds),
            "base_ms": str(base),
            "learns_until_ms": str(self.learning.until_ms),
            "learning": str(int(self.learning.on)),
        }
        return pack(
            *(
                pa.table({name: pa.array(array) for name, array in columns.items()}, metadata=meta)
                for columns in tables
            )
        )

    @classmethod
    def from_bytes(cls, blob: bytes) -> ShardState:
        """Read ``to_bytes`` back: the same state, to the bit.

        Also of format 2: what it has no columns of was unlimited.

        Raises:
            HistoryError: the blob was written by another version of the state's format.
        """
        tables = unpack(blob)
        meta = {k.decode(): v.decode() for k, v in (tables[0].schema.metadata or {}).items()}
        if meta.get("format") not in _READ:
            raise HistoryError(
                f"checkpoint: shard state has format {meta.get('format')}, this version reads "
                f"{' and '.join(_READ)}; start a new checkpoint folder"
            )
        groups, names, overrides, brokers, narrow, wide, recent, track, left, *undefined = (
            {
                name: _in_memory(column)
                for name, column in zip(table.column_names, table.columns, strict=True)
            }
            for table in tables
        )
        given = meta.get("dimensions", ",".join(DIMENSIONS[:BASIC]))
        dimensions = tuple(map(DIMENSIONS.index, given.split(",")))
        d, n = len(dimensions), len(narrow["broker"])
        rates = {k: v.astype(np.float64).reshape(d, n) for k, v in wide.items()}
        usage, limit, flags = rates["usage"], rates["limit"], narrow["flags"]
        bits = [flags & (1 << place) != 0 for place in range(d + len(_FLAGS))]
        blank = np.zeros((d, n), np.float16)
        noise, swing, doubt = (
            track[name].reshape(d, n) if name in track else blank
            for name in ("noise", "swing", "doubt")
        )
        left_held = np.full((_D, len(left["name"])), np.inf)
        for name in left.keys() - {"name", "until_ms"}:
            left_held[int(name.removeprefix("held_"))] = left[name]
        rows = Leases(
            dimensions=dimensions,
            group=np.repeat(np.arange(len(groups["id"])), groups["size"]),
            broker=narrow["broker"].astype(np.int64),
            usage=usage,
            demand=np.where(np.stack(bits[:d]), np.inf, rates.get("demand", usage)),
            noise=noise.astype(np.float64),
            swing=swing.astype(np.float64),
            doubt=doubt.astype(np.int64),
            limit=limit,
            before=limit.copy(),
            held=limit.copy(),
            **dict(zip(_FLAGS, bits[d:], strict=True)),
            issued_at_ms=np.full(n, -1, np.int64),
            issued_seq=np.full(n, -1, np.int64),
            seen_at_ms=int(meta["base_ms"]) - narrow["age_ms"].astype(np.int64),
        )
        rows.issued_at_ms[recent["at"]] = recent["issued_at_ms"]
        rows.issued_seq[recent["at"]] = recent["issued_seq"]
        for place in range(d):
            rows.before[place, recent["at"]] = recent[f"before_{place}"]
            if f"held_{place}" in recent:
                rows.held[place, recent["at"]] = recent[f"held_{place}"]
        return cls(
            groups=groups_from(groups, names["name"], overrides),
            brokers=Brokers(**{**brokers, "names": tuple(brokers["names"].to_pylist())}),
            rows=rows,
            learning=Learning(int(meta["learns_until_ms"]), meta["learning"] == "1"),
            left=DeletedReservations(tuple(left["name"].to_pylist()), left["until_ms"], left_held),
            undefined=UndefinedGroups(**undefined[0]) if undefined else UndefinedGroups(),
            rounds=int(meta["rounds"]),
        )
