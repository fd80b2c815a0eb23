"""Reads the balancer's record: its rounds, with the inputs of its decisions. Needs no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotabalance.planning.bundle_orders import NotMade, not_made_of
from quotabalance.planning.reported_loads import (
    BUNDLES,
    COUNT_COLUMNS,
    RATE_COLUMNS,
    REPORTS,
    ReportedLoads,
)
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import InputError
from quotaplane.history.damage import round_of_record
from quotaplane.history.store import open_table, reading
from quotaplane.model import IntArray
from quotaplane.settings import History

_TIMES: Final = ("started", "measured", "published")


class RecordedRound(NamedTuple):
    """One round of the balancer."""

    epoch: int
    seq: int
    now_ms: int
    loads: ReportedLoads
    """One report per broker, by broker's name: what the round was decided on."""
    strategy: str
    settings: Mapping[str, Any]
    """``options`` and ``policies`` in force."""
    mode: str
    """``propose`` or ``auto``."""
    first: bool
    """All memories were empty."""
    plan_hash: str
    not_made: Sequence[NotMade]
    """Orders that the executor had not carried out."""
    decisions: Sequence[Mapping[str, Any]]
    """Rows of ``balance_decisions`` without their stamp, in their order."""


def read_record(
    history: History,
    cluster: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Iterator[RecordedRound]:
    """The recorded rounds of a cluster in their order, from the first one that has all brokers.

    ``cluster`` may be None if only one is in the record.

    Raises:
        InputError: there is no such cluster, or none is named and there are several.
        HistoryError: the tables are missing or can't be read, or a round is damaged.
    """
    rounds = rows_between(history, "balance_rounds", since, until)
    rounds = of_cluster(rounds, cluster)
    load = rows_between(history, "load", since, until)
    decisions = rows_between(history, "balance_decisions", since, until)
    if not rounds.num_rows:
        return
    name = rounds["cluster"][0].as_py()
    load = load.filter(pc.equal(load["cluster"], name)).combine_chunks()
    decisions = decisions.filter(pc.equal(decisions["cluster"], name)).combine_chunks()
    load_at, decided_at = _by_round(load), _by_round(decisions)
    newest: dict[str, int] = {}
    begun = False
    for row in rounds.sort_by([("epoch", "ascending"), ("seq", "ascending")]).to_pylist():
        key = row["epoch"], row["seq"]
        places = load_at.get(key, np.zeros(0, np.int64))
        brokers = load["broker"].take(pa.array(places)).to_pylist()
        if row["every_broker"]:
            newest, begun = {}, True
        newest.update(zip(brokers, places.tolist(), strict=True))
        if not begun:
            continue
        with round_of_record("balance_rounds", *key):
            chosen = np.array([newest[broker] for broker in row["brokers"]], np.int64)
            texts = decisions.take(pa.array(decided_at.get(key, np.zeros(0, np.int64))))
            recorded = _recorded(row, load.take(pa.array(chosen)), texts)
        yield recorded


def _recorded(row: Mapping[str, Any], load: pa.Table, decisions: pa.Table) -> RecordedRound:
    return RecordedRound(
        row["epoch"],
        row["seq"],
        _ms(row["round_at"]),
        loads_of_rows(load),
        row["strategy"],
        json.loads(row["settings"]),
        row["mode"],
        row["first"],
        row["plan_hash"],
        not_made_of(row["not_made"]),
        decisions.drop(["epoch", "seq", "round_at", "date"]).sort_by("place").to_pylist(),
    )


def loads_of_rows(rows: pa.Table) -> ReportedLoads:
    """Rows of the table ``load`` as the reports that they came from."""
    rows = rows.combine_chunks()
    columns: dict[str, Any] = {n: rows[n] for n in REPORTS.names if n in rows.column_names}
    for name in _TIMES:
        at = rows[f"{name}_at"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        columns[f"{name}_at_ms"] = at.fill_null(-1)
    reports = pa.table({name: columns[name] for name in REPORTS.names}, schema=REPORTS)
    sizes = pc.list_value_length(rows["bundles"]).to_numpy()
    entries: dict[str, Any] = {
        "report": pa.array(np.repeat(np.arange(len(rows), dtype=np.int32), sizes)),
        "bundle": pc.list_flatten(rows["bundles"]),
        **{name: pc.list_flatten(rows[name]) for name in (*RATE_COLUMNS, *COUNT_COLUMNS)},
    }
    bundles = pa.table({name: entries[name] for name in BUNDLES.names})
    return ReportedLoads(reports, bundles.cast(BUNDLES).combine_chunks())


def rows_between(
    history: History, name: str, since: datetime | None, until: datetime | None
) -> pa.Table:
    """The rows of a table whose rounds were in a time; None: from the first, or to the last.

    Raises:
        HistoryError: the table is missing or can't be read.
    """
    conditions = [
        f"date {sign} '{at:%Y-%m-%d}'" for sign, at in ((">=", since), ("<=", until)) if at
    ]
    with reading(name):
        rows = read_rows(open_table(history, name), predicate=" AND ".join(conditions) or None)
    for keep, at in ((pc.greater_equal, since), (pc.less, until)):
        if at is not None:
            rows = rows.filter(
                keep(rows["round_at"], pa.scalar(at, rows.schema.field("round_at").type))
            )
    return rows


def of_cluster(rounds: pa.Table, cluster: str | None) -> pa.Table:
    """The rows of one cluster; None: there is only one.

    Raises:
        InputError: there is no such cluster, or none is named and there are several.
    """
    names = sorted(rounds["cluster"].unique().to_pylist())
    if cluster is None and len(names) > 1:
        raise InputError(f"the record has several clusters, name one of {', '.join(names)}")
    if cluster is not None and cluster not in names:
        raise InputError(
            f"the record has no rounds of cluster {cluster!r} in that time; "
            f"it has {', '.join(names) or 'none'}"
        )
    return rounds if cluster is None else rounds.filter(pc.equal(rounds["cluster"], cluster))


def _by_round(rows: pa.Table) -> dict[tuple[int, int], IntArray]:
    """Indices of rows by epoch and seq."""
    if not rows.num_rows:
        return {}
    epoch, seq = rows["epoch"].to_numpy(), rows["seq"].to_numpy()
    order = np.lexsort((seq, epoch))
    cuts = np.flatnonzero((np.diff(epoch[order]) != 0) | (np.diff(seq[order]) != 0)) + 1
    return {(int(epoch[part[0]]), int(seq[part[0]])): part for part in np.split(order, cuts)}


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
