"""The step: one round of one shard, ``(state, events, round) -> (state, outcome)``.

Pure: the same state, events and round give the same answer, so Spark, the simulator, a replay
and a dry run all run exactly this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.groups.hierarchy import subtree_totals
from quotaplane.model import (
    BoolArray,
    Mode,
    Round,
)
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.dimensions_in_use import in_use, reported_limits
from quotaplane.quota.group_changes import change_groups
from quotaplane.quota.groups import Groups, whole_trees
from quotaplane.quota.issue import RoundChanges, allot
from quotaplane.quota.learning import DONE
from quotaplane.quota.leases import Leases
from quotaplane.quota.outcome import Outcome, astray_table, ended_table, limit_table, status_changes
from quotaplane.quota.reports import TakenReports, take_in
from quotaplane.quota.rollout import enforced
from quotaplane.quota.state import ShardState
from quotaplane.throttle.coded import changed as terms_changed


def step(
    state: ShardState, events: Events, round_: Round, config: StepConfig
) -> tuple[ShardState, Outcome]:
    """Take in what arrived, drop who fell silent, and divide each touched group's quota anew."""
    groups, brokers, rows = state.groups, state.brokers, state.rows
    quota_changed: BoolArray = np.zeros(len(groups), bool)
    retermed = quota_changed
    dropped: list[pa.Table] = []
    lost: Leases | None = None
    if events.groups is not None and len(events.groups):
        groups, rows, quota_changed, lost = change_groups(state, events.groups)
        before = state.groups
        retermed = terms_changed(before.ids, before.throttle, groups.ids, groups.throttle)
        dropped.append(ended_table(before, brokers, lost, "group_deleted", config))
    defined, may_adopt = groups, state.learning.until_ms != DONE
    dimensions = in_use(groups, rows)
    if may_adopt and events.entries is not None:
        dimensions = tuple(sorted({*dimensions, *reported_limits(events.entries)}))
    groups, rows = groups.narrowed(dimensions), rows.carrying(dimensions)

    intake: TakenReports | None = None
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
            stale_after_ms=config.stale_after_ms,
            latest_start_ms=round_.now_ms + config.max_clock_skew_ms,
            may_adopt=may_adopt,
        )
        brokers, rows, restarted = intake.brokers, intake.rows, intake.restarted
        if intake.adopted.any():  # what an earlier control plane enforced may only be watched now
            still = rows.enforced & (~intake.adopted | enforced(groups, brokers, rows))
            rows = replace(rows, enforced=still)
        touched = touched | intake.touched
    learning, learnt = state.learning.next(intake is not None and intake.foreign, round_, config)
    left = state.left.next(state.groups, lost, round_, config)
    undefined, told = state.undefined.next(intake.unknown if intake else None, round_.now_ms)
    touched = touched | learnt

    silence = round_.now_ms - brokers.seen_at_ms
    gone = silence > config.forget_after_ms
    stale = (silence > config.stale_after_ms) & ~gone
    status = status_changes(brokers, intake, stale, gone)
    brokers = replace(brokers, stale=gone | stale)
    nowhere: BoolArray = np.zeros(len(rows), bool)
    adopted, returned = (intake.adopted, intake.returned) if intake else (nowhere, nowhere)
    silent_rows = gone[rows.broker] | (round_.now_ms - rows.seen_at_ms > config.forget_after_ms)
    if silent_rows.any():
        touched = touched.copy()
        touched[rows.group[silent_rows]] = True
        dropped.append(ended_table(groups, brokers, rows.take(silent_rows), "silent", config))
        rows = rows.take(~silent_rows)
        adopted, returned = adopted[~silent_rows], returned[~silent_rows]

    news = RoundChanges(
        touched=touched,
        quota_changed=quota_changed,
        retermed=retermed,
        reserved=left.reserved(groups, dimensions),
        restarted=restarted,
        adopted=adopted,
        returned=returned,
        learning=learning.on,
    )
    astray: pa.Table | None = None
    # While it learns, a shard may not have heard of all groups yet.
    if intake is not None and len(intake.astray) and learning.until_ms == DONE:
        astray = astray_table(brokers, intake, config)
    allotment = allot(groups, brokers, rows, news, round_, config, state.rounds)
    limits = limit_table(groups, brokers, allotment, config)
    brokers, rows = _without(brokers, allotment.rows, gone)
    ended = (
        pa.concat_tables(dropped)
        if dropped
        else ended_table(groups, brokers, rows.take(np.empty(0, np.int64)), "", config)
    )
    counts = {
        "reports": intake.reports if intake else 0,
        "duplicates": intake.duplicates if intake else 0,
        "outdated": intake.outdated if intake else 0,
        "entries": len(intake.used) if intake else 0,
        "groups_recomputed": int(touched.sum()),
        "limits_changed": int(allotment.changed.sum()),
        "limits_sent": int(allotment.published.sum()),
        "soft_exceeded": _soft_exceeded(groups, rows, touched),
    }
    after = ShardState(
        groups=defined,
        brokers=brokers,
        rows=rows,
        learning=learning,
        left=left,
        undefined=undefined,
        rounds=state.rounds + 1,
    )
    return after, Outcome(
        limits=limits,
        ended=ended,
        usage=intake.used if intake else None,
        unknown=told,
        unknown_entries=len(intake.unknown) if intake else 0,
        astray=astray,
        brokers=status,
        counts=counts,
    )


def _soft_exceeded(groups: Groups, rows: Leases, touched: BoolArray) -> int:
    """How many soft groups, of those touched, use more than their quota with all below them."""
    soft = whole_trees(groups, touched) & (groups.mode == Mode.SOFT)
    if not soft.any():
        return 0
    over: BoolArray = np.zeros(len(groups), bool)
    for usage, quota in zip(rows.usage, groups.quota, strict=True):
        used = np.bincount(rows.group, weights=usage, minlength=len(groups)).astype(float)
        over |= subtree_totals(groups.parent, used) > quota
    return int((over & soft).sum())


def next_due_ms(state: ShardState, config: StepConfig) -> int | None:
    """When this shard must be looked at even if nothing arrives; None while nobody can expire."""
    learnt_ms = state.learning.until_ms if state.learning.on else None
    if not len(state.brokers):
        return learnt_ms
    wait = np.where(state.brokers.stale, config.forget_after_ms, config.stale_after_ms)
    due = (state.brokers.seen_at_ms + wait).min()
    if len(state.rows):
        due = min(due, state.rows.seen_at_ms.min() + config.forget_after_ms)
    if learnt_ms is not None:
        due = min(due, learnt_ms - 1)
    return int(due) + 1


def _without(brokers: Brokers, rows: Leases, gone: BoolArray) -> tuple[Brokers, Leases]:
    """Forget the brokers that are gone; none of the rows is theirs any more."""
    if not gone.any():
        return brokers, rows
    index = np.cumsum(~gone) - 1
    left: dict[str, Any] = {
        name: value[~gone] for name, value in vars(brokers).items() if name != "names"
    }
    names = tuple(np.array(brokers.names, dtype=object)[~gone])
    return Brokers(names=names, **left), replace(rows, broker=index[rows.broker])
