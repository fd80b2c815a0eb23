"""quotaplane's own strategy: one round, from the load of a cluster to moves and splits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from quotaplane.balance.balance_state import BalanceState as BalanceState
from quotaplane.balance.broker_watch import Overload, Verdict, judge
from quotaplane.balance.bundle_estimates import BundleEstimates
from quotaplane.balance.bundle_fences import BundleFences
from quotaplane.balance.bundle_orders import MISSED, SEEN, UNDER_WAY, Order, Settled, find, settle
from quotaplane.balance.bundle_splits import SplitDesk
from quotaplane.balance.cluster_load import ClusterLoad
from quotaplane.balance.decisions import Decisions, Move, Skip, Split
from quotaplane.balance.exchanges import Exchanges
from quotaplane.balance.load_board import LoadBoard
from quotaplane.balance.load_model import MachineModel, Workload, workload
from quotaplane.balance.options import BalanceOptions
from quotaplane.balance.policies import Policies
from quotaplane.balance.relief import Relief
from quotaplane.balance.round_budget import RoundBudget
from quotaplane.balance.round_reasons import broker_skips, not_put_right, stuck, unknown_brokers
from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray

RECEIVED_S: Final = 900.0
"""A broker that got a bundle within so long gives none back because of noise."""


class BalanceRound(NamedTuple):
    """What is known when a round begins. B brokers."""

    load: ClusterLoad
    now_s: float
    """Seconds of a clock; only differences count."""
    age_s: FloatArray
    """Shape (B,): seconds since each broker's numbers were measured; inf = there are none."""
    draining: BoolArray
    """Shape (B,): to be taken out, besides those of the policies."""


class Situation(NamedTuple):
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
    board: LoadBoard
    verdict: Verdict
    overload: Overload


def decide(
    state: BalanceState, round_: BalanceRound, options: BalanceOptions, policies: Policies
) -> tuple[BalanceState, Decisions]:
    """Decide one round; docs/balance.md has the objective and how near to it this comes.

    Args:
        state: of the round before.
        round_: what is known now.
        options: of the strategy.
        policies: where bundles may be.

    Returns:
        The state for the next round, and what is to be done now. Equal arguments, in whatever order
        brokers and bundles are listed, give equal results.

    Raises:
        InputError: an unusable number, and whose it is.
    """
    now = _situation(state, _sorted(round_), options, policies)
    moves, splits, skips = _plan(now, options, policies)
    orders = dict(now.settled.orders)
    todo: list[Move | Split] = [*moves, *splits]
    for order in [_order(now, one) for one in todo]:
        before = orders.get(order.bundle)
        attempts = before.attempts + 1 if before and before.status == MISSED else 1
        orders[order.bundle] = order._replace(attempts=attempts)
    after = BalanceState(orders, now.estimates, now.absent, now.machines, now.verdict.watch)
    if not moves and not splits and not any(skip.label != "OutDatedData" for skip in skips):
        skips.append(Skip("", "Balanced", _balanced(now, options)))
    return after, Decisions(moves, splits, [*now.settled.skips, *skips])


def _sorted(round_: BalanceRound) -> BalanceRound:
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
    return BalanceRound(ordered, round_.now_s, np.maximum(age_s, 0)[at], draining)


def _order_of(names: Sequence[str]) -> tuple[IntArray, IntArray]:
    """Places that sort names, and each one's place among the sorted."""
    at = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    to = np.empty(len(names), np.int64)
    to[at] = np.arange(len(names))
    return at, to


