"""Tests of broker terms: those of a named broker override those of all, field by field."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.groups.terms_by_broker import TermsByBroker, read_terms
from quotaplane.model import RATE_COLUMNS
from quotaplane.quota.broker_terms import LeaseTerms, lease_terms
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.group_changes import change_groups
from quotaplane.quota.leases import fresh_leases
from quotaplane.quota.shard import Shard
from quotaplane.quota.state import ShardState
from tests.examples import examples
from tests.unit.quota.test_redefine import change, changes, groups_after

BROKERS = ("b0", "b1", "b2")


def brokers(names: tuple[str, ...] = BROKERS) -> Brokers:
    none, no = np.zeros(len(names), np.int64), np.zeros(len(names), bool)
    return Brokers(names, none, none, none, none, no, no, none.astype(np.uint64), none, none, none)


RATES = st.dictionaries(st.sampled_from(RATE_COLUMNS), st.floats(0, 1e6), max_size=2)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "weight": st.floats(1e-3, 1e3),
        "priority": st.integers(-100, 100),
        "floor": RATES,
        "ceiling": RATES,
    },
)
TEXTS = st.dictionaries(st.sampled_from([*BROKERS, "gone", "*"]), TERMS, max_size=4)


def plainly(overrides: dict[str, Any], broker: str) -> tuple[Any, ...]:
    def find(default: float, *path: str) -> float:
        for who in (broker, "*"):
            value: Any = overrides.get(who)
            for key in path:
                value = None if value is None else value.get(key)
            if value is not None:
                return float(value)
        return default

    ceiling = [find(np.inf, "ceiling", rate) for rate in RATE_COLUMNS]
    floor = [min(find(0.0, "floor", r), c) for r, c in zip(RATE_COLUMNS, ceiling, strict=True)]
    return find(1.0, "weight"), find(0.0, "priority"), floor, ceiling


@pytest.mark.slow
@given(st.lists(TEXTS, min_size=1, max_size=4), st.data())
@examples(2)
def test_row_terms_are_what_one_would_look_up_by_hand(
    given_: list[dict[str, Any]], data: st.DataObject
) -> None:
    texts = {f"g{i}": overrides for i, overrides in enumerate(given_)}
    groups = groups_after(*(change(n, 1, brokers=json.dumps(o)) for n, o in texts.items()))
    pairs = [(g, b) for g in range(len(groups)) for b in range(len(BROKERS))]
    chosen = sorted(data.draw(st.sets(st.sampled_from(pairs))))
    group, broker = (np.array([p[i] for p in chosen], np.int64) for i in (0, 1))
    weight, priority, floor, ceiling = lease_terms(
        Shard(groups, brokers(), fresh_leases(group, broker))
    )
    for row, (g, b) in enumerate(chosen):
        wanted = plainly(texts[groups.names[g].as_py()], BROKERS[b])
        found = (
            1.0 if weight is None else weight[row],
            0.0 if priority is None else priority[row],
            [0.0] * len(RATE_COLUMNS) if floor is None else floor[:, row].tolist(),
            [np.inf] * len(RATE_COLUMNS) if ceiling is None else ceiling[:, row].tolist(),
        )
        assert found == wanted
    assert priority is None or priority.dtype == np.int64
    assert {a.shape for a in (weight, priority) if a is not None} <= {(len(chosen),)}
    assert {a.shape for a in (floor, ceiling) if a is not None} <= {
        (len(RATE_COLUMNS), len(chosen))
    }


def test_what_nobody_set_is_none() -> None:
    rows = fresh_leases(np.array([0]), np.array([0]))
    assert lease_terms(Shard(groups_after(change("g", 1)), brokers(), rows)) == LeaseTerms()
    only = groups_after(change("g", 1, brokers='{"b1": {"weight": 2}}'))
    weight, *others = lease_terms(Shard(only, brokers(), rows))
    assert weight.tolist() == [1.0]
    assert others == [None, None, None]


def test_overrides_follow_their_group_when_others_come_and_go() -> None:
    state = ShardState(groups=groups_after(change("m", 1, brokers='{"b1": {"weight": 2}}')))
    for version, name in enumerate("abcdefgh", start=2):
        groups = change_groups(state, changes(change(name, version))).groups
        state = ShardState(groups=groups)
        n = len(groups)
        rows = fresh_leases(np.arange(n), np.ones(n, np.int64))
        weight = lease_terms(Shard(groups, brokers(), rows)).weight
        by_name = dict(zip(groups.names.to_pylist(), weight.tolist(), strict=True))
        assert by_name.pop("m") == 2.0
        assert set(by_name.values()) == {1.0}


@given(TEXTS)
def test_a_text_says_what_was_given_and_equal_terms_are_equal_texts(terms: dict[str, Any]) -> None:
    overrides = TermsByBroker.model_validate(terms)
    text = overrides.text()
    assert TermsByBroker(root=read_terms(text)).text() == text
    assert TermsByBroker.model_validate(dict(reversed(terms.items()))).text() == text
    for broker in (*BROKERS, "gone", "*"):
        assert plainly(json.loads(text), broker) == plainly(terms, broker)
