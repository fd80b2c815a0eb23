"""Metrics, ``quotaplane status``, the page and the audits have one meaning of how groups stand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from quotaplane.arrays import map_arrays
from quotaplane.groups import standing as rules
from quotaplane.model import (
    DEMAND_COLUMNS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    USED_COLUMNS,
    FloatArray,
    Mode,
)
from quotaplane.query.audit import list_audits
from quotaplane.query.cluster_picture import ClusterPicture
from quotaplane.query.group_status import StandingLeases, group_status
from quotaplane.quota.lease_snapshot import lease_snapshot
from quotaplane.quota.shard import Shard as WorkingSet
from quotaplane.quota.standing_counts import standing
from quotaplane.quota.state import ShardState
from quotaplane.round_counts import RoundCounts
from tests.unit.quota.step_cases import T0, Shard, quotas, report, reports

NAMES = ("a", "a::x", "a::y", "b", "c", "d", "e", "f")
QUOTAS = (300.0, None, 80.0, 100.0, 100.0, 0.0, 100.0, 50.0)


def random_shard(seed: int) -> ShardState:
    """Leases with usage, limits and demand around everything that a rule compares them with."""
    random = np.random.default_rng(seed)
    shard = Shard()
    shard.run(quotas(*zip(NAMES, QUOTAS, strict=True)), now_ms=T0)
    brokers = [report(name, T0, dict.fromkeys(NAMES, 1.0)) for name in "klmn"]
    shard.run(reports(*brokers), now_ms=T0)
    state = shard.state
    leases, groups = map_arrays(np.copy, state.leases), state.groups
    n = len(leases)
    quota = np.minimum(groups.quota[0, leases.group], 200.0)
    of_quota = random.choice([0.1, 0.2, 0.24, 0.255, 0.26, 0.27, 0.4], n)
    leases.usage[0] = quota * of_quota
    leases.limit[0] = quota * random.choice([0.1, 0.12, 0.2, 0.23, 0.25, 0.5], n)
    wanted = leases.limit[0] * random.choice([0.9, 1.04, 1.06, 3.0], n)
    leases.estimates.demand[0] = np.where(random.random(n) < 0.3, np.inf, wanted)
    leases.enforced[:] = random.random(n) < 0.9
    mode = random.choice([Mode.HARD, Mode.HARD, Mode.SOFT, Mode.SHADOW], len(groups))
    weight = random.choice([1.0, 1.0, 3.0], len(groups))
    priority = np.where(groups.names.to_numpy(False) == "e", random.integers(0, 2), 0)
    options = {**groups.options, "mode": mode, "weight": weight, "priority": priority}
    stale = random.random(len(state.brokers)) < 0.2
    return replace(
        state,
        leases=leases,
        groups=replace(groups, options=options),
        brokers=replace(state.brokers, stale=stale),
    )


def as_read(state: ShardState) -> StandingLeases:
    """The leases as a reader of the history has them: NaN for infinity, names in order."""
    groups, rows = state.groups, lease_snapshot(state, 60_000)

    def column(values: FloatArray) -> FloatArray:
        return np.where(np.isinf(values), np.nan, values)

    order = np.argsort(groups.names.to_numpy(False))
    place_of = np.argsort(order)
    modes = np.array([tuple(Mode)[mode].name.lower() for mode in groups.mode], object)
    leases = {
        "place": place_of[rows["resource_group"].combine_chunks().indices.to_numpy()],
        "broker_place": state.leases.broker,
        "stale": state.brokers.stale[state.leases.broker],
        "limited": rows["has_limit"].to_numpy() & rows["enforced"].to_numpy(),
        "lately": np.ones(len(rows), bool),
    }
    for columns in (USED_COLUMNS, DEMAND_COLUMNS, LIMIT_COLUMNS):
        for name in columns:
            given = rows[name].to_numpy() if name in rows.column_names else np.nan
            leases[name] = column(np.broadcast_to(given, len(rows)).astype(float))
    return StandingLeases(
        {
            "resource_group": groups.names.to_numpy(False)[order],
            "mode": modes[order],
            "lately": np.ones(len(groups), bool),
            "weight": groups.weight[order],
            "has_terms": groups.priority[order] != 0,
            **{name: column(groups.quota[d][order]) for d, name in enumerate(RATE_COLUMNS)},
        },
        {"broker": np.array(state.brokers.names, object), "stale": state.brokers.stale},
        leases,
        {"place": np.empty(0), **{name: np.empty(0) for name in THROTTLED_COLUMNS}},
    )


def test_the_job_and_readers_of_the_history_count_the_same_groups() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(20):
        kinds.update(agreed(random_shard(seed)))
    assert min(kinds[kind] for kind in ("over", "near", "unfair", "starving")) > 0, kinds


def agreed(state: ShardState) -> dict[str, int]:
    """Check that both count the same; returns how many groups of each kind there are."""
    shard = WorkingSet(state.groups, state.brokers, state.leases)
    untouched = np.zeros(len(state.groups), bool)
    counts = RoundCounts(**standing(shard, state.renewed_at_ms, untouched, learning=False))
    leases = as_read(state)
    status = group_status(leases)
    over = set(status.group[status.used_part > rules.OVER_QUOTA].tolist())
    assert sum(counts.groups_over_quota.values()) == len(over)
    picture = ClusterPicture(leases, None, None)  # type: ignore[arg-type]
    shown = picture.counts(np.ones(len(leases.names), bool))
    unfair = int((status.worst_share < rules.UNFAIR).sum())
    assert (shown["over_quota"], shown["unfair"]) == (len(over), unfair)
    part = np.full(len(leases.names), 0.0)
    worst = np.full(len(leases.names), np.nan)
    place = {name: at for at, name in enumerate(leases.names)}
    for name, used, share in zip(status.group, status.used_part, status.worst_share, strict=True):
        part[place[name]], worst[place[name]] = used, share
    starving = rules.starving(leases.tree(0), worst, part)
    assert counts.groups_starving == starving[~np.isnan(leases.quota(0))].sum()
    near = int(((status.used_part > 1.0) & (status.used_part <= 1.05)).sum())
    return {"over": len(over), "near": near, "unfair": unfair, "starving": counts.groups_starving}


def test_no_broker_of_a_tree_is_called_unfair_for_what_the_law_gives_it() -> None:
    """A child's share does not depend on how many brokers its sibling has."""
    shard = Shard()
    shard.run(quotas(("t", 100), ("t::wide", None), ("t::narrow", 90)), now_ms=T0)
    many = {name: {"t::wide": 50.0} for name in "abcdefghi"} | {"z": {"t::narrow": 95.0}}
    for second in range(12):
        now_ms = T0 + second * 1000
        shard.run(reports(*[report(b, now_ms, uses) for b, uses in many.items()]), now_ms=now_ms)
    leases = as_read(shard.state)
    limits = dict(zip(leases.names[leases.group], leases.rates(0)[2], strict=True))
    assert limits["t::narrow"] == pytest.approx(50, rel=0.1)
    assert limits["t::wide"] == pytest.approx(50 / 9, rel=0.1)
    worst = group_status(leases).worst_share
    assert not (worst < rules.UNFAIR).any(), worst


def test_audits_and_the_step_have_the_same_numbers() -> None:
    declared = {audit.name: audit.parameters for audit in list_audits()}
    for name in ("exceeded", "soft_exceeded"):
        assert 1 + declared[name]["tolerance"].default == pytest.approx(rules.OVER_QUOTA)
    for name in ("starvation", "throttled"):
        assert declared[name]["saturated_from"].default == rules.AT_LIMIT


def test_fair_shares_need_no_pairs() -> None:
    nothing = np.empty(0)
    tree = rules.QuotaTree(
        np.array([-1]), np.array([10.0]), np.array([0]), np.ones(1), np.zeros(1, bool)
    )
    found = rules.worst_shares(tree, nothing.astype(int), nothing, nothing, nothing.astype(bool))
    assert np.isnan(found).all()
