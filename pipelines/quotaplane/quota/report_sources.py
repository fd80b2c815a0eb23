"""Two sources for one broker's usage: its own reports, and the enforcer's observations of it.

``choose_sources`` decides for each pair of a broker and a group which of the two is used. What it
returns looks as if the broker had sent all of it, so the rest of the step knows one source only.
docs/adr/0018-observed-usage.md has the rules and their reasons.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrays import find, last_values, taken
from quotaplane.arrow import indices_of
from quotaplane.model import BASIC, PARTS, RATE_COLUMNS, BoolArray, FloatArray, IntArray, Round
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.observed_pairs import (
    MOST_MISSES,
    ObservedPairs,
    observed_ones,
    with_new_pairs,
)
from quotaplane.quota.shard import Shard

HOLD_WINDOWS: Final = 3
"""An observation is current for so many of its windows after it was published."""
_LEAST_PART: Final = 0.5
"""An own report is compared if at least this fraction of its window was observed."""
_TOLERATED: Final = 0.1
"""Fraction by which the two may differ. Stock brokers do not report changes of up to 5 %."""
_LEAST: Final = np.array([[1.0], [1000.0], [5.0], [5000.0]])
"""Smaller differences per second do not count: in messages, bytes, messages, bytes. Dispatch of a
group includes what brokers read of its system topics themselves: each write of a rate."""
_SHIFT_WINDOWS: Final = 2
"""The compared stretches of time begin and end up to so many windows apart."""
_BASIC: Final = RATE_COLUMNS[:BASIC]


@dataclass(frozen=True)
class ChosenReports:
    """A round's reports, in which each entry is from the source that counts."""

    pairs: ObservedPairs
    events: Events
    current: int = 0
    """Pairs whose observed usage counts."""
    differing: int = 0
    """Pairs whose own report in this round differed from what was observed."""


def _recorded_aside(
    pairs: ObservedPairs, headers: pa.Table, entries: pa.Table, round_: Round, config: StepConfig
) -> pa.Table:
    """Those of the entries set aside that are recorded.

    They are from the source that counts for the pair after this round: both are of the same time.
    """
    report = entries["report"].to_numpy()
    broker = indices_of(headers["broker"], pa.array(pairs.brokers, pa.string()))
    pair = pairs.find(broker[report], entries["group_id"].to_numpy())
    by_observation = np.append(_count(pairs, round_, config), False)[pair]  # -1: not observed
    kept = by_observation == observed_ones(headers)[report]
    return entries.filter(pa.array(kept)).combine_chunks()


@dataclass(frozen=True)
class _Headers:
    """Columns of the r headers, as arrays (r,)."""

    observed: BoolArray
    """An observation that may count."""
    dropped: BoolArray
    """An observation that may not: the broker counts its refusals itself."""
    broker: IntArray
    """Index in ``ObservedPairs.brokers``; -1: the broker is not there."""
    sequence: IntArray
    newest: IntArray
    """Number of the broker's newest report that was used; 0: there is none."""
    rank: IntArray
    """Position by the time they were made; it does not depend on the order of arrival."""
    published_at_ms: IntArray
    """At the latest the time of the round."""
    window_s: FloatArray


@dataclass(frozen=True)
class _Entries:
    """Entries of one source, of observed pairs, sorted by pair, then by sequence; m of them."""

    row: IntArray
    """(m,) in the table of entries."""
    pair: IntArray
    report: IntArray
    usage: FloatArray
    """(4, m) per second; NaN: unchanged."""

    def take(self, chosen: BoolArray | IntArray) -> _Entries:
        return taken(self, chosen)

    @property
    def last(self) -> BoolArray:
        """(m,) the newest entry of its pair."""
        newest: BoolArray = np.diff(self.pair, append=-1) != 0
        return newest


def choose_sources(
    pairs: ObservedPairs, shard: Shard, events: Events, round_: Round, config: StepConfig
) -> ChosenReports:
    """Choose between own reports and observations; ``shard`` is as before these reports."""
    chosen = _chosen(pairs, shard, events, round_, config)
    if events.aside is None:
        return chosen
    headers, entries = events.aside
    entries = _recorded_aside(chosen.pairs, headers, entries, round_, config)
    return replace(chosen, events=replace(chosen.events, aside=(headers, entries)))


