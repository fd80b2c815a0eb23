"""The step: one round of one shard, ``(state, events, round) -> (state, outcome)``.

Pure: the same state, events and round give the same answer, so Spark, the simulator, a replay
and a dry run all run exactly this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.allot import Allotment, allot
from quotaplane.intake import Intake, take_in
from quotaplane.laws import Law
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, BoolArray, BrokerStatus, IntArray, Round
from quotaplane.state import Brokers, Groups, Rows, ShardState


@dataclass(frozen=True)
class Events:
    """What arrived for a shard since its last round; the columns are those of ``wire.events``."""

    headers: pa.Table | None = None
    entries: pa.Table | None = None
    groups: pa.Table | None = None


@dataclass(frozen=True)
class StepConfig:
    """The settings that the step needs, in its own units (milliseconds, plain numbers)."""

    law: Law
    stale_after_ms: float = 10_000.0
    expire_after_ms: float = 15_000.0
    headroom: float = 0.1
    saturated_from: float = 0.95
    probe_share: float = 0.05
    significant_change: float = 0.05
    refresh_rounds: int = 10


@dataclass(frozen=True)
class Outcome:
    """What a round gives to the world.

    ``limits``: a row per (broker, group) whose limit goes out now; ``changed`` tells a new limit
    from one that is only renewed. ``ended``: pairs that are no longer limited. ``usage``: the
    entries used. ``unknown``: entries of groups nobody defined. ``brokers``: changes of status.
    """

    limits: pa.Table
    ended: pa.Table
    usage: pa.Table | None
    unknown: pa.Table | None
    brokers: pa.Table
    counts: Mapping[str, int] = field(default_factory=dict)


def step(
    state: ShardState, events: Events, round_: Round, config: StepConfig
) -> tuple[ShardState, Outcome]:
    """Take in what arrived, drop who fell silent, and divide each touched group's quota anew."""
    groups, brokers, rows = state.groups, state.brokers, state.rows
    quota_changed: BoolArray = np.zeros(len(groups), bool)
    dropped: list[pa.Table] = []
    if events.groups is not None and len(events.groups):
        groups, rows, quota_changed, lost = _change_groups(state, events.groups)
        dropped.append(_ended(state.groups, brokers, lost, "group_deleted"))

    intake: Intake | None = None
    restarted: BoolArray = np.zeros(len(brokers), bool)
    touched = quota_changed
    if events.headers is not None and events.entries is not None and len(events.headers):
        intake = take_in(
            groups,
            brokers,
            rows,
            events.headers,
            events.entries,
            now_ms=round_.now_ms,
            epoch=round_.epoch,
            saturated_from=config.saturated_from,
        )
        brokers, rows, restarted = intake.brokers, intake.rows, intake.restarted
        touched = touched | intake.touched

    silence = round_.now_ms - brokers.seen_at_ms
    gone = silence > config.expire_after_ms
    stale = (silence > config.stale_after_ms) & ~gone
    status = _status_changes(brokers, intake, stale, gone)
    brokers = replace(brokers, stale=gone | stale)
    silent_rows = gone[rows.broker] | (round_.now_ms - rows.seen_at_ms > config.expire_after_ms)
    if silent_rows.any():
        touched = touched.copy()
        touched[rows.group[silent_rows]] = True
        dropped.append(_ended(groups, brokers, rows.take(silent_rows), "silent"))
        rows = rows.take(~silent_rows)

    allotment = allot(groups, rows, touched, quota_changed, restarted, round_, config, state.rounds)
    limits = _limit_table(groups, brokers, allotment)
    brokers, rows = _without(brokers, allotment.rows, gone)
    ended = (
        pa.concat_tables(dropped)
        if dropped
        else _ended(groups, brokers, rows.take(np.empty(0, np.int64)), "")
    )
    counts = {
        "reports": intake.reports if intake else 0,
        "duplicates": intake.duplicates if intake else 0,
        "outdated": intake.outdated if intake else 0,
        "entries": len(intake.used) if intake else 0,
        "groups_recomputed": int(touched.sum()),
        "limits_changed": int(allotment.changed.sum()),
        "limits_sent": len(limits),
    }
    after = ShardState(groups=groups, brokers=brokers, rows=rows, rounds=state.rounds + 1)
    return after, Outcome(
        limits=limits,
        ended=ended,
        usage=intake.used if intake else None,
        unknown=intake.unknown if intake else None,
        brokers=status,
        counts=counts,
    )


def next_due_ms(state: ShardState, config: StepConfig) -> int | None:
    """When this shard must be looked at even if nothing arrives; None while nobody can expire."""
    if not len(state.brokers):
        return None
    wait = np.where(state.brokers.stale, config.expire_after_ms, config.stale_after_ms)
    due = (state.brokers.seen_at_ms + wait).min()
    if len(state.rows):
        due = min(due, state.rows.seen_at_ms.min() + config.expire_after_ms)
    return int(due) + 1


