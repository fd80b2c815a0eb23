"""Plans rate writes: the few that are worthwhile, lowering before raising."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.enforce.subdivide import Subdivision
from quotaplane.laws.segments import Segments
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topics.rate_marks import marked
from quotaplane.topics.topic_layout import KINDS, SIDES, Layout

WAITED_S: Final = 10.0
"""A write that waited this long is as urgent as a change from or to unlimited: none starves."""

_TOLERANCE: Final = 0.01
"""Rates may add up to this fraction more than the limit. Removing a hundredth from each of many
topics would cost one write per topic, and each write lets a burst through that is larger."""

_BURST_S: Final = 1.0
"""A write lets through what the new rate allows in so much time: brokers create a full bucket."""


class Rates(NamedTuple):
    """Rates on u topics; inf = no rate, NaN = not known."""

    in_force: FloatArray
    """(u, 4) current rate; of a write in flight the higher value, as either may be in force."""
    after_writes: FloatArray
    """(u, 4) rate once the writes in flight are confirmed."""
    idle: BoolArray
    """(u, 2) no request in flight, and no pause after a failure."""
    uncertain: BoolArray
    """(u, 2) a write failed, so the rate in force must be read."""
    failing: BoolArray
    """(u, 2) the last request failed."""
    waited_s: FloatArray
    """(u, 2) how long a write has waited for budget."""
    above_s: FloatArray
    """(u, 4) for how long the rate has been above the wanted one."""
    administrators: BoolArray
    """(u, 2) the rate in force is an administrator's."""
    recorded: BoolArray
    """(u, 2) a rate of ours is, or will be, in place of an administrator's recorded one."""


class Moves(NamedTuple):
    """n writes that may be made now: groups take turns, the most urgent write of a group first."""

    topic: IntArray
    """(n,) index of the topic."""
    kind: IntArray
    """(n,) 0 = publish, 1 = dispatch."""
    rates: FloatArray
    """(n, 2) in messages and bytes; inf = unlimited, both inf = remove our rate."""
    unread: BoolArray
    """(u, 2) topics whose rate must be read first."""

    def without_removals(self, has_default: BoolArray) -> Moves:
        """Drop removals of the rates of topics that would then get a default of ours (u, 2)."""
        return self._only(np.isfinite(self.rates).any(axis=1) | ~has_default[self.topic, self.kind])

    def without(self, held: BoolArray) -> Moves:
        """Drop the writes of some rates (u, 2)."""
        return self._only(~held[self.topic, self.kind])

    def _only(self, stays: BoolArray) -> Moves:
        if stays.all():
            return self
        return Moves(self.topic[stays], self.kind[stays], self.rates[stays], self.unread)


