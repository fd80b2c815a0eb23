"""The cluster as the planner sees it in a round: estimates, and orders under way. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.balance_state import BalanceState
from quotabalance.planning.broker_watch import Overload, Verdict, judge
from quotabalance.planning.bundle_estimates import BundleEstimates
from quotabalance.planning.bundle_orders import (
    SEEN,
    UNDER_WAY,
    NotMade,
    Settled,
    find,
    settle,
)
from quotabalance.planning.child_bundles import children_of
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.load_board import OVERLOADED_SHARE, LoadBoard
from quotabalance.planning.load_model import MachineModel, Workload, workload
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.placement_rules import PlacementRules
from quotabalance.planning.policies import Policies
from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray

RECEIVED_S: Final = 900.0
"""A broker that got a bundle within this time gives none away because of noise."""

DOUBTFUL_PERIODS: Final = 3.0
"""After a broker loses bundles, others wait at most this many sample periods for the new owners'
reports."""


class BalanceRound(NamedTuple):
    """The input of a round. B brokers."""

    load: ClusterLoad
    now_s: float
    """Seconds of a clock; only differences count."""
    age_s: FloatArray
    """Shape (B,): seconds since each broker's numbers were measured; inf = there are none."""
    draining: BoolArray
    """Shape (B,): to be taken out, besides those of the policies."""
    not_made: Sequence[NotMade] = ()
    """Orders that the executor has not carried out."""


class RoundView(NamedTuple):
    """A round, sorted by name, and what was learned from it."""

    round_: BalanceRound
    live: BoolArray
    """Shape (B,): its numbers are recent."""
    draining: BoolArray
    takes: BoolArray
    """Shape (B,): may get bundles."""
    settled: Settled
    estimates: BundleEstimates
    absent: BundleEstimates
    machines: MachineModel
    work: Workload
    rules: PlacementRules
    board: LoadBoard
    verdict: Verdict
    overload: Overload
    lost_share: float
    """The part of the load whose broker is gone: where it is now is not known yet. It was reported
    in the round before and is not now, though nothing was ordered, or only by the last report of a
    broker that lost other bundles since."""


def view_round(
    state: BalanceState, round_: BalanceRound, options: BalanceOptions, policies: Policies
) -> RoundView:
    """Learn from a round whose names are sorted, and see what brokers carry once orders are done.

    Args and errors are those of ``planner.decide``.
    """
    load, now_s = round_.load, round_.now_s
    brokers = tuple(load.brokers)
    weights = policies.weights(brokers)
    drained = [name in policies.drained_brokers for name in brokers]
    draining = round_.draining | np.array(drained, np.bool_)
    live = round_.age_s <= options.stale_after_s
    measured_at_s = now_s - round_.age_s
    watch = state.watch.aligned(brokers)
    last = state.estimates.joined(state.absent)
    before, known = last.aligned(load)
    lost_at_s = before.lost_at_s(load, known, measured_at_s, state.orders)
    lost_at_s = np.maximum(watch.lost_at_s, lost_at_s)
    lost_bundles = lost_at_s > measured_at_s
    watch = replace(watch, lost_at_s=np.where(lost_bundles, lost_at_s, -np.inf))
    takes = live & ~draining & ~lost_bundles
    doubtful = lost_bundles & (round_.age_s <= DOUBTFUL_PERIODS * options.sample_period_s)
    open_ = frozenset(brokers[i] for i in np.flatnonzero(takes).tolist())
    settled = settle(state.orders, load, measured_at_s, open_, now_s, options, round_.not_made)

    change = known & (before.latest[0] != load.throughput())
    differs = np.bincount(load.owner, change, len(brokers)) > 0
    fresh = watch.fresh(measured_at_s, differs, options) & live
    estimates = before.sampled(load, known & fresh[load.owner])
    machines = state.machines.aligned(brokers).learned(load, fresh & ~last.handed_over(load))
    work = workload(load, estimates, machines, live, weights, options)

    under_way = [o for o in settled.orders.values() if o.status == UNDER_WAY and o.target]
    owner = load.owner.copy()
    missing = np.zeros((len(brokers), work.need.shape[1]))
    for order in under_way:
        place, target = find(load.bundles, order.bundle), find(brokers, order.target)
        if place >= 0:
            owner[place] = target
        else:
            missing[target] += np.array(order.rates) @ work.per_unit
    rules = PlacementRules(policies, brokers, takes, tuple(load.bundles), owner)
    board = LoadBoard(work, owner, missing, live | draining, takes, rules.pools)
    overload = _overload(board, work, estimates, options)
    got = {
        order.target
        for order in settled.orders.values()
        if order.status in (UNDER_WAY, SEEN) and now_s - order.ordered_at_s < RECEIVED_S
    }
    receives = np.array([name in got for name in brokers], np.bool_)
    overload = overload._replace(receives=receives)
    verdict = judge(watch, overload, fresh, measured_at_s, options)
    return RoundView(
        round_=round_,
        live=live,
        draining=draining,
        takes=takes,
        settled=settled,
        estimates=estimates,
        absent=_absent(state, load, settled),
        machines=machines,
        work=work,
        rules=rules,
        board=board,
        verdict=verdict,
        overload=overload,
        lost_share=_lost_share(last, load, settled, doubtful),
    )