def _chosen(
    pairs: ObservedPairs, shard: Shard, events: Events, round_: Round, config: StepConfig
) -> ChosenReports:
    headers, entries = events.headers, events.entries
    if headers is None or entries is None or not len(headers):
        pairs = _remembered(pairs, round_, config)
        return ChosenReports(pairs, events, _current(pairs, round_, config))
    if not len(pairs) and "observed" not in headers.column_names:
        return ChosenReports(pairs, events)
    pairs, heads = _opened(pairs, shard.brokers, headers, round_)
    report, ids = entries["report"].to_numpy(), entries["group_id"].to_numpy()
    observed = heads.observed[report]
    there = heads.broker[report[observed]]
    pairs = with_new_pairs(pairs, shard, there, ids[observed], round_, config)
    pair = pairs.find(heads.broker[report], ids)

    of_pair = observed & (pair >= 0)
    observations = _newer(_select(entries, pair, of_pair, heads), pairs, heads)
    pairs = _observe(pairs, observations, heads, config)
    is_own = ~observed & ~heads.dropped[report] & (pair >= 0)
    # An outdated report was compared when it was new, or came too late for that.
    outdated = is_own & (heads.sequence[report] <= heads.newest[report])
    is_own &= ~outdated
    own = _select(entries, pair, is_own, heads)
    # Numbers where a report says "unchanged".
    own_usage = last_values(own.usage, pairs.own_usage, own.pair)
    pairs, differing = _compare(pairs, replace(own, usage=own_usage), heads, shard)

    counts = _count(pairs, round_, config)
    used = ~of_pair & ~heads.dropped[report] & ~outdated
    used[observations.row] = counts[observations.pair]
    late = heads.published_at_ms[own.report] > pairs.until_ms[own.pair]
    used[own.row] = late | ~counts[own.pair]
    entries = _with_usage(entries, own.row, own_usage)
    headers, entries = _kept(headers, entries, used, heads)
    # An observation that ended begins anew, as it may be of another enforcer, which sees less.
    ended = np.zeros(len(pairs), bool)
    ended[own.pair[late]] = True
    pairs = _remembered(pairs.take(~ended), round_, config)
    events = replace(events, headers=headers, entries=entries)
    return ChosenReports(pairs, events, _current(pairs, round_, config), differing)


def _opened(
    pairs: ObservedPairs, brokers: Brokers, headers: pa.Table, round_: Round
) -> tuple[ObservedPairs, _Headers]:
    """The pairs, with the names of all observed brokers, and the headers as arrays."""
    marked = observed_ones(headers)
    names = headers["broker"].combine_chunks()
    # A broker that numbers its reports has an agent, which knows more than its counters show.
    numbered = {n for n, s in zip(brokers.names, brokers.started_at_ms, strict=True) if s > 0}
    by_itself = ~marked & (headers["started_at_ms"].to_numpy() > 0)
    numbered |= {*names.filter(pa.array(by_itself)).to_pylist()}
    has_agent = pc.is_in(names, value_set=pa.array(sorted(numbered), pa.string()))
    dropped = marked & has_agent.to_numpy(zero_copy_only=False)
    observed = marked & ~dropped
    pairs = pairs.with_brokers(names.filter(pa.array(observed)).to_pylist())
    newest = dict(zip(brokers.names, brokers.sequence.tolist(), strict=True))
    number = np.array([max(newest.get(name, 0), 0) for name in names.to_pylist()], np.int64)
    sequence, published = (headers[n].to_numpy() for n in ("sequence", "published_at_ms"))
    _, position = np.unique(headers["position"].to_numpy(), return_inverse=True)
    rank = np.empty(len(headers), np.int64)
    rank[np.lexsort((position, published, sequence))] = np.arange(len(headers))
    return pairs, _Headers(
        observed=observed,
        dropped=dropped,
        broker=indices_of(names, pa.array(pairs.brokers, pa.string())),
        sequence=sequence,
        newest=number,
        rank=rank,
        published_at_ms=np.minimum(published, round_.now_ms),
        window_s=headers["window_s"].to_numpy(),
    )


