"""quotaplane's own strategy: one round, from the load of a cluster to moves and splits. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotabalance.planning.above_limits import AboveLimit, above_limits
from quotabalance.planning.balance_state import BalanceState as BalanceState
from quotabalance.planning.bundle_moves import HeldBack, MovePlanner, RoundBudget
from quotabalance.planning.bundle_orders import MISSED, UNDER_WAY, Order, find
from quotabalance.planning.bundle_splits import SplitPlanner
from quotabalance.planning.bundle_swaps import SwapPlanner
from quotabalance.planning.decisions import Decisions, Move, Skip, Split
from quotabalance.planning.load_board import OVERLOADED_SHARE
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.policies import Policies
from quotabalance.planning.round_reasons import (
    broker_skips,
    held_by_policies,
    load_lost,
    misplaced_stay,
    stuck,
    unknown_names,
)
from quotabalance.planning.round_view import BalanceRound as BalanceRound
from quotabalance.planning.round_view import RoundView, sorted_by_name, view_round
from quotaplane.model import IntArray

MOST_LOST: Final = 0.01
"""Overloaded brokers wait while a larger part of the load has no known broker: any broker may have
got it."""

PLAN_BYTES: Final = 900_000
"""A larger plan loses its last moves: Kafka accepts 1 MB by default."""


def decide(
    state: BalanceState, round_: BalanceRound, options: BalanceOptions, policies: Policies
) -> tuple[BalanceState, Decisions]:
    """Decide one round; docs/explain/balance.md has the objective and how near to it this comes.

    Args:
        state: of the round before.
        round_: what is known now.
        options: of the strategy.
        policies: where bundles may be.

    Returns:
        The state for the next round, and the actions now. Equal arguments, in any order of
        brokers and bundles, give equal results.

    Raises:
        InputError: an unusable number, and whose it is.
    """
    now = view_round(state, sorted_by_name(round_), options, policies)
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


def _plan(
    now: RoundView, options: BalanceOptions, policies: Policies
) -> tuple[list[Move], list[Split], list[Skip]]:
    board, load = now.board, now.round_.load
    brokers, bundles = tuple(load.brokers), tuple(load.bundles)
    skips = broker_skips(now, options)
    skips += unknown_names(policies, now.rules, brokers)
    skips += held_by_policies(now, options)
    holds = np.bincount(board.owner, minlength=len(brokers)) > 0
    to_drain = np.flatnonzero(now.draining & holds)
    rules = now.rules
    misplaced = rules.misplaced()
    misplaced = misplaced[~now.draining[board.owner[misplaced]]]
    held_back = _held_back(now, options)
    above = _above_limits(now, misplaced, options)
    guessed = now.estimates.guessed()
    splitter = SplitPlanner(board, load, rules, held_back.why, guessed, above, options)
    if now.takes.sum() < 1 or (now.takes.sum() < 2 and not len(to_drain)):
        text = f"{int(now.takes.sum())} of {len(brokers)} brokers may get bundles"
        return [], splitter.splits, [*skips, *splitter.skips, Skip("", "NoBrokers", text)]
    orders = now.settled.orders.values()
    ordered = sum(order.status == UNDER_WAY for order in orders)
    total = float(now.estimates.mean.sum())
    budget = RoundBudget.of(options, len(brokers), total, ordered)
    held_back = held_back._replace(why=dict(splitter.resting))
    error = min(options.noise_z, 1.0) * np.sqrt(now.estimates.squared_error())
    sizes = now.estimates.mean
    mover = MovePlanner(board, load, sizes, error, rules, held_back, budget, options)
    mover.move_misplaced(misplaced)
    if mover.why_not:
        skips.append(misplaced_stay(mover))
    splitter.resting |= {find(bundles, move.bundle): "InFlight" for move in mover.moves}
    ratio = now.overload.ratio
    sources = np.flatnonzero(now.verdict.watch.active & now.takes)
    if now.lost_share > MOST_LOST:
        skips.append(load_lost(now))
        sources = sources[:0]
    for source in sources[np.argsort(-ratio[sources], kind="stable")].tolist():
        mover.why_not.clear()
        until = now.overload.target(source, len(sources))
        if not _relieved(mover, splitter, source, until, options):
            skips.append(stuck(mover, source, float(ratio[source])))
    for source in to_drain.tolist():
        mover.why_not.clear()
        stay = mover.drain(source)
        if stay:
            skips.append(stuck(mover, source, float(ratio[source]), stay))
    return mover.moves, splitter.splits, [*skips, *splitter.skips]


def _relieved(
    mover: MovePlanner, splitter: SplitPlanner, source: int, until: float, options: BalanceOptions
) -> bool:
    """Relieve one broker as far as this round can, if possible until (1 + until) times the mean."""
    if splitter.waits(source):
        mover.why_not |= dict.fromkeys(mover.held(source).tolist(), "InFlight")
        return False
    if splitter.too_big(source) or (splitter.dominated(source) and splitter.too_coarse(source)):
        return True
    if mover.budget.moves <= 0:
        return mover.spent(source)
    stop, swaps = options.stop_below, SwapPlanner(mover)
    done = mover.relieve(source, until, stop, "Overloaded")
    done = done or mover.board.ratio(source) <= 1 + stop
    while not done and (swaps.make_room(source, stop) or swaps.swap(source, stop)):
        done = mover.relieve(source, stop, stop, "Overloaded")
    if done or mover.board.ratio(source) <= 1 + options.start_above:
        return done
    full = OVERLOADED_SHARE if mover.board.has_limits else np.inf
    if mover.board.absolute().max() <= full:
        done = mover.relieve(source, options.start_above, options.start_above, "Overloaded")
    if not done and set(mover.why_not.values()) <= {"NoTarget", "Policy"}:
        done = splitter.too_coarse(source)
    return done


def _above_limits(now: RoundView, misplaced: IntArray, options: BalanceOptions) -> list[AboveLimit]:
    """Those that are not about to be moved, and are ours to split."""
    ours = now.takes[now.round_.load.owner] & ~now.rules.pinned(False)
    ours[misplaced] = False
    return [
        each for each in above_limits(now.round_.load, now.estimates, options) if ours[each.bundle]
    ]


def _held_back(now: RoundView, options: BalanceOptions) -> HeldBack:
    """Restrictions of this round that follow from earlier orders."""
    load, now_s = now.round_.load, now.round_.now_s
    resting: dict[int, str] = {}
    avoids: dict[int, int] = {}
    for order in now.settled.orders.values():
        place = find(load.bundles, order.bundle)
        if place < 0:
            continue
        if order.status == UNDER_WAY:
            resting[place] = "InFlight"
        elif now_s < order.rests_until_s(options):
            resting[place] = "Missed" if order.status == MISSED else "Grace"
        if order.status == MISSED and find(load.brokers, order.target) >= 0:
            avoids[place] = find(load.brokers, order.target)
    return HeldBack(resting, avoids)


def _order(now: RoundView, one: Move | Split) -> Order:
    place = find(now.round_.load.bundles, one.bundle)
    estimates = now.estimates
    mean = float(estimates.mean[place])
    share = float(estimates.share_in[place])
    rates = (mean * share, mean * (1 - share), mean * float(estimates.messages_per_byte[place]))
    source, target = (one.source, one.target) if isinstance(one, Move) else (one.owner, "")
    return Order(one.bundle, source, target, now.round_.now_s, rates)


def _balanced(now: RoundView, options: BalanceOptions) -> str:
    ratio = now.board.ratios()[now.takes]
    most = float(ratio.max()) if len(ratio) else 0.0
    return (
        f"the most loaded broker carries {most:.2f} x the mean;"
        f" moves begin above {1 + options.start_above:.2f}"
    )


def fitting(decisions: Decisions, most_bytes: int = PLAN_BYTES) -> Decisions:
    """The decisions without the last moves and splits that would not fit into a message."""
    texts = [sum(map(len, map(str.encode, (*move[:3], *move[4:])))) for move in decisions.moves]
    texts += [
        sum(map(len, map(str.encode, (each.bundle, each.owner, each.label, each.reason))))
        + 5 * len(each.boundaries)
        for each in decisions.splits
    ]
    room = np.cumsum(np.array([*texts], np.int64) + 40) <= most_bytes
    if room.all():
        return decisions
    kept, moves = int(room.sum()), len(decisions.moves)
    left_out = len(room) - kept
    reason = f"{left_out} moves and splits do not fit into a plan's message"
    skip = Skip("", "PlanTooLarge", reason, left_out)
    return Decisions(
        decisions.moves[: min(kept, moves)],
        decisions.splits[: max(kept - moves, 0)],
        (*decisions.skips, skip),
    )
