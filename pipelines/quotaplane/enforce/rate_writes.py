"""From rates wanted and rates in force to the few writes that are worth it, in a safe order."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.enforce.subdivide import Subdivision
from quotaplane.laws.segments import Segments
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topic_layout import KINDS, SIDES, Layout

WAITED_S: Final = 10.0
"""Who waits for so long counts as much as a change of everything: nobody waits for ever."""

_TOLERANCE: Final = 0.01
"""Rates may add up to this part more: to take a hundredth from each of many topics costs a write of
each, and the burst that comes with it is worth more."""


class Rates(NamedTuple):
    """What is in force on u topics; inf = no rate, NaN = not known."""

    in_force: FloatArray
    """(u, 4). Of a write under way the higher value: until it is confirmed either may hold."""
    going: FloatArray
    """(u, 4) what it will be once the writes under way are through."""
    free: BoolArray
    """(u, 2) nothing is under way, nor has something failed lately."""
    unsure: BoolArray
    """(u, 2) a write failed: it must be read which of the two rates is in force."""
    failing: BoolArray
    """(u, 2) the last that was tried failed."""
    waited_s: FloatArray
    """(u, 2) for how long a write could not be made, for want of budget."""


class Moves(NamedTuple):
    """Writes that may be made now, n of them, in turn by group, the most urgent of each first."""

    topic: IntArray
    """(n,) index of the topic."""
    kind: IntArray
    """(n,) 0 = publish, 1 = dispatch."""
    rates: FloatArray
    """(n, 2) in messages and bytes; inf = unlimited, both inf = take the rate away."""
    unread: BoolArray
    """(u, 2) whose rate in force must be read before anything can be said of it."""

    def but_for(self, held: BoolArray) -> Moves:
        """Without those that take the rate off a topic which is ``held`` (u, 2) otherwise, too."""
        stays = np.isfinite(self.rates).any(axis=1) | ~held[self.topic, self.kind]
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
) -> Moves:
    """What to write of a division.

    Rates come down only where that is needed: a pair's rates add up to more than its shares, or one
    of them is to be raised and there is no room. Then the largest steps down go first, and no more
    of them than it takes. A raise is made where the rate in force is less than is needed, or less
    than half of what is wanted: what just moves with its usage is let be. It waits until what is in
    force leaves room for it, so those who come down have been confirmed before; where nobody is
    coming down it takes what room there is. A topic whose rate can't be read or written counts as
    its share: it holds back nobody but those who would have had what it was to free.

    Args:
        layout: what lies where.
        limits: (k, 4) of ``layout.pairs``, that the division was made from.
        division: what is wanted.
        rates: what is in force.
        significant_change: raises by less than this part are not made.
    """
    in_force = rates.in_force
    lowered = np.zeros(in_force.shape, np.bool_)
    raised = np.zeros(in_force.shape, np.bool_)
    wanted = np.where(np.isnan(division.rates), in_force, division.rates)
    concerned = np.stack([~np.isnan(division.rates[:, side]).all(axis=1) for side in SIDES], axis=1)
    known = np.stack([~np.isnan(in_force[:, side]).any(axis=1) for side in SIDES], axis=1)
    ready = np.repeat(rates.free & known & ~rates.unsure & concerned, 2, axis=1)
    failing = np.repeat(rates.failing, 2, axis=1)
    target = wanted.copy()
    for d in range(BASIC):
        if concerned[:, d // 2].any():
            lowered[:, d], raised[:, d], target[:, d] = _one_dimension(
                layout,
                limits[:, d],
                wanted[:, d],
                division.least[:, d],
                division.shares[:, d],
                in_force[:, d],
                rates.going[:, d],
                ready[:, d],
                failing[:, d],
                significant_change,
            )
    unread = concerned & (~known | rates.unsure) & rates.free
    return _by_urgency(layout, target, rates, lowered, raised, unread)


def _one_dimension(
    layout: Layout,
    limit: FloatArray,
    wanted: FloatArray,
    least: FloatArray,
    shares: FloatArray,
    in_force: FloatArray,
    going: FloatArray,
    ready: BoolArray,
    failing: BoolArray,
    significant_change: float,
) -> tuple[BoolArray, BoolArray, FloatArray]:
    """Which topics may be lowered now, which raised, and what to; all (u,)."""
    pairs = layout.pairs
    rows = Segments(pairs.starts)
    topic = layout.topic[pairs.parts]
    # What of a pair's limit a topic takes, for each unit of its rate: all of it, if it has one
    # part; else as much as the division gave that part.
    share = shares[pairs.parts]
    claim = np.zeros(len(share))
    np.divide(
        share, wanted[topic], out=claim, where=np.isfinite(share) & np.isfinite(wanted[topic])
    )
    # Who has no rate yet, or nobody knows which, may take any amount.
    loose = np.isnan(in_force) | (np.isposinf(in_force) & np.isfinite(wanted))
    had = np.where(np.isfinite(in_force), in_force, 0.0)
    had = np.where(loose & failing & np.isfinite(wanted), wanted, had)
    # Idle parts may use something, too, so shares may be more than the limit in all.
    most = np.maximum(limit, rows.total(np.where(np.isfinite(share), share, 0.0)))
    most = np.where(np.isfinite(limit), most * (1.0 + _TOLERANCE), np.inf)
    closed = rows.total((loose & ~failing)[topic] & np.isfinite(share)) > 0
    room = np.where(closed, 0.0, np.maximum(most - rows.total(claim * had[topic]), 0.0))

    lacking = (least > in_force) | (wanted > 2.0 * in_force)
    up = ready & np.isfinite(in_force) & lacking & (wanted > in_force * (1.0 + significant_change))
    more = np.where(up & np.isfinite(wanted), wanted - had, 0.0)

    down = ready & np.isfinite(wanted) & (wanted < in_force)
    lower = down & np.isposinf(in_force)
    less = np.where(down & ~lower, had - wanted, 0.0)
    # What is coming down already frees something, too.
    soon = np.where(np.isfinite(going), going, np.where(failing, had, 0.0))
    needs = rows.total(claim * (soon + more)[topic]) - most
    freed = claim * less[topic]
    order, before = _in_order(rows, -freed, freed)
    needed = np.zeros(len(freed), np.bool_)
    needed[order] = before < rows.spread(needs)[order]
    lower[topic[needed & (freed > 0)]] = True

    coming = lower | (in_force > going)
    part = _parts_that_fit(rows, claim * more[topic], room, rows.total(coming[topic]) > 0)
    fits = np.ones(len(wanted))
    np.minimum.at(fits, topic, part)
    target = np.where(up & np.isfinite(wanted), np.floor(had + fits * more), wanted)
    worth = (fits == 1.0) | (target > np.maximum(had * (1.0 + significant_change), had + 1.0))
    return lower, up & worth, target


def _parts_that_fit(
    rows: Segments, amounts: FloatArray, room: FloatArray, coming: BoolArray
) -> FloatArray:
    """How much of each amount fits into the room of its pair, the smallest first; (m,), 0 to 1.

    Where room is ``coming`` (k,) an amount is all or nothing: two writes would be one too many.
    """
    order, before = _in_order(rows, amounts, amounts)
    part = np.ones(len(amounts))
    left = np.maximum(rows.spread(room)[order] - before, 0.0)
    asked = amounts[order]
    # What takes nothing of the limit (none is told any more) needs no room.
    np.divide(left, asked, out=left, where=asked > 0.0)
    part[order] = np.where(asked > 0.0, np.minimum(left, 1.0), 1.0)
    result: FloatArray = np.where(rows.spread(coming) & (part < 1.0), 0.0, part)
    return result


def _in_order(rows: Segments, key: FloatArray, amounts: FloatArray) -> tuple[IntArray, FloatArray]:
    """Rows by pair, in each the lowest key first, and the sum of what goes before each."""
    order = np.lexsort((key, rows.of_row))
    running = np.cumsum(amounts[order])
    starts = np.cumsum(rows.counts) - rows.counts
    at_start = np.append(0.0, running)[starts]
    before = running - amounts[order] - np.repeat(at_start, rows.counts)
    return order, before


def in_turn(group: IntArray) -> IntArray:
    """The order in which groups (n,) take turns: the first of each, then the second of each.

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
    """The moves in turn by group: what one with many topics needs holds up no other one."""
    moves = lowered | raised
    target = np.where(moves, wanted, rates.in_force)
    with np.errstate(invalid="ignore"):
        left = np.minimum(target, rates.in_force) / np.maximum(target, rates.in_force)
    # What moves from or to unlimited changes altogether; what comes down goes first.
    relative = np.where(moves, 1.0 - np.nan_to_num(left, nan=1.0), 0.0) + lowered
    score = np.stack([relative[:, side].max(axis=1) for side in SIDES], axis=1)
    topic, kind = np.nonzero(np.stack([moves[:, side].any(axis=1) for side in SIDES], axis=1))
    urgency = score[topic, kind] + rates.waited_s[topic, kind] / WAITED_S
    messages, in_bytes = target[topic, 2 * kind], target[topic, 2 * kind + 1]
    size = np.where(np.isfinite(messages), messages, in_bytes)
    # Of those that have no rate yet the largest ones first: they are held back by the namespace's.
    order = np.lexsort((-size, -urgency))
    order = order[in_turn(layout.group[topic[order]])]
    topic, kind = topic[order], kind[order]
    return Moves(topic, kind, target.reshape(len(target), len(KINDS), 2)[topic, kind], unread)