def plan(
    layout: Layout,
    limits: FloatArray,
    division: Subdivision,
    rates: Rates,
    *,
    significant_change: float,
    patient: bool = False,
) -> Moves:
    """Choose the writes that bring a division into force.

    A rate is lowered only if a pair's rates add up to more than its shares, or if a raise needs the
    room; the largest steps down first, and no more of them than needed. If ``patient``, a small
    step down without a raise waits until a write would have saved what it lets through. A rate is
    raised if it is lower than needed, or less than half of what is wanted, so small swings of usage
    cause no write.
    A raise waits until the rates in force leave room for it, that is until the lower rates are
    confirmed; if no rate is being lowered, the raise takes the room there is. A topic whose rate
    can't be read or written counts with its share, so it delays only raises that need its room.

    An administrator's rate stays where none of ours is wanted, or the same.

    Args:
        layout: the topics, and which broker has each part.
        limits: (k, 4) of ``layout.pairs``, from which the division was made.
        division: the wanted rates.
        rates: the rates in force.
        significant_change: raises by less than this fraction are not made, and steps down by less
            are small.
        patient: small steps down may wait.
    """
    rates = _without_administrators(rates, division.rates)
    in_force = rates.in_force
    lowered = np.zeros(in_force.shape, np.bool_)
    raised = np.zeros(in_force.shape, np.bool_)
    wanted = _marked(np.where(np.isnan(division.rates), in_force, division.rates), rates)
    concerned = np.stack([~np.isnan(division.rates[:, side]).all(axis=1) for side in SIDES], axis=1)
    known = np.stack([~np.isnan(in_force[:, side]).any(axis=1) for side in SIDES], axis=1)
    ready = np.repeat(rates.idle & known & ~rates.uncertain & concerned, 2, axis=1)
    failing = np.repeat(rates.failing, 2, axis=1)
    target = wanted.copy()
    for d in range(BASIC):
        if concerned[:, d // 2].any():
            dimension = _Dimension(
                limit=limits[:, d],
                share=division.shares[:, d],
                wanted=wanted[:, d],
                least=np.minimum(division.least[:, d], wanted[:, d]),
                in_force=in_force[:, d],
                after_writes=rates.after_writes[:, d],
                above_s=rates.above_s[:, d] if patient else np.full(len(target), np.inf),
                ready=ready[:, d],
                failing=failing[:, d],
            )
            lowered[:, d], raised[:, d], target[:, d] = _planned(
                layout, dimension, significant_change
            )
    unread = concerned & (~known | rates.uncertain) & rates.idle
    return _by_urgency(layout, target, rates, lowered, raised, unread)


def _without_administrators(rates: Rates, wanted: FloatArray) -> Rates:
    """The rates; those of administrators count as none where no rate of ours is ``wanted``."""
    if not rates.administrators.any():
        return rates
    in_force, after_writes = rates.in_force.copy(), rates.after_writes.copy()
    for kind, side in enumerate(SIDES):
        alone = rates.administrators[:, kind] & np.isposinf(wanted[:, side]).all(axis=1)
        in_force[alone, side] = after_writes[alone, side] = np.inf
    return rates._replace(in_force=in_force, after_writes=after_writes)


def _marked(target: FloatArray, rates: Rates) -> FloatArray:
    """(u, 4) as rates of ours are written; an administrator's one that is to stay is not ours."""
    result = target.copy()
    for kind, side in enumerate(SIDES):
        stays = rates.administrators[:, kind] & (target[:, side] == rates.in_force[:, side]).all(1)
        ours = marked(target[:, side], rates.recorded[:, kind])
        result[:, side] = np.where(stays[:, None], target[:, side], ours)
    return result


class _Dimension(NamedTuple):
    """One dimension of limits, division and rates."""

    limit: FloatArray
    """(k,) of each pair."""
    share: FloatArray
    """(p,) of each part."""
    wanted: FloatArray
    """(u,)"""
    least: FloatArray
    """(u,)"""
    in_force: FloatArray
    """(u,)"""
    after_writes: FloatArray
    """(u,)"""
    above_s: FloatArray
    """(u,)"""
    ready: BoolArray
    """(u,) the topic's rate is known and may be written."""
    failing: BoolArray
    """(u,)"""


def _planned(
    layout: Layout, dim: _Dimension, significant_change: float
) -> tuple[BoolArray, BoolArray, FloatArray]:
    """Which topics may be lowered now, which raised, and to which rates; all (u,)."""
    pairs = layout.pairs
    rows = Segments(pairs.starts)
    topic = layout.topic[pairs.parts]
    share, wanted, in_force = dim.share[pairs.parts], dim.wanted, dim.in_force
    # How much of its pair's limit a part takes per unit of its topic's rate: 1 for a topic with one
    # part, otherwise in proportion to the part's share.
    claim = np.zeros(len(share))
    np.divide(
        share, wanted[topic], out=claim, where=np.isfinite(share) & np.isfinite(wanted[topic])
    )
    # A topic without a rate, or with an unknown one, may use any amount.
    unbounded = np.isnan(in_force) | (np.isposinf(in_force) & np.isfinite(wanted))
    current = np.where(np.isfinite(in_force), in_force, 0.0)
    current = np.where(unbounded & dim.failing & np.isfinite(wanted), wanted, current)
    # Shares add up to more than the limit where idle parts get a floor.
    budget = np.maximum(dim.limit, rows.total(np.where(np.isfinite(share), share, 0.0)))
    budget = np.where(np.isfinite(dim.limit), budget * (1.0 + _TOLERANCE), np.inf)

    up = _to_raise(dim, significant_change)
    more = np.where(up & np.isfinite(wanted), wanted - current, 0.0)
    # Writes in flight that lower a rate free room as well.
    after_writes = np.where(
        np.isfinite(dim.after_writes), dim.after_writes, np.where(dim.failing, current, 0.0)
    )
    excess = rows.total(claim * (after_writes + more)[topic]) - budget
    raises = rows.spread(rows.total(more[topic]) > 0)
    due = _worth_lowering(dim, current, significant_change)
    due[topic[raises]] = True
    lower = _to_lower(dim, rows, topic, claim, current, excess, due)

    closed = rows.total((unbounded & ~dim.failing)[topic] & np.isfinite(share)) > 0
    room = np.where(closed, 0.0, np.maximum(budget - rows.total(claim * current[topic]), 0.0))
    freeing = lower | (in_force > dim.after_writes)
    fit = _parts_that_fit(rows, claim * more[topic], room, rows.total(freeing[topic]) > 0)
    fits = np.ones(len(wanted))
    np.minimum.at(fits, topic, fit)
    target = np.where(up & np.isfinite(wanted), np.floor(current + fits * more), wanted)
    worth = (fits == 1.0) | (
        target > np.maximum(current * (1.0 + significant_change), current + 1.0)
    )
    return lower, up & worth, target


def _to_raise(dim: _Dimension, significant_change: float) -> BoolArray:
    """(u,) topics whose rate is lower than needed, or less than half of what is wanted."""
    lacking = (dim.least > dim.in_force) | (dim.wanted > 2.0 * dim.in_force)
    significant = dim.wanted > dim.in_force * (1.0 + significant_change)
    up: BoolArray = dim.ready & np.isfinite(dim.in_force) & lacking & significant
    return up


def _worth_lowering(dim: _Dimension, current: FloatArray, significant_change: float) -> BoolArray:
    """(u,) steps down that are significant, or that would have saved a burst by now.

    Demand varies, and limits with it, so a small step down is often followed by one up. To wait
    until the excess was as large as the burst costs at most twice what knowing the future would
    (the ski rental problem).
    """
    less = current - dim.wanted
    with np.errstate(invalid="ignore"):  # inf * 0: unlimited is no step down
        significant: BoolArray = less >= significant_change * dim.wanted
        return significant | (less * dim.above_s >= _BURST_S * dim.wanted)


def _to_lower(
    dim: _Dimension,
    rows: Segments,
    topic: IntArray,
    claim: FloatArray,
    current: FloatArray,
    excess: FloatArray,
    due: BoolArray,
) -> BoolArray:
    """(u,) topics without a rate, and the largest steps down that remove the ``excess`` (k,).

    Only topics that are ``due`` (u,) are lowered.
    """
    down = dim.ready & np.isfinite(dim.wanted) & (dim.wanted < dim.in_force)
    lower: BoolArray = down & np.isposinf(dim.in_force)
    less = np.where(down & ~lower & due, current - dim.wanted, 0.0)
    freed = claim * less[topic]
    order, freed_before = _in_order(rows, -freed, freed)
    needed = np.zeros(len(freed), np.bool_)
    needed[order] = freed_before < rows.spread(excess)[order]
    lower[topic[needed & (freed > 0)]] = True
    return lower


def _parts_that_fit(
    rows: Segments, amounts: FloatArray, room: FloatArray, coming: BoolArray
) -> FloatArray:
    """The fraction of each amount that fits into the room of its pair, smallest first; (m,).

    In pairs where more room is ``coming`` (k,), an amount fits whole or not at all: a partial raise
    now would cost a second write soon.
    """
    order, before = _in_order(rows, amounts, amounts)
    part = np.ones(len(amounts))
    left = np.maximum(rows.spread(room)[order] - before, 0.0)
    amount = amounts[order]
    # An amount of 0 (the pair is not limited any more) needs no room.
    np.divide(left, amount, out=left, where=amount > 0.0)
    part[order] = np.where(amount > 0.0, np.minimum(left, 1.0), 1.0)
    result: FloatArray = np.where(rows.spread(coming) & (part < 1.0), 0.0, part)
    return result


def _in_order(rows: Segments, key: FloatArray, amounts: FloatArray) -> tuple[IntArray, FloatArray]:
    """The rows' order by pair and key, and the sum of the amounts before each row of its pair."""
    order = np.lexsort((key, rows.of_row))
    running = np.cumsum(amounts[order])
    starts = np.cumsum(rows.counts) - rows.counts
    at_start = np.append(0.0, running)[starts]
    before = running - amounts[order] - np.repeat(at_start, rows.counts)
    return order, before


def _differs(target: FloatArray, in_force: FloatArray) -> BoolArray:
    """(u, 2) by kind: whether one of the two numbers differs."""
    return np.stack([(target[:, side] != in_force[:, side]).any(axis=1) for side in SIDES], axis=1)


def in_turn(group: IntArray) -> IntArray:
    """The order in which groups (n,) take turns: the first item of each, then the second of each.

    >>> in_turn(np.array([7, 7, 7, 3, 7, 3])).tolist()
    [0, 3, 1, 5, 2, 4]
    """
    order = np.argsort(group, kind="stable")
    first = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0][: len(order)])
    turn = np.empty(len(group), np.int64)
    turn[order] = np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    result: IntArray = np.argsort(turn, kind="stable")
    return result