def _change_groups(state: ShardState, events: pa.Table) -> tuple[Groups, Rows, BoolArray, Rows]:
    """Groups and rows after the changes; which groups' quotas changed; the rows that are lost."""
    old, rows = state.groups, state.rows
    order = np.lexsort((np.arange(len(events)), events["version"].to_numpy()))
    ids = events["group_id"].to_numpy()[order]
    last = len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]
    newest = events.take(pa.array(order[last]))  # by id, the latest change of each
    deleted = newest["deleted"].to_numpy()
    put = newest.filter(pa.array(~deleted))
    put_ids = put["group_id"].to_numpy()
    put_quota = (
        np.stack([put[name].to_numpy() for name in RATE_COLUMNS])
        if len(put)
        else (np.empty((len(RATE_COLUMNS), 0)))
    )
    # Absent is unlimited. `groups put` refuses a negative one, but others may write the table too.
    put_quota = np.where(np.isnan(put_quota), np.inf, np.maximum(put_quota, 0.0))

    stays = ~np.isin(old.ids, newest["group_id"].to_numpy())
    all_ids = np.concatenate([old.ids[stays], put_ids])
    by_id = np.argsort(all_ids, kind="stable")
    names = pa.concat_arrays(
        [old.names.filter(pa.array(stays)), put["group"].combine_chunks().cast(pa.string())]
    ).take(pa.array(by_id))
    quota = np.concatenate([old.quota[:, stays], put_quota], axis=1)[:, by_id]
    groups = Groups(ids=all_ids[by_id], names=names, quota=quota)

    # Both id arrays are sorted, so the rows keep their order when their groups are renumbered.
    place = np.searchsorted(groups.ids, old.ids)
    alive = np.zeros(len(old), bool)
    inside = place < len(groups)
    alive[inside] = groups.ids[place[inside]] == old.ids[inside]
    keep = alive[rows.group]
    kept = rows.take(keep)
    return (
        groups,
        replace(kept, group=place[kept.group]),
        np.isin(groups.ids, put_ids),
        rows.take(~keep),
    )


def _status_changes(
    brokers: Brokers, intake: Intake | None, stale: BoolArray, gone: BoolArray
) -> pa.Table:
    """One row per broker that came (back), fell silent, or is given up."""
    was_stale = brokers.stale
    came = np.zeros(len(brokers), bool)
    if intake is not None:
        came[intake.back] = True
    parts = (
        (np.flatnonzero(came & ~stale & ~gone), BrokerStatus.LIVE),
        (np.flatnonzero(stale & ~was_stale), BrokerStatus.STALE),
        (np.flatnonzero(gone & (brokers.seen_at_ms >= 0)), BrokerStatus.GONE),
    )
    where = np.concatenate([index for index, _ in parts])
    return pa.table(
        {
            "broker": pa.array(brokers.names, pa.string()).take(pa.array(where)),
            "status": pa.array(
                [status.value for index, status in parts for _ in index], pa.string()
            ),
            "last_seen_at_ms": pa.array(brokers.seen_at_ms[where]),
        }
    )


def _without(brokers: Brokers, rows: Rows, gone: BoolArray) -> tuple[Brokers, Rows]:
    """Forget the brokers that are gone; none of the rows is theirs any more."""
    if not gone.any():
        return brokers, rows
    index = np.cumsum(~gone) - 1
    left: dict[str, Any] = {
        name: value[~gone] for name, value in vars(brokers).items() if name != "names"
    }
    names = tuple(np.array(brokers.names, dtype=object)[~gone])
    return Brokers(names=names, **left), replace(rows, broker=index[rows.broker])


def _pairs(groups: Groups, brokers: Brokers, rows: Rows) -> dict[str, pa.Array]:
    broker, group = (pa.array(index.astype(np.int32)) for index in (rows.broker, rows.group))
    return {
        "broker": pa.DictionaryArray.from_arrays(broker, pa.array(brokers.names, pa.string())),
        "group": pa.DictionaryArray.from_arrays(group, groups.names),
        "group_id": pa.array(groups.ids[rows.group]),
        "uses_ids": pa.array(brokers.uses_ids[rows.broker]),
    }


def _limit_table(groups: Groups, brokers: Brokers, allotment: Allotment) -> pa.Table:
    out: IntArray = allotment.going_out
    rows = allotment.rows.take(out)
    columns = _pairs(groups, brokers, rows)
    columns.update(zip(RATE_COLUMNS, map(pa.array, rows.limit), strict=True))
    columns["changed"] = pa.array(allotment.changed[out])
    columns.update(
        (f"{name}_reason", pa.array(codes[out]))
        for name, codes in zip(DIMENSIONS, allotment.reasons, strict=True)
    )
    return pa.table(columns)


def _ended(groups: Groups, brokers: Brokers, rows: Rows, why: str) -> pa.Table:
    table = pa.table(_pairs(groups, brokers, rows))
    return table.append_column("why", pa.array([why] * len(table), pa.string()))
