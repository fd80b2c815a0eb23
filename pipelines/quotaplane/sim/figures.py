"""How good a run was: use of the quota, fairness, speed, overshoot and calm, as plain numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.sim.loop import Run

CLOSE: Final = 0.1
"""PIP-82's approximation: a share within 10 % of the fair one counts as fair."""

_ROUNDING: Final = 1e-9

MEANINGS: Final = {
    "utilisation": "what was used of what could be: usage / min(quota, demand), 1 is all",
    "jain_mean": "Jain's index over usage / fair share, mean of the rounds; 1 is fair",
    "jain_worst": "the same in the worst round",
    "rounds_to_fair": (
        "rounds after the last change of demand until each broker could use its fair share "
        "within 10 % and went on to; null: never"
    ),
    "phases": "the same after each change of demand, in rounds counted from 0",
    "overshoot_worst": "by which part of the quota the usage exceeded it in the worst round",
    "overshoot_rounds": "in how many rounds it did",
    "limits_over_quota": "by which part of the quota the limits in force exceeded it at worst",
    "movement": "how much the limits moved per round, as a part of the quota, once they were fair",
    "rounds_judged": "rounds in which every broker had a limit: only these count above",
}
"""Figure: what it says, for ``--help`` and docs. A figure is null where there is nothing to say."""


def fair_shares(demand: FloatArray, quota: float | FloatArray) -> FloatArray:
    """Max-min fair shares: nobody gets more than it wants, and what is left goes to the rest.

    ``demand`` has shape (rounds, brokers), ``quota`` is one number or one per round; each round is
    divided by itself. Found by sorting, on purpose not by the law that is being judged.

    >>> fair_shares(np.array([[1000.0, 50.0, 10.0]]), 120.0).tolist()
    [[60.0, 50.0, 10.0]]
    """
    brokers = demand.shape[1]
    ascending = np.sort(demand, axis=1)
    below = np.cumsum(ascending, axis=1) - ascending
    level = (np.reshape(quota, (-1, 1)) - below) / np.arange(brokers, 0, -1)
    held = ascending > level  # from the first one held back on, all are
    first = np.argmax(held, axis=1)
    at = np.where(held.any(axis=1), level[np.arange(len(demand)), first], np.inf)
    shares: FloatArray = np.minimum(demand, np.maximum(at, 0.0)[:, None])
    return shares


def jain(shares: FloatArray) -> float:
    """Jain's fairness index of shares of shape (n,): 1 all equal, 1/n one has everything.

    >>> jain(np.array([1.0, 1.0])), jain(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    squares = float(np.square(shares).sum())
    return 1.0 if squares == 0.0 else float(shares.sum()) ** 2 / (len(shares) * squares)


def figures(run: Run, quota: float, wanted: FloatArray | None = None) -> dict[str, Any]:
    """The figures of a run; ``MEANINGS`` says what each is.

    ``wanted`` is the demand without its noise, shape (rounds, brokers): a share is fair or not by
    what a broker wants on average, not by the luck of one round.
    """
    wanted = run.demand if wanted is None else wanted
    limited = np.isfinite(run.limit).all(axis=1) if np.isfinite(quota) else _all(len(run.limit))
    fair_now = fair_shares(run.demand, quota)
    distance = from_fair(np.minimum(wanted, run.limit), fair_shares(wanted, quota))
    close = (distance <= CLOSE + _ROUNDING) & limited
    phases = _phases(wanted, close)
    indexes = [
        jain(run.usage[r, fair_now[r] > 0] / fair_now[r, fair_now[r] > 0])
        for r in np.flatnonzero(limited)
        if (fair_now[r] > 0).any()
    ]
    used = run.usage.sum(axis=1)[limited]
    over = _over(used, quota)
    too_much = _over(run.limit.sum(axis=1)[limited], quota)
    return {
        "utilisation": _utilisation(used, run.demand.sum(axis=1)[limited], quota),
        "jain_mean": float(np.mean(indexes)) if indexes else None,
        "jain_worst": min(indexes) if indexes else None,
        "rounds_to_fair": phases[-1]["rounds_to_fair"],
        "phases": phases,
        "overshoot_worst": over.max().item() if len(over) else None,
        "overshoot_rounds": int((over > _ROUNDING).sum()),
        "limits_over_quota": too_much.max().item() if len(too_much) else None,
        "movement": _movement(run.limit, phases, quota),
        "rounds_judged": int(limited.sum()),
    }


def _all(size: int) -> BoolArray:
    return np.ones(size, dtype=bool)


def from_fair(got: FloatArray, fair: FloatArray) -> FloatArray:
    """How far the worst-off broker is from its fair share, as a part of it; shape (rounds,).

    Getting more than the fair share counts as much as getting less.

    >>> from_fair(np.array([[40.0, 60.0]]), np.array([[50.0, 50.0]])).tolist()
    [0.2]
    """
    there = fair > 0.0
    part = np.where(there, np.abs(got - fair) / np.where(there, fair, 1.0), 0.0)
    worst: FloatArray = part.max(axis=1, initial=0.0)
    return worst


def _phases(wanted: FloatArray, close: BoolArray) -> list[dict[str, int | None]]:
    """Stretches of equal demand, and how long each took to become fair for good."""
    changed = (wanted[1:] != wanted[:-1]).any(axis=1)
    edges = [0, *(np.flatnonzero(changed) + 1).tolist(), len(wanted)]
    found: list[dict[str, int | None]] = []
    for begin, end in pairwise(edges):
        unfair = np.flatnonzero(~close[begin:end])
        settled = int(unfair[-1]) + 1 if len(unfair) else 0
        found.append(
            {
                "from_round": begin,
                "to_round": end - 1,
                "rounds_to_fair": settled if settled < end - begin else None,
            }
        )
    return found


def _utilisation(used: FloatArray, wanted: FloatArray, quota: float) -> float | None:
    """What was used up to the quota, of what could have been."""
    if not len(used):
        return None
    possible = float(np.minimum(wanted, quota).sum())
    return 1.0 if possible == 0.0 else float(np.minimum(used, quota).sum()) / possible


def _over(total: FloatArray, quota: float) -> FloatArray:
    """By which part of the quota each total exceeds it; 0 where it doesn't, or rounding did."""
    if not np.isfinite(quota) or quota <= 0.0:
        return np.empty(0)
    part = np.maximum(total / quota - 1.0, 0.0)
    return np.where(part > _ROUNDING, part, 0.0)


def _movement(limit: FloatArray, phases: list[dict[str, int | None]], quota: float) -> float | None:
    """Mean over settled rounds of the sum of all moves since the round before, by the quota."""
    if not np.isfinite(quota) or quota <= 0.0:
        return None
    moves: list[FloatArray] = []
    for phase in phases:
        begin, end, settled = phase["from_round"], phase["to_round"], phase["rounds_to_fair"]
        if begin is not None and end is not None and settled is not None:
            calm = limit[begin + settled : end + 1]
            moves.append(np.abs(np.diff(calm, axis=0)).sum(axis=1) / quota)
    every = np.concatenate(moves) if moves else np.empty(0)
    return float(every.mean()) if len(every) else None
