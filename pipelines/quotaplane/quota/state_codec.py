"""A shard's state as bytes, and back: Arrow IPC streams, one table behind the other.

At rest a lease takes 40 to 75 bytes: a round reads and writes its shard's whole blob, so bytes are
time. Rates are therefore kept to float32 precision (``arrays.to_single``: 7 digits of a measured
rate), columns in which all is default are left out, and what only young limits have is kept for
young limits only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.arrow import pack, unpack
from quotaplane.errors import HistoryError
from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.deleted_groups import DeletedReservations
from quotaplane.quota.estimate.demand_estimates import Estimates
from quotaplane.quota.estimate.level_changes import SUM_STEPS
from quotaplane.quota.groups import Groups, group_columns, groups_from, override_columns
from quotaplane.quota.learning import Learning
from quotaplane.quota.leases import Leases
from quotaplane.quota.observed_pairs import ObservedPairs
from quotaplane.quota.overuse import Overuse
from quotaplane.quota.state import ShardState
from quotaplane.quota.undefined_groups import UndefinedGroups

FORMAT: Final = "1"

_TABLES: Final = (
    "groups",
    "group_names",
    "overrides",
    "brokers",
    "leases",
    "rates",
    "young",
    "estimates",
    "deleted",
    "undefined",
    "doubts",
    "overuse",
    "observed",
)
"""In the order in which they are written."""

_MOST_INT32: Final = np.iinfo(np.int32).max

Columns = Mapping[str, Any]
"""Arrays by name: those of a table."""


def dump(state: ShardState) -> bytes:
    """A state as bytes.

    >>> load(dump(ShardState(snapshot_at_ms=7))).snapshot_at_ms
    7
    """
    leases = state.leases
    base_ms = int(leases.seen_at_ms.max(initial=0))
    tables: dict[str, Columns] = {
        "groups": {
            "size": np.bincount(leases.group, minlength=len(state.groups)).astype(np.int32),
            **group_columns(state.groups),
        },
        "group_names": {"name": state.groups.names},
        "overrides": override_columns(state.groups.overrides),
        "brokers": _broker_columns(state.brokers),
        "leases": _lease_columns(leases, base_ms),
        "rates": _rate_columns(leases),
        "young": _young_columns(leases),
        "estimates": _estimate_columns(leases.estimates),
        "deleted": _deleted_columns(state.deleted),
        "undefined": vars(state.undefined),
        "doubts": _doubt_columns(leases.estimates),
        "overuse": _overuse_columns(state.overuse),
        "observed": state.observed.columns() if len(state.observed) else {},
    }
    meta = {
        "format": FORMAT,
        "dimensions": ",".join(DIMENSIONS[i] for i in leases.dimensions),
        "renewed_at_ms": ",".join(map(str, state.renewed_at_ms.tolist())),
        "start": str(state.start),
        "snapshot_at_ms": str(state.snapshot_at_ms),
        "recorded_at_ms": str(state.recorded_at_ms),
        "overuse_at_ms": str(state.overuse.counted_at_ms),
        "base_ms": str(base_ms),
        "learns_until_ms": str(state.learning.until_ms),
        "learning": str(int(state.learning.on)),
    }
    return pack(
        *(
            pa.table({name: pa.array(array) for name, array in columns.items()}, metadata=meta)
            for columns in tables.values()
        )
    )


def load(blob: bytes) -> ShardState:
    """The state that ``dump`` was given, to the bit.

    Raises:
        HistoryError: the blob was written in another version of the format.
    """
    found = unpack(blob)
    meta = {k.decode(): v.decode() for k, v in (found[0].schema.metadata or {}).items()}
    if meta.get("format") != FORMAT:
        raise HistoryError(
            f"checkpoint: shard state has format {meta.get('format')}, this version reads "
            f"{FORMAT}; start a new checkpoint folder"
        )
    tables = dict(zip(_TABLES, map(_columns, found), strict=True))
    observed = tables["observed"]
    groups = groups_from(tables["groups"], tables["group_names"]["name"], tables["overrides"])
    return ShardState(
        groups=groups,
        brokers=_brokers(tables["brokers"]),
        leases=_leases(tables, meta, groups),
        learning=Learning(int(meta["learns_until_ms"]), meta["learning"] == "1"),
        deleted=_deleted(tables["deleted"]),
        undefined=UndefinedGroups(**tables["undefined"]),
        overuse=_overuse(tables["overuse"], meta),
        observed=ObservedPairs.from_columns(observed) if observed else ObservedPairs(),
        renewed_at_ms=np.array(
            [int(part) for part in meta["renewed_at_ms"].split(",") if part], np.int64
        ),
        start=int(meta.get("start", -1)),
        snapshot_at_ms=int(meta["snapshot_at_ms"]),
        recorded_at_ms=int(meta["recorded_at_ms"]),
    )


def _columns(table: pa.Table) -> dict[str, Any]:
    named = zip(table.column_names, table.columns, strict=True)
    return {name: _in_memory(column) for name, column in named}


def _in_memory(column: pa.ChunkedArray) -> Any:
    """Numbers as numpy has them; a dictionary's column is there only where it has rows."""
    if pa.types.is_dictionary(column.type):
        return column.chunk(0)
    return column.combine_chunks() if pa.types.is_string(column.type) else column.to_numpy()


