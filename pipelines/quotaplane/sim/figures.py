"""Figures of a run's quality: use of the quota, fairness, speed, overshoot and calm."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.sim.loop import Run

CLOSE: Final = 0.1
"""PIP-82's approximation: a share within 10 % of the fair one counts as fair."""

LOOSEST: Final = 0.5
"""Greatest distance from the fair share that counts as fair, however large the noise is."""

_ROUNDING: Final = 1e-9

MEANINGS: Final = {
    "utilisation": "what was used of what could be: usage / min(quota, demand), 1 is all",
    "jain_mean": "Jain's index over usage / fair share, mean of the rounds; 1 is fair",
    "jain_worst": "the same in the worst round",
    "fair_part": (
        "the part of fair rounds: in which each broker could use its fair share within 10 %, or "
        "within the noise of a small broker's demand (at most 50 %)"
    ),
    "rounds_to_fair": (
        "rounds after the last shift (of demand, quota or who is alive) until all rounds were "
        "fair; null: never"
    ),
    "phases": "the same after each shift, in rounds counted from 0",
    "overshoot_worst": "by which part of the quota the usage exceeded it in the worst round",
    "overshoot_rounds": "in how many rounds it did",
    "stretch_worst": (
        "by how much the usage of any stretch of rounds exceeded the quota at most, all rounds of "
        "the stretch together, as a part of one round's quota"
    ),
    "limits_over_quota": (
        "by which part of the quota the limits in force exceeded it at worst; a broker without a "
        "limit counts as one that has the whole quota"
    ),
    "movement": "how much the limits moved per round, as a part of the quota, once they were fair",
    "throttled_innocents": (
        "what was refused of all that innocents wanted; an innocent wants on average no more than "
        "its fair share. Rounds in which a phase begins do not count"
    ),
    "throttled_innocents_worst": "the same of the innocent that it is most of",
    "rounds_judged": "rounds from the first in which every broker had a limit: these count above",
}
"""The meaning of each figure, for ``--help`` and docs. A figure is null if it does not apply."""


def fair_shares(demand: FloatArray, quota: float | FloatArray) -> FloatArray:
    """Max-min fair shares: no broker gets more than its demand; the rest is shared by the others.

    ``demand`` has shape (rounds, brokers), ``quota`` is one number or one per round; each round is
    divided by itself. Computed by sorting, on purpose not by the law that is measured.

    >>> fair_shares(np.array([[1000.0, 50.0, 10.0]]), 120.0).tolist()
    [[60.0, 50.0, 10.0]]
    """
    brokers = demand.shape[1]
    ascending = np.sort(demand, axis=1)
    below = np.cumsum(ascending, axis=1) - ascending
    level = (np.reshape(quota, (-1, 1)) - below) / np.arange(brokers, 0, -1)
    held = ascending > level  # all brokers after the first one held back are held back, too
    first = np.argmax(held, axis=1)
    at = np.where(held.any(axis=1), level[np.arange(len(demand)), first], np.inf)
    shares: FloatArray = np.minimum(demand, np.maximum(at, 0.0)[:, None])
    return shares


