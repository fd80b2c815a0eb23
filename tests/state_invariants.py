"""Invariants of a shard's state, which tests check after every step."""

from __future__ import annotations

import numpy as np

from quotaplane.quota.state import ShardState


def check_state(state: ShardState) -> None:
    """Assert the invariants that the step relies on.

    Raises:
        AssertionError: an invariant does not hold; the message names it.
    """
    groups, brokers, leases = state.groups, state.brokers, state.leases
    d, n = len(leases.dimensions), len(leases)
    assert list(leases.dimensions) == sorted({*leases.dimensions}), "dimensions ascend"
    assert (np.diff(groups.ids) > 0).all(), "group ids ascend"
    assert len(groups.names) == len(groups.ids), "each group has a name"
    assert ((groups.parent >= -1) & (groups.parent < len(groups))).all(), "parents exist"
    assert len({*brokers.names}) == len(brokers), "broker names differ"
    assert ((leases.group >= 0) & (leases.group < len(groups))).all(), "leases have groups"
    assert ((leases.broker >= 0) & (leases.broker < len(brokers))).all(), "leases have brokers"
    pair = leases.group * max(len(brokers), 1) + leases.broker
    assert (np.diff(pair) > 0).all(), "leases are sorted by group, then broker, each pair once"
    names = ("usage", "limit", "previous_limit", "max_in_force")
    all_rates = {
        "demand": leases.estimates.demand,
        **{each: getattr(leases, each) for each in names},
    }
    for name, rates in all_rates.items():
        assert rates.shape == (d, n), f"{name} has shape {rates.shape}, not {(d, n)}"
        assert (rates >= 0.0).all(), f"{name} is at least 0"
    assert np.isfinite(leases.usage).all(), "usage is finite"
    assert (leases.max_in_force >= leases.limit)[:, leases.enforced].all(), (
        "max_in_force is too low"
    )
    distrust = leases.estimates.distrust
    assert ((distrust >= 0) & (distrust <= 255)).all(), "distrust fits a byte"
    observed = state.observed
    pair = np.stack([observed.group_id, observed.broker])
    assert (np.lexsort(pair[::-1]) == np.arange(len(observed))).all(), "observed pairs ascend"
    assert np.isfinite(observed.units).all(), "observed usage is finite"
    assert (state.overuse.debt >= 0.0).all(), "debts are at least 0"
    young = leases.issued_seq >= 0
    assert (young == (leases.issued_at_ms >= 0)).all(), "young limits have a seq and a time"
    assert leases.has_limit[young].all(), "young limits were issued"
