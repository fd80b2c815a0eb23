"""Sentences for what a round did not do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from quotabalance.planning.broker_watch import HARMLESS
from quotabalance.planning.decisions import Skip
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.policies import Policies

if TYPE_CHECKING:
    from quotabalance.planning.bundle_moves import MovePlanner
    from quotabalance.planning.placement_rules import PlacementRules
    from quotabalance.planning.round_view import RoundView

_NAMED: Final = 3
_WHY: Final = {
    "Grace": "were moved less than the grace period ago",
    "InFlight": "are being moved or split, or wait until that is done",
    "Missed": "wait for another try after a missed move",
    "Policy": "may not leave, or not go to a broker with room, because of the policies",
    "NoTarget": "fit on no other broker",
    "Budget": "would exceed the round's moves or bytes",
}


def broker_skips(now: RoundView, options: BalanceOptions) -> list[Skip]:
    """Brokers that are left out, or overloaded but not surely so."""
    brokers, age_s = now.round_.load.brokers, now.round_.age_s
    live, draining, verdict, overload = now.live, now.draining, now.verdict, now.overload
    skips = []
    for broker in np.flatnonzero(~live).tolist():
        if np.isinf(age_s[broker]):
            skips.append(Skip(brokers[broker], "NoLoadData", "no load report of it has come"))
            continue
        text = (
            f"its numbers are {age_s[broker]:.0f} s old, the limit is {options.stale_after_s:.0f}"
        )
        skips.append(Skip(brokers[broker], "OutDatedData", text))
    for broker in np.flatnonzero(np.isfinite(verdict.watch.lost_at_s) & live & ~draining).tolist():
        text = (
            "other brokers have bundles of it since its numbers were measured, so it may be gone;"
            " it neither gives nor gets until it reports again"
        )
        skips.append(Skip(brokers[broker], "OutDatedData", text))
    waits = verdict.above & ~verdict.watch.active & live & ~draining
    for broker in np.flatnonzero(waits).tolist():
        ratio, error = float(overload.ratio[broker]), float(overload.error[broker])
        start = 1 + float(overload.start[broker])
        carries = f"it carries {ratio:.3f} x the mean, the start is {start:.3f}"
        if not verdict.confirmed[broker]:
            window = options.confirm_window_samples
            text = (
                f"{carries}, but in {verdict.hits[broker]} of {window} samples;"
                f" {options.confirm_samples} confirm"
            )
            skips.append(Skip(brokers[broker], "HitCount", text))
        else:
            text = (
                f"{carries}; {options.noise_z:g} standard errors of {error:.3f} explain what is"
                f" above {1 + HARMLESS * float(overload.start[broker]):.3f}"
            )
            skips.append(Skip(brokers[broker], "Noise", text))
    return skips


def held_by_policies(now: RoundView, options: BalanceOptions) -> list[Skip]:
    """Brokers that carry more than others because policies leave their bundles no other broker."""
    board, brokers = now.board, now.round_.load.brokers
    most = board.mean_of_cluster
    above = now.takes & (board.mean > (1 + options.start_above) * most) & (most > 0)
    skips = []
    for mean in np.unique(board.mean[above]).tolist():
        mine = [brokers[at] for at in np.flatnonzero(above & (board.mean == mean)).tolist()]
        shown = ", ".join(mine[:_NAMED]) + (" ..." if len(mine) > _NAMED else "")
        number = "1 broker" if len(mine) == 1 else f"{len(mine)} brokers"
        text = (
            f"policies leave some bundles only {number}, whose mean is {mean / most:.2f} x the"
            f" cluster's: {shown}"
        )
        skips.append(Skip(mine[0] if len(mine) == 1 else "", "Policy", text))
    return skips


def load_lost(now: RoundView) -> Skip:
    """The skip that keeps overloaded brokers waiting while load has no known broker."""
    text = (
        f"{now.lost_share:.1%} of the load has lost its broker, and no other one reports it yet;"
        " overloaded brokers wait until it is known where it went"
    )
    return Skip("", "NoLoadData", text)


def unknown_names(
    policies: Policies, rules: PlacementRules, brokers: tuple[str, ...]
) -> list[Skip]:
    """Brokers in the policies that do not report: misspelt, or already taken out; and isolation
    policies that match none.
    """
    named = {
        "drained_brokers": policies.drained_brokers,
        "capacity_weights": policies.capacity_weights.keys(),
    }
    matches_none = "matches no broker that reports; expressions are compared with hosts"
    return [
        *(
            Skip("", "Policy", f"isolation policy {name} {matches_none}")
            for name in rules.isolation_without_brokers
        ),
        *(
            Skip(name, "NoLoadData", f"{key} names it, and no load report of it has come")
            for key, names in named.items()
            for name in sorted(set(names).difference(brokers))
        ),
    ]


def stuck(mover: MovePlanner, source: int, before: float, stay: int | None = None) -> Skip:
    """Why a broker was not relieved, or not drained, completely."""
    owner = mover.board.owner
    why = Counter(label for bundle, label in mover.why_not.items() if owner[bundle] == source)
    label = why.most_common(1)[0][0] if why else "NoBundles"
    if mover.budget.refused and why["Budget"]:
        label = "Budget"
    parts = [f"{count} bundles {_WHY[name]}" for name, count in sorted(why.items())]
    left = f"{stay} bundles stay" if stay is not None else _left(mover, source, before)
    return Skip(
        mover.brokers[source],
        label,
        f"{left}: {', '.join(parts) or 'it has no further bundle that could leave'}",
        bundles=max(sum(why.values()), 1),
    )


def misplaced_stay(mover: MovePlanner) -> Skip:
    """Why some bundles stay where an isolation policy forbids them."""
    why = Counter(mover.why_not.values())
    parts = [f"{count} {_WHY[name]}" for name, count in sorted(why.items())]
    text = f"of the bundles where an isolation policy forbids them {', '.join(parts)}"
    return Skip("", why.most_common(1)[0][0], text, bundles=sum(why.values()))


def _left(mover: MovePlanner, source: int, before: float) -> str:
    now = mover.board.ratio(source)
    return f"it carried {before:.2f} x the mean and will carry {now:.2f}"