def _select(entries: pa.Table, pair: IntArray, chosen: BoolArray, heads: _Headers) -> _Entries:
    """The chosen rows of the table."""
    row = np.flatnonzero(chosen)
    report = entries["report"].to_numpy()[row]
    order = np.lexsort((heads.rank[report], pair[row]))
    row, report = row[order], report[order]
    usage = np.stack([entries[name].to_numpy()[row] for name in _BASIC])
    return _Entries(row, pair[row], report, usage)


def _newer(observations: _Entries, pairs: ObservedPairs, heads: _Headers) -> _Entries:
    """Those that are newer than all before; of two with one sequence, the first."""
    pair, sequence = observations.pair, heads.sequence[observations.report]
    repeats = (np.diff(pair, prepend=-1) == 0) & (np.diff(sequence, prepend=-1) == 0)
    return observations.take((sequence > pairs.sequence[pair]) & ~repeats)


def _observe(
    pairs: ObservedPairs, observations: _Entries, heads: _Headers, config: StepConfig
) -> ObservedPairs:
    """Take the observations into the pairs' stretches."""
    if not len(observations.row):
        return pairs
    pair, report, usage = observations.pair, observations.report, observations.usage
    # A longer window would let one report silence its broker.
    window_s = np.minimum(heads.window_s[report], config.stale_after_ms / 1000.0 / HOLD_WINDOWS)
    units, observed_s = pairs.units.copy(), pairs.observed_s.copy()
    low, high = pairs.low.copy(), pairs.high.copy()
    for dimension in range(BASIC):
        known = ~np.isnan(usage[dimension])
        of, used, seconds = pair[known], usage[dimension, known], window_s[known]
        units[dimension] += np.bincount(of, used * seconds, len(pairs))
        observed_s[dimension] += np.bincount(of, seconds, len(pairs))
        np.maximum.at(high[dimension], of, used)
        np.minimum.at(low[dimension], of, used)
    newest = np.flatnonzero(observations.last)
    at, report = pair[newest], report[newest]
    sequence, until_ms, last_s = pairs.sequence.copy(), pairs.until_ms.copy(), pairs.window_s.copy()
    sequence[at] = heads.sequence[report]
    last_s[at] = window_s[newest]
    hold_ms = (HOLD_WINDOWS * 1000.0 * window_s[newest]).astype(np.int64)
    until_ms[at] = heads.published_at_ms[report] + hold_ms
    return replace(
        pairs,
        sequence=sequence,
        until_ms=until_ms,
        window_s=last_s,
        observed_s=observed_s,
        units=units,
        low=low,
        high=high,
    )


def _limited(pairs: ObservedPairs, shard: Shard, chosen: IntArray) -> BoolArray:
    """(4, m) dimensions in which something limits the chosen pairs, so that usage matters."""
    limited = np.ones((BASIC, len(chosen)), bool)
    group = find(shard.groups.ids, pairs.group_id[chosen])
    defined = np.flatnonzero(group >= 0)
    has_quota = np.isfinite(shard.groups.least_quota()[:, group[defined]])
    limited[:, defined] = has_quota[:BASIC]
    for total, parts in PARTS.items():
        for part in parts:
            limited[part, defined] |= has_quota[total]
    lease = pairs.take(chosen).leases_in(shard)
    leased = np.flatnonzero(lease >= 0)
    limited[:, leased] |= np.isfinite(shard.leases.limit[:BASIC, lease[leased]])
    return limited


