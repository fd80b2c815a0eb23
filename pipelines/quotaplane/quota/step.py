"""The quota step: one round of one shard, ``(state, events, round) -> (state, outcome)``.

It is pure: the same state, events and round give the same result. So Spark, the simulator, a replay
and a dry run all run this function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from quotaplane.model import FloatArray, Round
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.group_changes import GroupChanges, change_groups, no_changes
from quotaplane.quota.issue import IssuedLimits, RoundChanges, issue_limits
from quotaplane.quota.learning import DONE
from quotaplane.quota.outcome import (
    Outcome,
    changed_table,
    ended_table,
    limit_table,
    limited_but_deleted_table,
    status_changes,
)
from quotaplane.quota.overuse import Overuse
from quotaplane.quota.report_changes import ReportChanges, apply_reports, no_reports
from quotaplane.quota.report_matching import match_reports
from quotaplane.quota.report_sources import choose_sources
from quotaplane.quota.reported_limits import limited_dimensions
from quotaplane.quota.shard import Shard
from quotaplane.quota.silence import Silence, find_silence, without_silent
from quotaplane.quota.standing_counts import standing
from quotaplane.quota.state import ShardState
from quotaplane.quota.time_jumps import after_jump
from quotaplane.round_counts import RoundCounts


def step(
    state: ShardState, events: Events, round_: Round, config: StepConfig
) -> tuple[ShardState, Outcome]:
    """Apply the events, end the leases of silent brokers, and divide the touched groups' quotas.

    The order is: changes of groups, reports, silent brokers, division.
    """
    state = after_jump(state, round_, config)
    changes = no_changes(state)
    if events.groups is not None and len(events.groups):
        changes = change_groups(state, events.groups)
    shard = Shard(changes.groups, state.brokers, changes.leases)
    sources = choose_sources(state.observed, shard, events, round_, config)
    entries = sources.events.entries
    # Limits of an earlier epoch are taken over from reports only until learning mode is done.
    may_adopt = state.learning.until_ms != DONE
    shard = shard.in_use(
        limited_dimensions(entries) if may_adopt and entries is not None else frozenset()
    )
    matched = match_reports(shard, sources.events, round_, config)
    reports = no_reports(shard)
    if matched is not None:
        reports = apply_reports(
            matched, round_, config, may_adopt=may_adopt, last_round_ms=state.last_round_ms
        )
    learning, learning_ended = state.learning.next(reports.foreign, round_, config)
    deleted = state.deleted.next(state.groups, changes.lost, round_, config)
    undefined, unknown = state.undefined.next(reports.unknown, round_.now_ms)

    shard = reports.shard
    silence = find_silence(shard, events, round_.now_ms, config)
    status = status_changes(shard.brokers, reports.recovered, silence)
    ending = silence.ending(shard)
    touched = changes.changed | reports.touched | learning_ended | silence.groups(shard)
    overuse, debt = _overuse(state, reports, silence, round_, config)
    shard = without_silent(shard, silence)
    not_silent = ~silence.leases
    # A job that starts does not know what brokers missed, so all limits are due.
    due, renewed_at_ms = config.lease.due_turns(
        state.renewed_at_ms if events.start <= state.start else state.renewed_at_ms[:0],
        round_.now_ms,
        config.refresh_rounds,
    )
    issued = issue_limits(
        shard,
        RoundChanges(
            touched=touched,
            quota_changed=changes.changed,
            throttle_changed=changes.throttle_changed,
            reserved=deleted.reserved(shard.groups, shard.leases.dimensions),
            debt=debt,
            restarted=reports.restarted,
            adopted=reports.adopted[not_silent],
            returned=reports.returned[not_silent],
            learning=learning.on,
        ),
        round_,
        config,
        due,
    )
    shard = replace(shard, leases=issued.leases)
    remaining = shard.without_brokers(silence.gone)
    # In learning mode the definitions of some groups may not have arrived yet.
    missed_deletion = reports.limited_but_deleted if learning.until_ms == DONE else None
    outcome = Outcome(
        limits=limit_table(shard, issued, config),
        changed=changed_table(shard, issued),
        ended=_ended(state, changes, ending, config),
        usage=reports.used,
        unknown=unknown,
        unknown_entries=0 if reports.unknown is None else len(reports.unknown),
        limited_but_deleted=limited_but_deleted_table(shard.brokers, missed_deletion, config),
        brokers=status,
        counts=replace(
            _counts(reports, issued),
            observed_pairs=sources.current,
            sources_differing=sources.differing,
            brokers_departed=int(silence.departed.sum()),
            **standing(remaining, renewed_at_ms, touched, learning=learning.on, over=config.over),
        ),
    )
    return (
        ShardState(
            groups=changes.groups,
            brokers=remaining.brokers,
            leases=remaining.leases,
            learning=learning,
            deleted=deleted,
            undefined=undefined,
            overuse=overuse,
            observed=sources.pairs,
            renewed_at_ms=renewed_at_ms,
            start=max(state.start, events.start),
            snapshot_at_ms=state.snapshot_at_ms,
            recorded_at_ms=state.recorded_at_ms,
        ),
        outcome,
    )


def _overuse(
    state: ShardState, reports: ReportChanges, silence: Silence, round_: Round, config: StepConfig
) -> tuple[Overuse, FloatArray | None]:
    """The debts of groups; None: limits never exceed quotas."""
    if config.over == 0.0:
        return Overuse(), None
    return state.overuse.next(reports.shard, reports.use, silence.leases, round_.now_ms, config)


def _ended(
    state: ShardState, changes: GroupChanges, ending: Mapping[str, Shard], config: StepConfig
) -> pa.Table:
    """Rows of ``Outcome.ended``: the leases of deleted groups, then those of ``Silence.ending``."""
    parts = dict(ending)
    if changes.lost is not None and len(changes.lost):
        parts = {"group_deleted": Shard(state.groups, state.brokers, changes.lost), **parts}
    tables = [ended_table(shard, why, config) for why, shard in parts.items() if len(shard.leases)]
    return pa.concat_tables(tables or [ended_table(ending["silent"], "silent", config)])


def _counts(reports: ReportChanges, issued: IssuedLimits) -> RoundCounts:
    return RoundCounts(
        reports=reports.reports,
        duplicates=reports.duplicates,
        outdated=reports.outdated,
        entries=reports.entries,
        groups_recomputed=int(issued.divided.sum()),
        limits_changed=int(issued.changed.sum()),
        limits_sent=int(issued.published.sum()),
    )


def next_due_ms(state: ShardState, config: StepConfig) -> int | None:
    """The time of the shard's next round if no event arrives before; None: no round is needed."""
    learning_ends_ms = state.learning.until_ms if state.learning.on else None
    if not len(state.brokers):
        return learning_ends_ms
    forgotten_after_ms = config.lease.forgotten_after_ms
    wait = np.where(state.brokers.stale, forgotten_after_ms, config.stale_after_ms)
    due = (state.brokers.read_at_ms + wait).min()
    # ``without_absence`` takes a longer time without rounds for one in which the job was away.
    due = min(due, state.last_round_ms + config.lease.quarter_ms / 2)
    if len(state.leases):
        shard = Shard(state.groups, state.brokers, state.leases)
        due = min(due, forgotten_after_ms - shard.silent_ms(0)[1].max())
    if learning_ends_ms is not None:
        due = min(due, learning_ends_ms - 1)
    return int(due) + 1
