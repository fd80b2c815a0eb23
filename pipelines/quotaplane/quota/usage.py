"""What reports say of each (group, broker), followed: use, demand, and limits acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from quotaplane.arrays import to_single
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.demand import Track, learn
from quotaplane.quota.dimensions_in_use import last_told
from quotaplane.quota.leases import Leases

_SILENT_WINDOWS: Final = 4
"""Stock brokers don't say which limits they applied: a new one may have taken so long to get there.
Less, and limits that arrive two intervals late never settle."""

NEWEST: Final = 8
"""So many reports of a pair are learned from in a round, the newest. The demand follows each by a
quarter or more, so a tenth is left of what it was before them; and a backlog costs no more turns
than that. The older ones are in the history all the same."""


def adopt(
    rows: Leases,
    at: IntArray,
    earlier: BoolArray,
    limits: FloatArray | None,
    quota: FloatArray,
) -> tuple[Leases, BoolArray]:
    """Take over limits of an earlier epoch that brokers report to have, where we gave none.

    ``at`` (entries,) is as in ``follow``; ``earlier`` (entries,): it obeys an earlier epoch;
    ``limits`` (d, entries), NaN = not said; ``quota`` (d, groups), which no limit exceeds.
    The second answer, (rows,): which were taken over.
    """
    adopted = np.zeros(len(rows), bool)
    if limits is None or not earlier.any():
        return rows, adopted
    known = np.flatnonzero(earlier & ~rows.has_limit[at] & ~np.isnan(limits).all(axis=0))
    said = np.where(np.isnan(limits), np.inf, limits)[:, known]
    limit = rows.limit.copy()  # of several the last one stays
    limit[:, at[known]] = to_single(np.minimum(said, quota[:, rows.group[at[known]]]))
    adopted[at[known]] = True
    rows = replace(
        rows,
        limit=limit,
        previous_limit=limit,
        max_in_force=limit,
        has_limit=rows.has_limit | adopted,
        notified=rows.notified | adopted,
    )
    return rows, adopted


@dataclass(frozen=True)
class ReportedUsage:
    """What the entries say, (d, entries) or (entries,); NaN = unchanged, or not said.

    ``applied_seq`` is the best guess at which limit was in force: the group's, or else the newest
    of all of the broker's. ``acked_seq`` is only the group's: with another group's, a limit
    whose message was lost would count as applied.
    """

    usage: FloatArray
    throttled: FloatArray
    published_at_ms: IntArray
    window_ms: FloatArray
    applied_epoch: IntArray
    applied_seq: FloatArray
    acked_seq: FloatArray

    def at(self, chosen: BoolArray | slice) -> ReportedUsage:
        """What the chosen entries say."""
        return ReportedUsage(
            usage=self.usage[:, chosen],
            throttled=self.throttled[:, chosen],
            published_at_ms=self.published_at_ms[chosen],
            window_ms=self.window_ms[chosen],
            applied_epoch=self.applied_epoch[chosen],
            applied_seq=self.applied_seq[chosen],
            acked_seq=self.acked_seq[chosen],
        )


@dataclass
class _Known:
    """The columns of ``Leases`` that reports change, written in place."""

    usage: FloatArray
    demand: FloatArray
    noise: FloatArray
    last_deviation: FloatArray
    distrust: IntArray
    reports_refused: BoolArray
    max_in_force: FloatArray
    seen_at_ms: IntArray

    def track(self, spot: IntArray | slice) -> Track:
        """What is known of the demands of the chosen leases."""
        return Track(
            demand=self.demand[:, spot],
            noise=self.noise[:, spot],
            last_deviation=self.last_deviation[:, spot],
            distrust=self.distrust[:, spot],
        )


def follow(
    rows: Leases, at: IntArray, said: ReportedUsage, *, epoch: int, saturated_from: float
) -> Leases:
    """Write the reports' usage into the rows and follow each pair's demand, report by report.

    ``at`` (entries,): the rows they are about, ascending; those of one row as they were made.
    """
    known = _Known(
        usage=rows.usage.copy(),
        demand=rows.demand.copy(),
        noise=rows.noise.copy(),
        last_deviation=rows.last_deviation.copy(),
        distrust=rows.distrust.copy(),
        reports_refused=rows.reports_refused.copy(),
        max_in_force=rows.max_in_force.copy(),
        seen_at_ms=rows.seen_at_ms.copy(),
    )
    turn, said = _turns(at, said)
    # Sorted, so one report of each are the rows one by one; nearly always it is so.
    all_once = not turn.any() and len(at) == len(rows)
    for one in range(int(turn.max(initial=-1)) + 1):
        now: BoolArray | slice = turn == one if turn.any() else slice(None)
        spot: IntArray | slice = slice(None) if all_once else at[now]
        _learn_once(rows, known, spot, said.at(now), epoch, saturated_from)
    return replace(
        rows,
        usage=known.usage,
        demand=known.demand,
        noise=known.noise,
        last_deviation=known.last_deviation,
        distrust=known.distrust,
        reports_refused=known.reports_refused,
        max_in_force=known.max_in_force,
        seen_at_ms=known.seen_at_ms,
    )


def _turns(at: IntArray, said: ReportedUsage) -> tuple[IntArray, ReportedUsage]:
    """When each entry is learned from: 0, 1, ... for the newest of each row; below 0: never.

    Where the first of these says "unchanged", it says what was told last before it.
    """
    begin = np.flatnonzero(np.diff(at, prepend=-1))
    if len(begin) == len(at):
        return np.zeros(len(at), np.int64), said
    count = np.diff(begin, append=len(at))
    turn = np.arange(len(at)) - np.repeat(begin + np.maximum(count - NEWEST, 0), count)
    if not (turn < 0).any():
        return turn, said
    first = np.flatnonzero((turn == 0) & np.repeat(count > NEWEST, count))
    told = last_told(said.usage, at)[:, first]
    usage, throttled = said.usage.copy(), said.throttled.copy()
    usage[:, first] = np.take_along_axis(said.usage, told, axis=1)
    throttled[:, first] = np.take_along_axis(said.throttled, told, axis=1)
    return turn, replace(said, usage=usage, throttled=throttled)


def _learn_once(
    rows: Leases,
    known: _Known,
    spot: IntArray | slice,
    said: ReportedUsage,
    epoch: int,
    saturated_from: float,
) -> None:
    """At most one report of each row, into ``known``.

    What a broker used says something about its demand only beside the limit it was under, so a
    report is held against the limit of its window: while a newer limit was on its way, against
    the lower of both (the broker may have been held back by either).
    """
    limit, issued_seq = rows.limit[:, spot], rows.issued_seq[spot]
    ours = said.applied_epoch == epoch
    behind = (said.applied_seq >= 0) & (~ours | (said.applied_seq < issued_seq))
    # Who says what it applied needs the benefit of the doubt for one window only.
    doubt_ms = said.window_ms * np.where(said.applied_seq < 0, _SILENT_WINDOWS, 1)
    between = ~behind & (rows.issued_at_ms[spot] > said.published_at_ms - doubt_ms)
    under = limit
    if between.any():
        under = np.where(between, np.minimum(under, rows.previous_limit[:, spot]), under)
    if behind.any():
        under = np.where(behind, rows.previous_limit[:, spot], under)
    if not rows.enforced.all():
        under = np.where(rows.enforced[spot], under, np.inf)

    unchanged, last = np.isnan(said.usage), known.usage[:, spot]
    used = to_single(np.where(unchanged, last, said.usage) if unchanged.any() else said.usage)
    told = ~np.isnan(said.throttled)
    before = known.track(spot)
    after = learn(before, last, used, under, said.throttled, saturated_from=saturated_from)
    tells = told.any(axis=0) & (told | unchanged).all(axis=0)  # of all it uses, or it may be stuck
    tells |= known.reports_refused[spot] & unchanged.all(axis=0)
    if unchanged.any():  # of a broker that counts what it refuses nothing is news, too
        after = _where(unchanged & tells, before, after)
    known.usage[:, spot] = used
    known.demand[:, spot] = to_single(after.demand)
    known.noise[:, spot], known.last_deviation[:, spot] = after.noise, after.last_deviation
    known.distrust[:, spot], known.reports_refused[spot] = after.distrust, tells
    known.seen_at_ms[spot] = said.published_at_ms
    arrived = ours & (said.acked_seq >= issued_seq)
    held = known.max_in_force[:, spot]
    if (arrived & (held != limit).any(axis=0)).any():
        known.max_in_force[:, spot] = np.where(arrived, limit, held)


def _where(chosen: BoolArray, yes: Track, no: Track) -> Track:
    return Track(
        demand=np.where(chosen, yes.demand, no.demand),
        noise=np.where(chosen, yes.noise, no.noise),
        last_deviation=np.where(chosen, yes.last_deviation, no.last_deviation),
        distrust=np.where(chosen, yes.distrust, no.distrust),
    )
