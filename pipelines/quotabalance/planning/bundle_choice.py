"""Which bundles leave: the cheapest ones that together carry enough."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np

from quotaplane.model import FloatArray, IntArray

STARTS: Final = 12
"""The search begins once at each of this number of biggest bundles."""

MANY: Final = 150
"""With more items than this the first few starts are as good as all."""

GOOD_ENOUGH: Final = 0.005
"""Choices that cost so little more than the least that is possible are not improved."""

ROUNDS: Final = 24
"""Most improvements."""

TABLE: Final = 250_000
"""Most cells of a table in which exchanges are compared."""


def cheapest_cover(gain: FloatArray, cost: FloatArray, enough: float) -> IntArray:
    """Choose items whose gains add up to ``enough``, at a low cost.

    Source: the greedy for subset sums from several starts, then exchanges one for one, two for one
    and one for two, while they make it cheaper. The problem is NP-hard; docs/explain/balance.md has
    the distance to the exact minimum.

    Args:
        gain: shape (n,), above 0.
        cost: shape (n,), above 0.
        enough: what the gains must add up to.

    Returns:
        Indexes of the items; all items if even these are not enough.

    >>> gain = np.array([50.0, 30.0, 21.0, 10.0])
    >>> sorted(cheapest_cover(gain, gain, 31.0).tolist())
    [2, 3]
    """
    if gain.sum() <= enough:
        return np.arange(len(gain))
    order = np.lexsort((cost, -gain))
    gain_sorted, cost_sorted = gain[order], cost[order]
    ascending = (-gain_sorted).tolist()
    # no set that is enough costs less than this
    least = enough * float((cost / gain).min())
    best: tuple[float, int, IntArray] | None = None
    for start in _starts(gain_sorted, enough):
        chosen = _greedy(ascending, start, enough)
        found = float(cost_sorted[chosen].sum()), len(chosen), chosen
        if best is None or found[:2] < best[:2]:
            best = found
        if best[0] <= (1 + GOOD_ENOUGH) * least:
            return np.asarray(order[best[2]])
    assert best is not None
    items: IntArray = order[_improved(gain_sorted, cost_sorted, enough, best[2])]
    return items


def _starts(gain: FloatArray, enough: float) -> list[int]:
    """Where the greedy begins: the smallest item that is enough alone, and those after it."""
    alone = int(np.searchsorted(-gain, -enough, side="right")) - 1
    first = max(alone, 0)
    return list(range(first, min(first + (STARTS if len(gain) <= MANY else 3), len(gain))))


def _greedy(gain: Sequence[float], start: int, enough: float) -> IntArray:
    """From ``start`` on, take what is still missing, the biggest first; the last one overshoots.

    After each item, one more item could finish at once; the least total wins. ``gain`` has the
    gains negated, so that it ascends.
    """
    chosen: list[int] = []
    taken: set[int] = set()
    best: list[int] | None = None
    least = np.inf
    done, place = 0.0, start
    while done < enough:
        missing = enough - done
        # the last of the items that are at least what is missing
        closing = bisect_right(gain, -missing) - 1
        while closing in taken:
            closing -= 1
        if closing >= 0 and done - gain[closing] < least:
            best, least = [*chosen, closing], done - gain[closing]
        place = max(place, bisect_left(gain, -missing))
        if place >= len(gain):
            break
        chosen.append(place)
        taken.add(place)
        done -= gain[place]
        place += 1
    if done >= enough and done < least:
        best = chosen
    if best is None:
        best = chosen
        for item in range(start - 1, -1, -1):
            if done >= enough:
                break
            if item not in taken:
                best.append(item)
                done -= gain[item]
    return np.array(sorted(best), np.int64)


def _improved(gain: FloatArray, cost: FloatArray, enough: float, chosen: IntArray) -> IntArray:
    inside = np.zeros(len(gain), np.bool_)
    inside[chosen] = True
    for _ in range(ROUNDS):
        spare = float(gain[inside].sum()) - enough
        ins, outs = np.flatnonzero(inside), np.flatnonzero(~inside)
        best = _dropped(gain, cost, ins, spare)
        if best is None:
            tries = (
                _exchange(gain, cost, spare, left, right)
                for left, right in (
                    (ins[:, None], outs[:, None]),
                    (_pairs(ins), outs[:, None]),
                    (ins[:, None], _pairs(outs)),
                )
            )
            best = max(tries, key=lambda found: found[0])[1:]
        if best[0] is None:
            return ins
        inside[best[0]] = False
        inside[best[1]] = True
    return np.flatnonzero(inside)


def _dropped(
    gain: FloatArray, cost: FloatArray, ins: IntArray, spare: float
) -> tuple[IntArray | None, IntArray] | None:
    free = ins[gain[ins] <= spare]
    if not len(free):
        return None
    return free[[int(cost[free].argmax())]], np.zeros(0, np.int64)


def _pairs(items: IntArray) -> IntArray:
    """All pairs, shape (pairs, 2); of many items only neighbouring ones, to bound the table."""
    if len(items) <= 40:
        left, right = np.triu_indices(len(items), 1)
        return np.stack([items[left], items[right]], axis=1)
    return np.stack([items[:-1], items[1:]], axis=1)


def _exchange(
    gain: FloatArray, cost: FloatArray, spare: float, left: IntArray, right: IntArray
) -> tuple[float, IntArray | None, IntArray]:
    """The exchange of chosen items for others that saves most and loses at most ``spare``."""
    nothing = (0.0, None, np.zeros(0, np.int64))
    if not (len(left) and len(right)) or len(left) * len(right) > TABLE:
        return nothing
    loss = gain[left].sum(1)[:, None] - gain[right].sum(1)
    saved = np.where(loss <= spare, cost[left].sum(1)[:, None] - cost[right].sum(1), 0)
    best = int(saved.argmax())
    row, column = divmod(best, len(right))
    if saved[row, column] <= 1e-12 * cost[left[row]].sum():
        return nothing
    return float(saved[row, column]), left[row], right[column]
