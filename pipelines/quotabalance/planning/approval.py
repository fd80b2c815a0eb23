"""Whether a plan may still be executed: its check against the cluster as it is now. Pure.

An administrator approves what was shown, so exactly that is done, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.cluster_load import RESOURCES, ClusterLoad
from quotabalance.planning.decisions import Decisions, Move
from quotaplane.model import BoolArray, FloatArray, IntArray

_NAMED: Final = 3
_LEAST_BYTES: Final = 1.0
"""Below this much traffic a change of it says nothing."""


class Tolerance(NamedTuple):
    """How far the load may have moved on since the plan."""

    changed_share: float = 0.5
    """Differences of the bundles' bytes per second from those in the plan, added up, as a part of
    the plan's."""
    receiver_share: float = 1.25
    """Highest load of a receiver after the plan, as a multiple of the mean of brokers that stay."""


class PlanCheck(NamedTuple):
    """The answer of ``check_plan``."""

    refusals: tuple[str, ...]
    """Why the plan must not be executed, a sentence each; empty = it may be."""
    done: BoolArray
    """(moves,) the receiver has the bundle already."""
    peak_before: float
    """Highest load of the brokers that the plan touches, as a multiple of the mean."""
    peak_after: float
    """The same as predicted for the end of the plan."""


def check_plan(
    plan: Decisions,
    load: ClusterLoad,
    tolerance: Tolerance,
    weights: FloatArray | None = None,
    drained: BoolArray | None = None,
    resources: Sequence[str] = (),
) -> PlanCheck:
    """Check a plan against fresh owners and rates. The plan is refused if

    1. a broker that it names is not there, or a bundle is neither where the plan takes it from nor
       where it brings it, or is not there at all (it was split or deleted), or the plan does not
       say where it goes;
    2. the traffic of the bundles that are not moved yet differs from the plan's by more than
       ``changed_share``;
    3. it would not help any more: the highest load among the brokers that it touches would not go
       down, nor does each bundle leave a fuller machine for a less full one (not asked of plans
       that drain a broker);
    4. a receiver would carry more than ``receiver_share`` times the mean, and (where no broker is
       drained) the plan would not halve the excess of the busiest broker over the mean, either.

    Args:
        plan: its moves and splits.
        load: the cluster now: B brokers.
        tolerance: see there.
        weights: (B,) configured capacity of each broker; None = all are alike.
        drained: (B,) brokers to be taken out; None = none.
        resources: which of ``RESOURCES`` are balanced, those that decide first. A broker's capacity
            is its weight times its limit of the first one whose limits are all known.

    A broker's load is bytes per second by its capacity.

    >>> load = ClusterLoad(("b1", "b2"), np.zeros((2, 5)), np.zeros((2, 5)), ("t/n/0x0_0x1",),
    ...     np.array([1]), np.array([[3e6, 0, 0, 0]]))
    >>> plan = Decisions([Move("t/n/0x0_0x1", "b3", "b1", 3e6, "Overloaded", "")])
    >>> check_plan(plan, load, Tolerance()).refusals
    ('broker b3 is not in the cluster any more',)
    """
    drained = np.zeros(len(load.brokers), np.bool_) if drained is None else drained
    weights = np.ones(len(load.brokers)) if weights is None else weights
    weights, fullness = _machines(load, weights, resources)
    broker_at = {name: at for at, name in enumerate(load.brokers)}
    bundle_at = {name: at for at, name in enumerate(load.bundles)}
    moved_on, done = _moved_on(plan, load, broker_at, bundle_at)
    none = np.zeros(len(plan.moves), np.bool_)
    if moved_on:
        return PlanCheck(tuple(moved_on), none if done is None else done, 0.0, 0.0)
    assert done is not None
    open_moves = [move for move, is_done in zip(plan.moves, done, strict=True) if not is_done]
    at = np.array([bundle_at[move.bundle] for move in open_moves], np.int64)
    source = np.array([broker_at[move.source] for move in open_moves], np.int64)
    target = np.array([broker_at[move.target] for move in open_moves], np.int64)
    now, stays = load.throughput_of_brokers(), ~drained
    rates = load.throughput()[at]
    mean = now.sum() / max(float(weights[stays].sum()), 1e-9)
    after = now - np.bincount(source, rates, len(now)) + np.bincount(target, rates, len(now))
    before_share, after_share = (amount / weights / max(mean, 1e-9) for amount in (now, after))
    touched = np.union1d(source, target)
    before = float(before_share[touched].max(initial=0.0))
    highest = float(after_share[touched].max(initial=0.0))
    refusals = _changed(open_moves, rates, tolerance)
    of_load = ~drained[source] & ~drained[target] if len(open_moves) else np.zeros(0, np.bool_)
    to_emptier = bool((fullness[source] > fullness[target]).all())
    if of_load.all() and len(open_moves) and highest >= before and not to_emptier:
        refusals.append(
            f"it would not help any more: the busiest broker that it touches has {before:.2f} times"
            f" the mean now, and would have {highest:.2f}"
        )
    most = max(tolerance.receiver_share, (1.0 + before) / 2.0 if of_load.all() else 0.0)
    refusals += _above(load, np.unique(target), after_share, most)
    return PlanCheck(tuple(refusals), done, before, highest)


