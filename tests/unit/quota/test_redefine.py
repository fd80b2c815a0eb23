"""Changes of groups: whatever comes in which order, the arrays say what the table says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.arrow import pack, unpack
from quotaplane.errors import HistoryError
from quotaplane.groups.hierarchy import ancestors
from quotaplane.groups.policy_options import FLOOR_COLUMNS, POLICY_COLUMNS
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, Mode, group_id
from quotaplane.quota.group_changes import change_groups
from quotaplane.quota.groups import Groups, group_columns
from quotaplane.quota.leases import fresh_leases
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.throttle.coded import changed as changed_terms
from quotaplane.wire.shard_inputs import GROUPS, pack_groups, unpack_groups
from tests.examples import examples

D = len(DIMENSIONS)
TEXTS = (
    None,
    '{"*": {"weight": 2.0}, "b1": {"floor": {"publish_bytes_per_s": 5.0}, "priority": 3}}',
    '{"b2": {"ceiling": {"publish_messages_per_s": 7.0}}}',
    "broken",
    '{"b1": {"weight": -1}}',
)

THROTTLES = (None, '{"*": {"mode": "hard"}}', '{"*": {"samples": 5}}', "broken", "{}")


def change(name: str, version: int, *, deleted: bool = False, **given: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(GROUPS.names)
    row |= {"group": name, "group_id": group_id(name), "deleted": deleted, "version": version}
    return row | given


def changes(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=GROUPS)


def groups_after(*rows: dict[str, Any]) -> Groups:
    return change_groups(ShardState(), changes(*rows)).groups


def as_rows(groups: Groups) -> dict[str, dict[str, Any]]:
    names = groups.names.to_pylist()
    found: dict[str, dict[str, Any]] = {}
    overrides = groups.overrides
    for i, name in enumerate(names):
        found[name] = {
            "id": int(groups.ids[i]),
            "quota": groups.quota[:, i].tolist(),
            "throttle": groups.throttle.column()[i].as_py(),
            "template": bool(groups.template[i]),
            "parent": names[groups.parent[i]] if groups.parent[i] >= 0 else None,
            "policy": (
                int(groups.mode[i]),
                float(groups.enforcement_percent[i]),
                float(groups.weight[i]),
                int(groups.priority[i]),
                groups.floor[:, i].tolist(),
            ),
            "brokers": {
                overrides.broker[j].as_py(): [
                    repr(x)
                    for x in (
                        overrides.weight[j],
                        overrides.priority[j],
                        *overrides.floor[:, j],
                        *overrides.ceiling[:, j],
                    )
                ]
                for j in np.flatnonzero(overrides.group == i)
            },
        }
    return found


NAMES = ("a", "a::b", "a::b::c", "a::d", "a::", "x", "x::y::z", "flat", "user=<default>")
CHANGES = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.booleans(),
            st.sampled_from(["hard", "soft", "shadow", None]),
            st.sampled_from([None, 2.0]),
            st.sampled_from(TEXTS),
            st.sampled_from(THROTTLES),
        ),
        max_size=5,
    ),
    max_size=6,
)


@pytest.mark.nightly
@given(CHANGES)
@examples(2)
def test_changes_one_by_one_end_where_all_at_once_does(
    batches: list[list[tuple[str, bool, str | None, float | None, str | None, str | None]]],
) -> None:
    state, version, latest = ShardState(), 0, dict[str, dict[str, Any]]()
    for batch in batches:
        rows = []
        for name, deleted, mode, weight, brokers, throttle in batch:
            version += 1
            texts = {"brokers": brokers, "throttle": throttle}
            given_ = {} if deleted else {"mode": mode, "weight": weight, **texts}
            rows.append(change(name, version, deleted=deleted, **given_))
            latest[name] = rows[-1]
        before = as_rows(state.groups)
        changed_groups = change_groups(state, changes(*rows))
        groups, changed = changed_groups.groups, changed_groups.changed
        after = as_rows(groups)
        fresh = groups_after(*latest.values())
        assert after == as_rows(fresh)
        assert (np.diff(groups.ids) > 0).all()
        assert (np.diff(groups.overrides.group) >= 0).all()
        texts_there = {row["throttle"] for row in after.values()}
        assert sorted(groups.throttle.texts.to_pylist()) == sorted({"", *texts_there})
        other = changed_terms(state.groups.ids, state.groups.throttle, groups.ids, groups.throttle)
        assert {n for n, c in zip(after, other.tolist(), strict=True) if c} == {
            n for n in after if n in before and before[n]["throttle"] != after[n]["throttle"]
        }
        for name, row in after.items():
            above = [a for a in ancestors(name) if a in after]
            assert row["parent"] == (above[0] if above else None)
        names = groups.names.to_pylist()
        expected = {n for n, *_ in batch if n in after}
        expected |= {n for n in after if n in before and after[n]["parent"] != before[n]["parent"]}
        expected |= {row["parent"] for n, row in before.items() if n not in after} & set(after)
        assert {n for n, c in zip(names, changed.tolist(), strict=True) if c} == expected
        state = ShardState(groups=groups)
        again = load(dump(state))
        assert as_rows(again.groups) == after
        assert dump(again) == dump(state)
        for name, array in vars(state.groups).items():
            if isinstance(array, np.ndarray):
                assert getattr(again.groups, name).dtype == array.dtype, name


def test_what_is_given_and_what_is_not() -> None:
    floors = dict(zip(FLOOR_COLUMNS, (1.0, 2.0, 3.0), strict=False))
    groups = groups_after(
        change("a", 1, mode="shadow", enforcement_percent=12.5, weight=3.0, priority=-7, **floors),
        change("b", 1),
    )
    found = as_rows(groups)
    assert found["a"]["policy"] == (Mode.SHADOW, 12.5, 3.0, -7, [1.0, 2.0, 3.0, *[0.0] * (D - 3)])
    assert found["b"]["policy"] == (Mode.HARD, 100.0, 1.0, 0, [0.0] * D)
    assert groups.mode.dtype == np.uint8


def test_terms_are_kept_in_their_one_form_and_cost_nothing_where_nobody_has_any() -> None:
    said = '{"publish_bytes": {"samples": 2,"law":"token_bucket"}, "*": {"mode": "soft"}}'
    groups = groups_after(change("a", 1, throttle=said), change("b", 1), change("c", 1))
    assert as_rows(groups)["a"]["throttle"] == '{"publish_bytes": {"samples": 2}}'
    assert {as_rows(groups)[name]["throttle"] for name in "bc"} == {""}
    assert "throttle" in group_columns(groups)
    plain = groups_after(change("a", 1, throttle="{}"), change("b", 1))
    assert "throttle" not in group_columns(plain)
    again = load(dump(ShardState(groups=plain)))
    assert not again.groups.throttle.any_given


def test_what_others_wrote_into_the_table_is_taken_for_something_allowed() -> None:
    wrong = {
        "mode": "loud",
        "enforcement_percent": 900.0,
        "weight": 0.0,
        "priority": -(1 << 60),
        FLOOR_COLUMNS[0]: -5.0,
        FLOOR_COLUMNS[1]: float("inf"),
        FLOOR_COLUMNS[2]: float("nan"),
        RATE_COLUMNS[0]: -5.0,
        RATE_COLUMNS[1]: float("nan"),
        "brokers": "[1]",
        "throttle": '{"*": {"law": "leaky"}}',
    }
    found = as_rows(groups_after(change("a", 1, **wrong)))["a"]
    assert found["policy"] == (Mode.HARD, 100.0, 1e-9, -100, [0.0, 1e18, *[0.0] * (D - 2)])
    assert found["quota"] == [0.0, *[np.inf] * (D - 1)]
    assert (found["brokers"], found["throttle"]) == ({}, "")


@pytest.mark.parametrize("turn", [1, -1])
def test_a_commit_that_deletes_and_puts_a_group_has_put_it(turn: int) -> None:
    rows = [change("a", 5, deleted=True), change("a", 5, publish_messages_per_s=3.0)]
    groups = groups_after(*rows[::turn])
    assert groups.quota[0].tolist() == [3.0]


def test_events_without_policy_columns_are_taken_in() -> None:
    plain = changes(change("a", 1, weight=9.0)).drop_columns(list(POLICY_COLUMNS))
    assert change_groups(ShardState(), plain).groups.weight.tolist() == [1.0]
    ((_, payload),) = pack_groups(plain, 1)
    assert unpack_groups([payload]).schema == GROUPS
    assert change_groups(ShardState(), unpack_groups([payload])).groups.weight.tolist() == [1.0]


def test_rows_follow_their_groups_and_those_of_deleted_groups_are_lost() -> None:
    names = ["a", "b", "c"]
    groups = groups_after(*(change(name, 1) for name in names))
    rows = fresh_leases(np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3))
    state = ShardState(groups=groups, leases=rows)
    gone = groups.names[1].as_py()
    found = change_groups(state, changes(change(gone, 2, deleted=True)))
    after, kept, changed, lost = found.groups, found.leases, found.changed, found.lost
    assert after.names.to_pylist() == [n for n in groups.names.to_pylist() if n != gone]
    assert (kept.group.tolist(), lost.group.tolist()) == ([0, 0, 1, 1], [1, 1])
    assert not changed.any()


def test_equal_texts_are_read_once_and_spread_to_all() -> None:
    text = json.dumps({f"b{i}": {"weight": i} for i in range(1, 4)})
    groups = groups_after(*(change(f"g{i}", 1, brokers=text if i % 2 else None) for i in range(6)))
    count = np.bincount(groups.overrides.group, minlength=6)
    odd = [int(name.as_py()[1:]) % 2 for name in groups.names]
    assert count.tolist() == [3 * o for o in odd]
    assert groups.overrides.weight.tolist() == [1.0, 2.0, 3.0] * 3


@pytest.mark.parametrize("found", ["7", "another"])
def test_a_state_of_another_format_is_refused(found: str) -> None:
    first, *others = unpack(dump(ShardState()))
    other = first.replace_schema_metadata({**first.schema.metadata, b"format": found.encode()})
    with pytest.raises(
        HistoryError, match=f"has format {found}, this version reads 1; start a new"
    ):
        load(pack(other, *others))