def sorted_by_name(round_: BalanceRound) -> BalanceRound:
    """The round with brokers and bundles in the order of their names."""
    load = round_.load
    load.check()
    brokers = len(load.brokers)
    for name in ("age_s", "draining"):
        shape = np.shape(getattr(round_, name))
        if shape != (brokers,):
            raise InputError(f"{name}: has shape {shape}, not {(brokers,)}")
    age_s = np.asarray(round_.age_s, np.float64)
    if np.isnan(age_s).any():
        raise InputError(f"broker {load.brokers[int(np.isnan(age_s).argmax())]}: age_s is NaN")
    if not np.isfinite(round_.now_s):
        raise InputError(f"now_s: is {round_.now_s}; expected a finite number")
    at, to = _order_of(load.brokers)
    by, _ = _order_of(load.bundles)
    owner = load.owner[by]
    ordered = ClusterLoad(
        brokers=tuple(load.brokers[i] for i in at.tolist()),
        usage=np.asarray(load.usage[at], np.float64),
        limit=np.asarray(load.limit[at], np.float64),
        bundles=tuple(sorted(load.bundles)),
        owner=to[owner] if brokers else owner,
        rates=np.asarray(load.rates[by], np.float64),
        topics=load.topics[by] if len(load.topics) else load.topics,
        sessions=load.sessions[by] if len(load.sessions) else load.sessions,
    )
    draining = np.asarray(round_.draining, np.bool_)[at]
    return BalanceRound(ordered, round_.now_s, np.maximum(age_s, 0)[at], draining, round_.not_made)


def _order_of(names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Places that sort names, and each one's place among the sorted."""
    at = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    to = np.empty(len(names), np.int64)
    to[at] = np.arange(len(names))
    return at, to


def _absent(state: BalanceState, load: ClusterLoad, settled: Settled) -> BundleEstimates:
    """Estimates of bundles under way that no broker reports."""
    gone = [
        order.bundle
        for order in settled.orders.values()
        if order.status == UNDER_WAY and order.target and find(load.bundles, order.bundle) < 0
    ]
    if not gone:
        return BundleEstimates.empty()
    last = state.estimates.joined(state.absent)
    place = dict(zip(last.names, range(len(last.names)), strict=True))
    return last.taken([place[name] for name in sorted(gone) if name in place])


def _lost_share(
    last: BundleEstimates, load: ClusterLoad, settled: Settled, doubtful: BoolArray
) -> float:
    mine = set(load.bundles)
    carried: dict[str, float] = dict(zip(last.names, last.mean.tolist(), strict=True))
    gone = [name for name in last.names if name not in mine and name not in settled.orders]
    total = float(last.mean.sum())
    if not (gone or doubtful.any()) or total <= 0:
        return 0.0
    on_doubtful = np.flatnonzero(doubtful[load.owner]).tolist()
    unsure = sum(carried.get(load.bundles[place], 0.0) for place in on_doubtful)
    split = children_of(gone, [name for name in load.bundles if name not in carried])
    return (unsure + sum(carried[name] for name in gone if name not in split)) / total


def _overload(
    board: LoadBoard,
    work: Workload,
    estimates: BundleEstimates,
    options: BalanceOptions,
) -> Overload:
    brokers = len(board.takes)
    ratio = board.ratios()
    mean = np.where(board.mean > 0, board.mean, np.inf)
    scarcest = (board.used / board.capacity).argmax(axis=1)
    row = np.arange(brokers)
    capacity = board.capacity[row, scarcest]
    known = estimates.mean > 0
    per_mean = np.divide(1.0, estimates.mean, out=np.zeros(len(known)), where=known)

    need = work.need[np.arange(len(known)), scarcest[board.owner]]
    relative = estimates.squared_error()
    error = np.sqrt(np.bincount(board.owner, need**2 * relative, brokers)) / (capacity * mean)

    own = np.bincount(board.owner, need, brokers)
    samples = estimates.latest[: options.confirm_window_samples]
    measured = ~np.isnan(samples)
    carried = np.where(measured, samples * per_mean, 1.0) * need
    sums = np.array([np.bincount(board.owner, column, brokers) for column in carried], np.float64)
    known_of = np.array([np.bincount(board.owner, need * column, brokers) for column in measured])
    sums[known_of <= own / 2] = np.nan  # most of its load was not measured then
    sample_ratios = (sums + work.foreign[row, scarcest]) / (capacity * mean)
    full = board.absolute() > OVERLOADED_SHARE if board.has_limits else ratio > np.inf
    start = np.where(full, options.stop_below, options.start_above)
    new = np.bincount(board.owner, need / np.maximum(estimates.samples, 1), brokers)
    newness = np.divide(new, own, out=np.ones(brokers), where=own > 0)
    return Overload(
        ratio,
        error,
        sample_ratios,
        start,
        options.stop_below,
        min(options.noise_z, 1.0),
        False,
        newness,
    )
