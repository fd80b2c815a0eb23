"""How the groups of a shard stand after a round: what they use and may use, beside their quotas."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotaplane.groups.hierarchy import even_shares, least_on_path, subtree_totals
from quotaplane.model import MODES, BoolArray, CodeArray, FloatArray, IntArray
from quotaplane.quota.division import tree_quota
from quotaplane.quota.groups import Groups
from quotaplane.quota.shard import Shard
from quotaplane.round_counts import MOST_NAMED

OVER_QUOTA: Final = 1.05
"""Share of its quota from which a group counts as above it; the audit `exceeded` tolerates as
much."""
_OVERCOMMITTED: Final = 1.001
"""The same for limits, beside ``limits.over``. They are rounded to seven digits, so their sum may
be a little more."""
_STARVING: Final = 0.5
_CROWDED: Final = 0.9


def standing(
    shard: Shard, renewed_at_ms: IntArray, *, learning: bool, over: float = 0.0
) -> dict[str, Any]:
    """The counts of ``RoundCounts`` that describe the shard after a round.

    ``renewed_at_ms``: see ``ShardState``. ``over``: see ``StepConfig``.
    """
    groups, leases = shard.groups, shard.leases
    in_force = leases.has_limit & leases.enforced
    live = ~shard.brokers.stale[leases.broker]
    used: FloatArray = np.zeros(len(groups))
    limited: FloatArray = np.zeros(len(groups))
    starving: BoolArray = np.zeros(len(groups), np.bool_)
    for dimension in range(len(leases.dimensions)):
        quota = groups.quota[dimension]
        if np.isinf(quota).all():
            continue
        share = _share(groups, leases.group, leases.usage[dimension], quota)
        used = np.maximum(used, share)
        highest = np.maximum(leases.limit[dimension], leases.max_in_force[dimension])
        enforced = np.where(in_force, highest, 0.0)
        binding = tree_quota(groups, dimension)
        limited = np.maximum(limited, _share(groups, leases.group, enforced, binding))
        starving |= _starving(shard, dimension, in_force & live, share)
    mode = groups.mode
    renewed = leases.has_limit & leases.notified & live
    overcommitted = _OVERCOMMITTED + over
    turn = groups.ids[leases.group[renewed]] % len(renewed_at_ms)
    return {
        "groups": _by_mode(mode),
        "groups_over_quota": _by_mode(mode[used > OVER_QUOTA]),
        "worst_share": float(used.max(initial=0.0)),
        "shares": _greatest(used, groups.names, above=0.0),
        "groups_starving": int(starving.sum()),
        "limits_in_force": int(in_force.sum()),
        "groups_overcommitted": int((limited > overcommitted).sum()),
        "worst_overcommit": float(limited.max(initial=0.0)),
        "overcommits": _greatest(limited, groups.names, above=overcommitted),
        "oldest_renewal_ms": int(renewed_at_ms[turn].min()) if len(turn) else 0,
        "learning_shards": int(learning),
    }


def _share(groups: Groups, group: IntArray, rates: FloatArray, quota: FloatArray) -> FloatArray:
    """(g,) the sums of rates (n,) by group, with all groups below, as a share of the quota.

    0 without a quota; infinite above a quota of 0.
    """
    total = np.bincount(group, weights=rates, minlength=len(groups)).astype(np.float64)
    total = subtree_totals(groups.parent, total)
    share = np.where(total > 0.0, np.inf, 0.0)
    share[np.isinf(quota)] = 0.0
    with np.errstate(over="ignore"):  # a quota may be as small as numbers go
        np.divide(total, quota, out=share, where=np.isfinite(quota) & (quota > 0.0))
    return share


def _starving(shard: Shard, dimension: int, counts: BoolArray, share: FloatArray) -> BoolArray:
    """(g,) groups of which a broker has too little while quota is free.

    Groups with broker terms are left out: a ceiling or a weight may explain it. ``counts`` (n,):
    leases with an enforced limit and a live broker; ``share`` (g,): of the quota that is used.
    """
    groups, leases = shard.groups, shard.leases
    suspects = np.flatnonzero(counts & np.isinf(leases.track.demand[dimension]))
    starving: BoolArray = np.zeros(len(groups), np.bool_)
    if not len(suspects):
        return starving
    quota = tree_quota(groups, dimension)
    brokers = np.bincount(leases.group, minlength=len(groups))
    even = even_shares(groups.parent, quota, brokers)
    group = leases.group[suspects]
    few = leases.limit[dimension, suspects] < _STARVING * even[group]
    starving[group[few & np.isfinite(even[group])]] = True
    starving &= -least_on_path(groups.parent, -share) < _CROWDED
    starving[groups.overrides.group] = False
    return starving


def _by_mode(modes: CodeArray) -> dict[str, int]:
    """How many groups have each mode, by its name."""
    counts = np.bincount(modes, minlength=len(MODES)).tolist()
    return dict(zip(MODES, counts, strict=True))


def _greatest(shares: FloatArray, names: pa.StringArray, *, above: float) -> dict[str, float]:
    """The greatest shares by name of the group, those above a bound."""
    most = min(MOST_NAMED, len(shares))
    if not most:
        return {}
    chosen = np.argpartition(shares, len(shares) - most)[len(shares) - most :]
    chosen = chosen[shares[chosen] > above]
    texts = names.take(pa.array(chosen)).to_pylist()
    return dict(zip(texts, shares[chosen].tolist(), strict=True))