def _by_urgency(
    layout: Layout,
    wanted: FloatArray,
    rates: Rates,
    lowered: BoolArray,
    raised: BoolArray,
    unread: BoolArray,
) -> Moves:
    """Order the moves so that groups take turns: a group with many topics delays no other group."""
    moves = lowered | raised
    target = _marked(np.where(moves, wanted, rates.in_force), rates)
    moves &= np.repeat(_differs(target, rates.in_force), 2, axis=1)
    with np.errstate(invalid="ignore"):
        left = np.minimum(target, rates.in_force) / np.maximum(target, rates.in_force)
    # A change from or to unlimited counts as a change by 100 %; lowering goes before raising.
    relative = np.where(moves, 1.0 - np.nan_to_num(left, nan=1.0), 0.0) + lowered
    score = np.stack([relative[:, side].max(axis=1) for side in SIDES], axis=1)
    topic, kind = np.nonzero(np.stack([moves[:, side].any(axis=1) for side in SIDES], axis=1))
    urgency = score[topic, kind] + rates.waited_s[topic, kind] / WAITED_S
    messages, in_bytes = target[topic, 2 * kind], target[topic, 2 * kind + 1]
    size = np.where(np.isfinite(messages), messages, in_bytes)
    # Of topics without a rate the largest first: the namespace's default throttles these most.
    order = np.lexsort((-size, -urgency))
    order = order[in_turn(layout.group[topic[order]])]
    topic, kind = topic[order], kind[order]
    return Moves(topic, kind, target.reshape(len(target), len(KINDS), 2)[topic, kind], unread)