def _compare(
    pairs: ObservedPairs, own: _Entries, heads: _Headers, shard: Shard
) -> tuple[ObservedPairs, int]:
    """Compare own reports with what was observed in their windows; begin new stretches.

    Returns the number of pairs that differ, too. ``own`` has no NaN.
    """
    newest = own.take(own.last)
    pair, usage = newest.pair, newest.usage
    if not len(pair):
        return pairs, 0
    window_s, seconds = heads.window_s[newest.report], pairs.observed_s[:, pair]
    # Of several own reports in one round, each has only a part of the stretch.
    single = np.bincount(own.pair, minlength=len(pairs))[pair] == 1
    comparable = single & (seconds >= _LEAST_PART * window_s) & (seconds > 0.0)
    comparable &= _limited(pairs, shard, pair)
    mean = np.divide(pairs.units[:, pair], seconds, out=np.zeros_like(usage), where=seconds > 0.0)
    spread = np.where(comparable, pairs.high[:, pair] - pairs.low[:, pair], 0.0)
    shift = np.divide(
        _SHIFT_WINDOWS * pairs.window_s[pair], window_s, out=np.ones(len(pair)), where=window_s > 0
    )
    slack = _LEAST + spread * np.minimum(shift, 1.0)
    more = (comparable & (usage > (1.0 + _TOLERATED) * mean + slack)).any(axis=0)
    fewer = (comparable & (mean > (1.0 + _TOLERATED) * usage + slack)).any(axis=0)
    misses, own_usage, own_at_ms = (
        pairs.misses.copy(),
        pairs.own_usage.copy(),
        pairs.own_at_ms.copy(),
    )
    missed = np.minimum(misses[pair] + 1, MOST_MISSES)
    misses[pair] = np.where(more, missed, np.where(comparable.any(axis=0), 0, misses[pair]))
    own_usage[:, pair] = usage
    own_at_ms[pair] = heads.published_at_ms[newest.report]
    begins = np.zeros(len(pairs), bool)
    begins[pair] = True
    return replace(
        pairs,
        misses=misses,
        own_usage=own_usage,
        own_at_ms=own_at_ms,
        observed_s=np.where(begins, 0.0, pairs.observed_s),
        units=np.where(begins, 0.0, pairs.units),
        low=np.where(begins, np.inf, pairs.low),
        high=np.where(begins, 0.0, pairs.high),
    ), int((more | fewer).sum())


def _count(pairs: ObservedPairs, round_: Round, config: StepConfig) -> BoolArray:
    """(k,) pairs whose observation counts.

    It does not while own reports have more usage; but if these stop, it is better than nothing.
    """
    without_own = round_.now_ms - pairs.own_at_ms > config.stale_after_ms
    counts: BoolArray = (pairs.misses < MOST_MISSES) | without_own
    return counts


def _current(pairs: ObservedPairs, round_: Round, config: StepConfig) -> int:
    """The number of pairs whose usage the observation decides now."""
    return int((_count(pairs, round_, config) & (pairs.until_ms >= round_.now_ms)).sum())


def _with_usage(entries: pa.Table, rows: IntArray, usage: FloatArray) -> pa.Table:
    """The table with other usage (4, m) in some rows."""
    if not len(rows):
        return entries
    for dimension, name in enumerate(_BASIC):
        column = entries[name].to_numpy().copy()
        column[rows] = usage[dimension]
        entries = entries.set_column(
            entries.column_names.index(name), entries.field(name), pa.array(column)
        )
    return entries


def _kept(
    headers: pa.Table, entries: pa.Table, used: BoolArray, heads: _Headers
) -> tuple[pa.Table, pa.Table]:
    """Only the used entries, and the headers without observations that have none of them.

    Observations get the numbers that follow the broker's newest own report, so that they are used
    in their order, and the next own report is newer than they are.
    """
    report = entries["report"].to_numpy()
    has_used = np.bincount(report[used], minlength=len(headers)) > 0
    kept = ~heads.dropped & (~heads.observed | has_used)
    numbered = np.flatnonzero(heads.observed & kept)
    order = numbered[np.lexsort((heads.rank[numbered], heads.broker[numbered]))]
    begins = np.diff(heads.broker[order], prepend=-1) != 0
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    sequence = heads.sequence.copy()
    sequence[order] = heads.newest[order] + 1 + np.arange(len(order)) - first
    started = np.where(heads.observed, 0, headers["started_at_ms"].to_numpy())
    for name, column in (("sequence", sequence), ("started_at_ms", started)):
        at = headers.column_names.index(name)
        headers = headers.set_column(at, headers.field(name), pa.array(column))
    row = pa.array((np.cumsum(kept) - 1)[report].astype(np.int32))
    entries = entries.set_column(0, entries.field("report"), row)
    return headers.filter(pa.array(kept)), entries.filter(pa.array(used))


def _remembered(pairs: ObservedPairs, round_: Round, config: StepConfig) -> ObservedPairs:
    """The pairs without those that were not observed for so long that a lease would end."""
    if not len(pairs):
        return pairs
    recent = round_.now_ms - pairs.until_ms <= config.lease.forgotten_after_ms
    return pairs if recent.all() else pairs.take(recent)