def _broker_columns(brokers: Brokers) -> Columns:
    columns: dict[str, Any] = {**vars(brokers), "names": pa.array(brokers.names, pa.string())}
    if not brokers.leaves_out_ms.any():
        del columns["leaves_out_ms"]
    return columns


def _brokers(columns: Columns) -> Brokers:
    names = tuple(columns["names"].to_pylist())
    return Brokers(**{"leaves_out_ms": np.zeros(len(names), np.int64), **columns, "names": names})


_FLAGS: Final = ("has_limit", "reports_refused", "enforced", "notified")
"""Bits of a lease, from the lowest one; below them are those of saturation, one a dimension."""


def _flags(leases: Leases) -> npt.NDArray[Any]:
    """(n,) as small as they fit."""
    bits = (*np.isinf(leases.estimates.demand), *(getattr(leases, name) for name in _FLAGS))
    kind = np.uint8 if len(bits) <= 8 else np.uint16
    flags: npt.NDArray[Any] = np.zeros(len(leases), kind)
    for place, bit in enumerate(bits):
        flags = flags | bit * kind(1 << place)
    return flags


def _lease_columns(leases: Leases, base_ms: int) -> Columns:
    age_ms = base_ms - leases.seen_at_ms
    return {
        "broker": leases.broker.astype(np.int32),
        "flags": _flags(leases),
        "age_ms": age_ms.astype(np.int32 if age_ms.max(initial=0) <= _MOST_INT32 else np.int64),
    }


def _rate_columns(leases: Leases) -> Columns:
    """Every dimension behind the other; the demand only where it says more than the usage."""
    rates = {"usage": leases.usage, "limit": leases.limit}
    if not (np.isinf(leases.estimates.demand) | (leases.estimates.demand == leases.usage)).all():
        rates["demand"] = leases.estimates.demand
    return {name: array.ravel().astype(np.float32) for name, array in rates.items()}


def _young_columns(leases: Leases) -> Columns:
    """The columns of young limits; and whatever differs, so that a round can run again."""
    previous, held, limit = leases.previous_limit, leases.max_in_force, leases.limit
    differs = ((previous != limit) | (held != limit)).any(axis=0)
    young = np.flatnonzero((leases.issued_seq >= 0) | differs)
    columns: dict[str, Any] = {
        "at": young.astype(np.int32),
        "issued_at_ms": leases.issued_at_ms[young],
        "issued_seq": leases.issued_seq[young],
    }
    columns |= {
        f"previous_{i}": rates[young].astype(np.float32) for i, rates in enumerate(previous)
    }
    if not (held[:, young] == limit[:, young]).all():
        columns |= {f"held_{i}": rates[young].astype(np.float32) for i, rates in enumerate(held)}
    return columns


_NIBBLE: Final = 16
"""Two small counts share a byte: the second one times this."""


def _estimate_columns(estimates: Estimates) -> Columns:
    """``demand_estimates.Estimates`` without its doubts."""
    columns: dict[str, npt.NDArray[Any]] = {
        "noise": estimates.noise.astype(np.float16),
        "last_deviation": estimates.last_deviation.astype(np.float16),
        "earlier_deviation": estimates.earlier_deviation.astype(np.float16),
        "rise": (estimates.rise * SUM_STEPS).astype(np.uint8),
        "fall": (estimates.fall * SUM_STEPS).astype(np.uint8),
        "runs": (estimates.rise_windows + _NIBBLE * estimates.fall_windows).astype(np.uint8),
        "windows": estimates.windows.astype(np.uint8),
        "distrust": estimates.distrust.astype(np.uint8),
    }
    return {name: array.ravel() for name, array in columns.items() if array.any()}