def _machines(
    load: ClusterLoad, weights: FloatArray, resources: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Capacities (B,), and what each machine uses of its fullest resource (B,)."""
    known = [
        column
        for column in (RESOURCES.index(name) for name in resources)
        if (load.limit[:, column] > 0).all()
    ]
    if not known:
        return weights, np.zeros(len(weights))
    shares = load.usage[:, known] / load.limit[:, known]
    return weights * load.limit[:, known[0]], shares.max(axis=1)


def _moved_on(
    plan: Decisions, load: ClusterLoad, broker_at: dict[str, int], bundle_at: dict[str, int]
) -> tuple[list[str], BoolArray | None]:
    """Rule 1; and which moves are done already."""
    aimless = [move.bundle for move in plan.moves if not move.target]
    if aimless:
        return [f"it leaves it to Pulsar where bundle {aimless[0]} goes"], None
    named = [name for move in plan.moves for name in (move.source, move.target)]
    named += [split.owner for split in plan.splits]
    gone = [name for name in dict.fromkeys(named) if name not in broker_at]
    if gone:
        return [f"broker {name} is not in the cluster any more" for name in gone[:_NAMED]], None
    texts = []
    done = np.zeros(len(plan.moves), np.bool_)
    for place, move in enumerate(plan.moves):
        at = bundle_at.get(move.bundle)
        owner = None if at is None else load.brokers[int(load.owner[at])]
        done[place] = owner == move.target
        if owner not in (move.source, move.target):
            texts.append(f"bundle {move.bundle} {_where(owner)}, not at {move.source}")
    for split in plan.splits:
        at = bundle_at.get(split.bundle)
        owner = None if at is None else load.brokers[int(load.owner[at])]
        if owner != split.owner:
            texts.append(f"bundle {split.bundle} {_where(owner)}, not at {split.owner}")
    more = [f"and {len(texts) - _NAMED} more bundles"] if len(texts) > _NAMED else []
    return texts[:_NAMED] + more, done


def _where(owner: str | None) -> str:
    return "has no owner, or was split or deleted" if owner is None else f"is at {owner} now"


def _changed(moves: Sequence[Move], rates: FloatArray, tolerance: Tolerance) -> list[str]:
    """Rule 2."""
    planned = np.array([move.bytes_per_s for move in moves])
    differing = float(np.abs(rates - planned).sum())
    total = float(planned.sum())
    if (
        max(total, float(rates.sum())) < _LEAST_BYTES
        or differing <= tolerance.changed_share * total
    ):
        return []
    return [
        f"the bundles' traffic has changed by {differing / 1e6:.1f} MB/s since the plan, which"
        f" moves {total / 1e6:.1f} MB/s; {tolerance.changed_share:.0%} is allowed"
    ]


def _above(load: ClusterLoad, targets: IntArray, after_share: FloatArray, most: float) -> list[str]:
    """Rule 4."""
    above = targets[after_share[targets] > most].tolist()
    return [
        f"broker {load.brokers[at]} would carry {after_share[at]:.2f} times the mean; at most"
        f" {most:.2f} is allowed"
        for at in above[:_NAMED]
    ]
