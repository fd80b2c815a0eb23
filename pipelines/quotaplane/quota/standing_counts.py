"""How the groups of a shard stand after a round: what they use and may use, beside their quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotaplane.groups.standing import OVER_QUOTA, QuotaTree, starving, used_part, worst_shares
from quotaplane.model import MODES, BoolArray, CodeArray, FloatArray, IntArray, Mode
from quotaplane.quota.groups import Groups, whole_trees
from quotaplane.quota.shard import Shard
from quotaplane.round_counts import MOST_NAMED

_OVERCOMMITTED: Final = 1.001
"""The same for limits, beside ``limits.over``. They are rounded to seven digits, so their sum may
be a little more."""


def standing(
    shard: Shard,
    renewed_at_ms: IntArray,
    touched: BoolArray,
    *,
    learning: bool,
    over: float = 0.0,
) -> dict[str, Any]:
    """The counts of ``RoundCounts`` that describe the shard after a round.

    ``renewed_at_ms``: see ``ShardState``. ``touched`` (g,): see ``RoundChanges``. ``over``: see
    ``StepConfig``.
    """
    groups, leases = shard.groups, shard.leases
    in_force = leases.has_limit & leases.enforced
    live = ~shard.brokers.stale[leases.broker]
    used: FloatArray = np.zeros(len(groups))
    limited: FloatArray = np.zeros(len(groups))
    starved: BoolArray = np.zeros(len(groups), np.bool_)
    unlimited = _tree(groups, leases.group)
    for dimension in range(len(leases.dimensions)):
        quota = groups.quota[dimension]
        if np.isinf(quota).all():
            continue
        share = used_part(groups.parent, leases.group, leases.usage[dimension], quota)
        used = np.maximum(used, share)
        highest = np.maximum(leases.limit[dimension], leases.max_in_force[dimension])
        enforced = np.where(in_force, highest, 0.0)
        binding = groups.tree_quota(dimension)
        limited = np.maximum(limited, used_part(groups.parent, leases.group, enforced, binding))
        tree = replace(unlimited, quota=binding)
        limit, demand = leases.limit[dimension], leases.estimates.demand[dimension]
        worst = worst_shares(tree, leases.group, limit, demand, in_force & live)
        starved |= starving(tree, worst, share)
    mode, exceeded = groups.mode, used > OVER_QUOTA
    soft = mode == Mode.SOFT
    renewed = leases.has_limit & leases.notified & live
    overcommitted = _OVERCOMMITTED + over
    turn = groups.ids[leases.group[renewed]] % len(renewed_at_ms)
    sent_at_ms = np.maximum(renewed_at_ms[turn], leases.issued_at_ms[renewed])
    return {
        "groups": _by_mode(mode),
        "groups_over_quota": _by_mode(mode[exceeded]),
        "soft_exceeded": int((soft & exceeded & whole_trees(groups, touched)).sum()),
        "worst_quota_used": float(used.max(initial=0.0)),
        "shares": _greatest(used, groups.names, above=0.0),
        "groups_starving": int(starved.sum()),
        "limits_in_force": int(in_force.sum()),
        "groups_overcommitted": int((limited > overcommitted).sum()),
        "worst_overcommit": float(limited.max(initial=0.0)),
        "overcommits": _greatest(limited, groups.names, above=overcommitted),
        "oldest_renewal_ms": int(sent_at_ms.min()) if len(turn) else 0,
        "learning_shards": int(learning),
    }


def _tree(groups: Groups, group: IntArray) -> QuotaTree:
    """The tree without quotas; ``group`` (n,): of each lease."""
    has_terms: BoolArray = (groups.priority != 0) | (groups.floor > 0.0).any(axis=0)
    has_terms[groups.overrides.group] = True
    brokers = np.bincount(group, minlength=len(groups))
    no_quota = np.full(len(groups), np.inf)
    return QuotaTree(groups.parent, no_quota, brokers, groups.weight, has_terms)


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