def jain(shares: FloatArray) -> float:
    """Jain's fairness index of shares (n,): 1 if all are equal, 1/n if one broker has everything.

    >>> jain(np.array([1.0, 1.0])), jain(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    squares = float(np.square(shares).sum())
    return 1.0 if squares == 0.0 else float(shares.sum()) ** 2 / (len(shares) * squares)


def figures(
    run: Run,
    wanted: FloatArray | None = None,
    *,
    shifts: Sequence[int] | None = None,
    judged_from: int | None = None,
    close: float = CLOSE,
) -> dict[str, Any]:
    """The figures of a run; ``MEANINGS`` describes them.

    Args:
        run: the recorded run.
        wanted: the demand without its noise, (rounds, brokers): shares are compared with a broker's
            mean demand, not with one random round. None: there is no noise.
        shifts: the rounds in which phases begin, ascending, with 0. None: phases begin when the
            mean demand, the quota or the set of live brokers changes; unfit for demand that changes
            all the time.
        judged_from: the first round that counts, so that runs are compared over the same rounds;
            None: the first in which every live broker has a limit (with an infinite quota: 0).
        close: greatest distance of a broker from its fair share in a fair round, as a part of it.
    """
    wanted = run.demand if wanted is None else np.where(run.alive, wanted, 0.0)
    judged = _judged(run, judged_from)
    fair_now = fair_shares(run.demand, run.quota)
    fair = fair_shares(wanted, run.quota)
    is_fair = (from_fair(np.minimum(wanted, run.limit), fair) <= close + _ROUNDING) & judged
    shifts = shifts or _shifts(run, wanted)
    phases = _phases(is_fair, shifts)
    innocent = (wanted > 0.0) & (wanted <= fair * (1.0 + _ROUNDING)) & judged[:, None]
    innocent[shifts] = False
    of_innocents, of_one = _throttled(run, innocent)
    indexes = [
        jain(run.usage[r, fair_now[r] > 0] / fair_now[r, fair_now[r] > 0])
        for r in np.flatnonzero(judged)
        if (fair_now[r] > 0).any()
    ]
    quota = run.quota[judged]
    used = run.usage.sum(axis=1)[judged]
    over = _over(used, quota)
    limit = np.where(np.isinf(run.limit), run.quota[:, None], run.limit)
    too_much = _over(limit.sum(axis=1)[judged], quota)
    return {
        "utilisation": _utilisation(used, run.demand.sum(axis=1)[judged], quota),
        "jain_mean": float(np.mean(indexes)) if indexes else None,
        "jain_worst": min(indexes) if indexes else None,
        "fair_part": float(is_fair[judged].mean()) if judged.any() else None,
        "rounds_to_fair": phases[-1]["rounds_to_fair"],
        "phases": phases,
        "overshoot_worst": over.max().item() if len(over) else None,
        "overshoot_rounds": int((over > _ROUNDING).sum()),
        "stretch_worst": _stretch(used, quota),
        "limits_over_quota": too_much.max().item() if len(too_much) else None,
        "movement": _movement(run, phases),
        "throttled_innocents": of_innocents,
        "throttled_innocents_worst": of_one,
        "rounds_judged": int(judged.sum()),
    }


def closeness(noise: float) -> float:
    """Greatest distance from the fair share in a fair round, if demand varies.

    ``noise`` is the standard deviation of a small broker's demand divided by its mean.

    >>> [closeness(noise) for noise in (0.0, 0.2, 0.7)]
    [0.1, 0.2, 0.5]
    """
    return min(max(CLOSE, noise), LOOSEST)


def _judged(run: Run, judged_from: int | None) -> BoolArray:
    """Whether each round counts, shape (rounds,)."""
    if judged_from is None:
        ready = (np.isfinite(run.limit) | np.isinf(run.quota)[:, None]).all(axis=1)
        judged_from = int(np.argmax(ready)) if ready.any() else len(ready)
    judged: BoolArray = np.arange(len(run.quota)) >= judged_from
    return judged


def from_fair(got: FloatArray, fair: FloatArray) -> FloatArray:
    """The greatest distance of a broker from its fair share, as a part of it; shape (rounds,).

    A share above the fair one counts as much as one below.

    >>> from_fair(np.array([[40.0, 60.0]]), np.array([[50.0, 50.0]])).tolist()
    [0.2]
    """
    there = fair > 0.0
    part = np.where(there, np.abs(got - fair) / np.where(there, fair, 1.0), 0.0)
    worst: FloatArray = part.max(axis=1, initial=0.0)
    return worst


def _shifts(run: Run, wanted: FloatArray) -> list[int]:
    changed = (wanted[1:] != wanted[:-1]).any(axis=1) | (run.quota[1:] != run.quota[:-1])
    changed |= (run.alive[1:] != run.alive[:-1]).any(axis=1)
    return [0, *(np.flatnonzero(changed) + 1).tolist()]


def _phases(fair: BoolArray, shifts: Sequence[int]) -> list[dict[str, int | None]]:
    """The phases between shifts, and the rounds after which each stayed fair."""
    found: list[dict[str, int | None]] = []
    for begin, end in pairwise([*shifts, len(fair)]):
        unfair = np.flatnonzero(~fair[begin:end])
        settled = int(unfair[-1]) + 1 if len(unfair) else 0
        found.append(
            {
                "from_round": begin,
                "to_round": end - 1,
                "rounds_to_fair": settled if settled < end - begin else None,
            }
        )
    return found


def _utilisation(used: FloatArray, wanted: FloatArray, quota: FloatArray) -> float | None:
    """Usage up to the quota, divided by the possible usage."""
    if not len(used):
        return None
    possible = float(np.minimum(wanted, quota).sum())
    return 1.0 if possible == 0.0 else float(np.minimum(used, quota).sum()) / possible


def _over(total: FloatArray, quota: FloatArray) -> FloatArray:
    """The part of the quota by which each total exceeds it; 0 if it does not, but for rounding.

    Only for rounds with a finite quota above 0.
    """
    there = np.isfinite(quota) & (quota > 0.0)
    part = np.maximum(total[there] / quota[there] - 1.0, 0.0)
    return np.where(part > _ROUNDING, part, 0.0)


def _stretch(used: FloatArray, quota: FloatArray) -> float | None:
    """Largest sum of (used - quota) / quota over consecutive rounds; at least 0."""
    if not len(used):
        return None
    there = np.isfinite(quota) & (quota > 0.0)
    over = np.divide(used, quota, out=np.ones(len(used)), where=there) - 1.0
    sums = np.concatenate([[0.0], np.cumsum(over)])
    most = float((sums - np.minimum.accumulate(sums)).max())
    return most if most > _ROUNDING else 0.0


def _throttled(run: Run, innocent: BoolArray) -> tuple[float | None, float | None]:
    """The refused part of the demand, of all innocents together and of the worst-off one.

    ``innocent`` (rounds, brokers): whether the broker is innocent in a round that counts.
    """
    offered = np.where(innocent, run.demand, 0.0).sum(axis=0)
    lacking = run.demand - run.usage
    lacks = innocent & (lacking > _ROUNDING * run.demand)
    refused = np.where(lacks, lacking, 0.0).sum(axis=0)
    some = offered > 0.0
    if not some.any():
        return None, None
    return float(refused.sum() / offered.sum()), float((refused[some] / offered[some]).max())


def _movement(run: Run, phases: list[dict[str, int | None]]) -> float | None:
    """Mean, over settled rounds, of the sum of all changes of limits divided by the quota."""
    moves: list[FloatArray] = []
    for phase in phases:
        begin, end, settled = phase["from_round"], phase["to_round"], phase["rounds_to_fair"]
        if begin is None or end is None or settled is None:
            continue
        # The first limits after a shift answer it, even if the phase is fair at once.
        calm = slice(begin + max(settled, 1), end + 1)
        limit, quota = run.limit[calm], run.quota[calm][1:]
        # A first limit is no move, and brokers join and leave only at shifts.
        known = np.isfinite(limit[1:]) & np.isfinite(limit[:-1])
        total = np.abs(np.subtract(limit[1:], limit[:-1], where=known, out=np.zeros(known.shape)))
        there = np.isfinite(quota) & (quota > 0.0)
        moves.append(total.sum(axis=1)[there] / quota[there])
    every = np.concatenate(moves) if moves else np.empty(0)
    return float(every.mean()) if len(every) else None