def _doubt_columns(estimates: Estimates) -> Columns:
    """The few estimates that are in doubt, and what they were before."""
    doubt = estimates.doubt.ravel()
    at = np.flatnonzero(doubt)
    return {
        "at": at.astype(np.int32),
        "doubt": doubt[at].astype(np.uint8),
        "old_demand": estimates.old_demand.ravel()[at].astype(np.float32),
        "old_windows": estimates.old_windows.ravel()[at].astype(np.uint8),
    }


def _estimates(columns: Columns, doubts: Columns, demand: FloatArray) -> Estimates:
    shape = demand.shape

    def column(name: str) -> npt.NDArray[Any]:
        stored = columns.get(name)
        values = np.zeros(demand.size) if stored is None else stored
        return np.asarray(values, np.float64).reshape(shape)

    runs = column("runs").astype(np.int64)
    doubt, old_windows = np.zeros((2, demand.size), np.int64)
    old_demand = np.zeros(demand.size)
    at = doubts["at"]
    doubt[at], old_windows[at] = doubts["doubt"], doubts["old_windows"]
    old_demand[at] = doubts["old_demand"]
    return Estimates(
        demand=demand,
        noise=column("noise"),
        last_deviation=column("last_deviation"),
        earlier_deviation=column("earlier_deviation"),
        rise=column("rise") / SUM_STEPS,
        fall=column("fall") / SUM_STEPS,
        rise_windows=runs % _NIBBLE,
        fall_windows=runs // _NIBBLE,
        windows=column("windows").astype(np.int64),
        doubt=doubt.reshape(shape),
        old_demand=old_demand.reshape(shape),
        old_windows=old_windows.reshape(shape),
        distrust=column("distrust").astype(np.int64),
    )


def _leases(tables: Mapping[str, Columns], meta: Mapping[str, str], groups: Groups) -> Leases:
    columns, young = tables["leases"], tables["young"]
    dimensions = tuple(map(DIMENSIONS.index, meta["dimensions"].split(",")))
    d, n = len(dimensions), len(columns["broker"])
    rates: dict[str, FloatArray] = {
        name: array.astype(np.float64).reshape(d, n) for name, array in tables["rates"].items()
    }
    bits = [columns["flags"] & (1 << place) != 0 for place in range(d + len(_FLAGS))]
    usage, limit = rates["usage"], rates["limit"]
    demand = np.where(np.stack(bits[:d]), np.inf, rates.get("demand", usage))
    estimates = _estimates(tables["estimates"], tables["doubts"], demand)
    leases = Leases(
        dimensions=dimensions,
        group=np.repeat(np.arange(len(groups)), tables["groups"]["size"]),
        broker=columns["broker"].astype(np.int64),
        usage=usage,
        estimates=estimates,
        limit=limit,
        previous_limit=limit.copy(),
        max_in_force=limit.copy(),
        issued_at_ms=np.full(n, -1, np.int64),
        issued_seq=np.full(n, -1, np.int64),
        seen_at_ms=int(meta["base_ms"]) - columns["age_ms"].astype(np.int64),
        **dict(zip(_FLAGS, bits[d:], strict=True)),
    )
    at = young["at"]
    leases.issued_at_ms[at] = young["issued_at_ms"]
    leases.issued_seq[at] = young["issued_seq"]
    for place in range(d):
        leases.previous_limit[place, at] = young[f"previous_{place}"]
        if f"held_{place}" in young:
            leases.max_in_force[place, at] = young[f"held_{place}"]
    return leases


def _deleted_columns(deleted: DeletedReservations) -> Columns:
    return {
        "name": pa.array(deleted.names, pa.string()),
        "until_ms": deleted.until_ms,
        **{f"held_{i}": rates for i, rates in enumerate(deleted.held)},
    }


def _deleted(columns: Columns) -> DeletedReservations:
    held = np.full((len(DIMENSIONS), len(columns["name"])), np.inf)
    for name in columns.keys() - {"name", "until_ms"}:
        held[int(name.removeprefix("held_"))] = columns[name]
    return DeletedReservations(tuple(columns["name"].to_pylist()), columns["until_ms"], held)


def _overuse_columns(overuse: Overuse) -> Columns:
    return {
        "group_id": overuse.group_id,
        "dimension": overuse.dimension.astype(np.uint8),
        "debt": overuse.debt.astype(np.float32),
        "assumed": overuse.assumed.astype(np.float32),
    }


def _overuse(columns: Columns, meta: Mapping[str, str]) -> Overuse:
    return Overuse(
        group_id=columns["group_id"],
        dimension=columns["dimension"].astype(np.int64),
        debt=columns["debt"].astype(np.float64),
        assumed=columns["assumed"].astype(np.float64),
        counted_at_ms=int(meta["overuse_at_ms"]),
    )