def _situation(
    state: BalanceState, round_: BalanceRound, options: BalanceOptions, policies: Policies
) -> Situation:
    load, now_s = round_.load, round_.now_s
    brokers = tuple(load.brokers)
    weights = policies.weights(brokers)
    drained = [name in policies.drained_brokers for name in brokers]
    draining = round_.draining | np.array(drained, np.bool_)
    live = round_.age_s <= options.stale_after_s
    takes = live & ~draining
    measured_at_s = now_s - round_.age_s
    open_ = frozenset(brokers[i] for i in np.flatnonzero(takes).tolist())
    settled = settle(state.orders, load, measured_at_s, open_, now_s, options)

    watch = state.watch.aligned(brokers)
    before, known = state.estimates.joined(state.absent).aligned(load)
    change = known & (before.latest[0] != load.throughput())
    differs = np.bincount(load.owner, change, len(brokers)) > 0
    fresh = watch.fresh(measured_at_s, differs, options) & live
    estimates = before.sampled(load, known & fresh[load.owner], options)
    machines = state.machines.aligned(brokers).learned(load, fresh)
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
    board = LoadBoard(work, owner, missing, live | draining, takes)
    overload = _overload(board, work, estimates, load, machines, options)
    got = {
        order.target
        for order in settled.orders.values()
        if order.status in (UNDER_WAY, SEEN) and now_s - order.ordered_at_s < RECEIVED_S
    }
    receives = np.array([name in got for name in brokers], np.bool_)
    overload = overload._replace(receives=receives)
    verdict = judge(watch, overload, fresh, measured_at_s, options)
    return Situation(
        *(round_, live, draining, takes, settled, estimates),
        *(_absent(state, load, settled), machines, work, board, verdict, overload),
    )


def _absent(state: BalanceState, load: ClusterLoad, settled: Settled) -> BundleEstimates:
    """Estimates of bundles under way that nobody reports."""
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


def _overload(
    board: LoadBoard,
    work: Workload,
    estimates: BundleEstimates,
    load: ClusterLoad,
    machines: MachineModel,
    options: BalanceOptions,
) -> Overload:
    brokers = len(load.brokers)
    ratio = board.ratios()
    mean = board.mean if board.mean > 0 else np.inf
    scarcest = (board.used / board.capacity).argmax(axis=1)
    row = np.arange(brokers)
    capacity = board.capacity[row, scarcest]
    known = estimates.mean > 0
    per_mean = np.divide(1.0, estimates.mean, out=np.zeros(len(known)), where=known)

    need = work.need[np.arange(len(known)), scarcest[board.owner]]
    relative = estimates.squared_error(options)
    error = np.sqrt(np.bincount(board.owner, need**2 * relative, brokers)) / (capacity * mean)

    need_now = work.need[np.arange(len(known)), scarcest[load.owner]]
    sample = np.bincount(load.owner, need_now * estimates.latest[0] * per_mean, brokers)
    sample_ratio = (sample + work.foreign[row, scarcest]) / (capacity * mean)
    full = board.absolute() > options.overloaded_share if board.has_limits else ratio > np.inf
    start = np.where(full, options.stop_below, options.start_above)
    own = np.bincount(board.owner, need, brokers)
    new = np.bincount(board.owner, need / np.maximum(estimates.samples, 1), brokers)
    newness = np.divide(new, own, out=np.ones(brokers), where=own > 0)
    return Overload(
        *(ratio, error, sample_ratio, start, options.stop_below),
        *(min(options.noise_z, 1.0), False, newness),
    )


def _plan(
    now: Situation, options: BalanceOptions, policies: Policies
) -> tuple[list[Move], list[Split], list[Skip]]:
    board, load = now.board, now.round_.load
    brokers, bundles = tuple(load.brokers), tuple(load.bundles)
    skips = broker_skips(
        *(brokers, now.round_.age_s, now.live, now.draining),
        *(now.verdict, now.overload, options),
    )
    skips += unknown_brokers(policies, brokers)
    holds = np.bincount(board.owner, minlength=len(brokers)) > 0
    to_drain = np.flatnonzero(now.draining & holds)
    if now.takes.sum() < 1 or (now.takes.sum() < 2 and not len(to_drain)):
        text = f"{int(now.takes.sum())} of {len(brokers)} brokers may get bundles"
        return [], [], [*skips, Skip("", "NoBrokers", text)]
    fences = BundleFences(policies, brokers, now.takes, bundles, board.owner)
    orders = now.settled.orders.values()
    under_way = sum(order.status == UNDER_WAY for order in orders)
    total = float(now.estimates.mean.sum())
    budget = RoundBudget.of(options, len(brokers), total, under_way)
    resting, avoids, ranges = _resting(now, options)
    error = min(options.noise_z, 1.0) * np.sqrt(now.estimates.squared_error(options))
    relief = Relief(
        *(board, bundles, brokers, now.estimates.mean, fences, resting, avoids, ranges),
        *(budget, error, options),
    )
    desk = SplitDesk(board, load, fences, resting, now.estimates.guessed(), options)
    ratio = now.overload.ratio
    sources = np.flatnonzero(now.verdict.watch.active & now.takes)
    for source in sources[np.argsort(-ratio[sources], kind="stable")].tolist():
        relief.why_not.clear()
        if not _relieved(relief, desk, source, now.overload.target(source), options):
            skips.append(stuck(relief, source, float(ratio[source])))
    for source in to_drain.tolist():
        relief.why_not.clear()
        stay = relief.drain(source)
        if stay:
            skips.append(stuck(relief, source, float(ratio[source]), stay))
    relief.why_not.clear()
    being_split = {split.bundle for split in desk.splits}
    astray = fences.misplaced(now.takes)
    free = [bundles[place] not in being_split for place in astray.tolist()]
    relief.put_right(astray[~now.draining[board.owner[astray]] & np.array(free, np.bool_)])
    if +relief.why_not:
        skips.append(not_put_right(relief))
    return relief.moves, desk.splits, [*skips, *desk.skips]


