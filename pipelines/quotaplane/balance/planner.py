"""quotaplane's own strategy: one round, from the load of a cluster to moves and splits. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.balance.balance_state import BalanceState as BalanceState
from quotaplane.balance.bundle_fences import BundleFences
from quotaplane.balance.bundle_orders import MISSED, UNDER_WAY, Order, find
from quotaplane.balance.bundle_splits import SplitDesk
from quotaplane.balance.decisions import Decisions, Move, Skip, Split
from quotaplane.balance.exchanges import Exchanges
from quotaplane.balance.options import BalanceOptions
from quotaplane.balance.policies import Policies
from quotaplane.balance.relief import HeldBack, Relief
from quotaplane.balance.round_budget import RoundBudget
from quotaplane.balance.round_reasons import (
    broker_skips,
    not_put_right,
    stuck,
    unknown_brokers,
    vanished,
)
from quotaplane.balance.situation import BalanceRound as BalanceRound
from quotaplane.balance.situation import Situation, situation_of, sorted_by_name

MOST_VANISHED: Final = 0.01
"""If a larger part of the load is reported nowhere, overloaded brokers wait: others, which seem to
have room, may have got it."""


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
    now = situation_of(state, sorted_by_name(round_), options, policies)
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
    now: Situation, options: BalanceOptions, policies: Policies
) -> tuple[list[Move], list[Split], list[Skip]]:
    board, load = now.board, now.round_.load
    brokers, bundles = tuple(load.brokers), tuple(load.bundles)
    skips = broker_skips(now, options)
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
    held_back = _held_back(now, options)
    error = min(options.noise_z, 1.0) * np.sqrt(now.estimates.squared_error(options))
    sizes = now.estimates.mean
    relief = Relief(board, load, sizes, error, fences, held_back, budget, options)
    desk = SplitDesk(board, load, fences, held_back.why, now.estimates.guessed(), options)
    ratio = now.overload.ratio
    sources = np.flatnonzero(now.verdict.watch.active & now.takes)
    if now.vanished > MOST_VANISHED:
        skips.append(vanished(now))
        sources = sources[:0]
    for source in sources[np.argsort(-ratio[sources], kind="stable")].tolist():
        relief.why_not.clear()
        if not _relieved(relief, desk, source, now.overload.target(source, len(sources)), options):
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


def _held_back(now: Situation, options: BalanceOptions) -> HeldBack:
    """What earlier orders forbid in this round."""
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
    return HeldBack(resting, avoids, ranges)


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