def _relieved(
    relief: Relief, desk: SplitDesk, source: int, until: float, options: BalanceOptions
) -> bool:
    """Relieve one broker as far as this round can, if possible until (1 + until) times the mean."""
    if desk.waits(source):
        relief.why_not["InFlight"] += 1
        return False
    if desk.too_big(source) or (desk.dominated(source) and desk.too_coarse(source)):
        return True
    if relief.budget.moves <= 0:
        return relief.spent(source)
    stop, pairs = options.stop_below, Exchanges(relief)
    done = relief.relieve(source, until, stop, "Overloaded")
    done = done or relief.board.ratio(source) <= 1 + stop
    while (
        not done
        and options.allow_swaps
        and (pairs.make_room(source, stop) or pairs.swap(source, stop))
    ):
        done = relief.relieve(source, stop, stop, "Overloaded")
    if done or relief.board.ratio(source) <= 1 + options.start_above:
        return done
    full = options.overloaded_share if relief.board.has_limits else np.inf
    if relief.board.absolute().max() <= full:
        done = relief.relieve(source, options.start_above, options.start_above, "Overloaded")
    if not done and relief.why_not.keys() <= {"NoTarget", "Policy"}:
        done = desk.too_coarse(source)
    return done


def _resting(
    now: Situation, options: BalanceOptions
) -> tuple[dict[int, str], dict[int, int], set[str]]:
    """Bundles that stay and why; targets that a missed move avoids; ranges that are moving."""
    load, now_s = now.round_.load, now.round_.now_s
    resting: dict[int, str] = {}
    avoids: dict[int, int] = {}
    ranges: set[str] = set()
    for order in now.settled.orders.values():
        place = find(load.bundles, order.bundle)
        if order.status == UNDER_WAY and order.target:
            ranges.add(order.bundle.rpartition("/")[2])
        if place < 0:
            continue
        if order.status == UNDER_WAY:
            resting[place] = "InFlight"
        elif now_s < order.rests_until_s(options):
            resting[place] = "Missed" if order.status == MISSED else "Grace"
        if order.status == MISSED and find(load.brokers, order.target) >= 0:
            avoids[place] = find(load.brokers, order.target)
    return resting, avoids, ranges


def _order(now: Situation, one: Move | Split) -> Order:
    place = find(now.round_.load.bundles, one.bundle)
    estimates = now.estimates
    mean = float(estimates.mean[place])
    share = float(estimates.share_in[place])
    rates = (mean * share, mean * (1 - share), mean * float(estimates.messages_per_byte[place]))
    source, target = (one.source, one.target) if isinstance(one, Move) else (one.owner, "")
    return Order(one.bundle, source, target, now.round_.now_s, rates)


def _balanced(now: Situation, options: BalanceOptions) -> str:
    ratio = now.board.ratios()[now.takes]
    most = float(ratio.max()) if len(ratio) else 0.0
    return (
        f"the most loaded broker carries {most:.2f} x the mean;"
        f" moves begin above {1 + options.start_above:.2f}"
    )
