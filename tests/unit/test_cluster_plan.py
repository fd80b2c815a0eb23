"""What is changed in our table, given a cluster's groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cluster.plan import absent, created_by, puts, unfit
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import BASIC, RATE_COLUMNS

INF = np.inf
NAN = np.nan
NOBODY = pa.array([], pa.string())


def table(**groups: list[float | None]) -> pa.Table:
    """Rows with these rates, of Ann."""
    rows = [
        {"group": group, **dict(zip(RATE_COLUMNS, rates, strict=False)), "updated_by": "ann"}
        for group, rates in groups.items()
    ]
    schema = pa.schema([field.with_nullable(True) for field in RESOURCE_GROUPS.schema])
    return pa.Table.from_pylist(rows, schema)


def put(cluster: list[float], row: list[float | None] | None, *, take_over: bool) -> object:
    """What is put of one group, as a list; None if it is left as it is."""
    rows = table() if row is None else table(g=row)
    found = puts(["g"], np.array([cluster]), rows, take_over=take_over)
    assert found.quotas.shape == (len(found.groups), len(RATE_COLUMNS))
    assert found.groups in ([], ["g"])
    return found.quotas[0].tolist() if found.groups else None


def the_same(found: object, wanted: list[float] | None) -> bool:
    if wanted is None or not isinstance(found, list):
        return found is wanted
    return bool(np.array_equal(found, [*wanted, NAN, NAN, NAN], equal_nan=True))


@pytest.mark.parametrize(
    ("cluster", "row", "plain", "taken_over"),
    [
        # a new group
        ([100, INF, 5, INF], None, [100, INF, 5, INF], [100, NAN, 5, INF]),
        ([INF, INF, INF, INF], None, [INF, INF, INF, INF], [NAN, NAN, INF, INF]),
        # unchanged
        ([100, INF, INF, 7], [100, None, None, 7], None, None),
        ([INF, INF, INF, INF], [None] * 4, None, None),
        ([0, 0, 0, 0], [0, 0, 0, 0], None, None),
        # a number is news
        ([50, 60, INF, INF], [100, 60], [50, 60, INF, INF], [50, 60, INF, INF]),
        ([0, INF, INF, INF], [100], [0, INF, INF, INF], [0, NAN, INF, INF]),
        ([100, INF, INF, INF], [None], [100, INF, INF, INF], [100, NAN, INF, INF]),
        # what the enforcer hid; in dispatch it hides nothing
        ([INF, INF, INF, INF], [100, 200], [INF, INF, INF, INF], None),
        ([INF, INF, INF, INF], [100, 200, 5, 6], [INF, INF, INF, INF], [NAN, NAN, INF, INF]),
        # pulsar-admin merged a number with what was hidden
        ([200, INF, INF, INF], [100, 1000], [200, INF, INF, INF], [200, NAN, INF, INF]),
        ([INF, 500, INF, INF], [100, 1000], [INF, 500, INF, INF], [NAN, 500, INF, INF]),
        # only ours: totals and mutations
        ([100, INF, INF, INF], [100, None, None, None, 1, 2, 3], None, None),
    ],
)
def test_the_clusters_quota_holds(
    cluster: list[float],
    row: list[float | None] | None,
    plain: list[float] | None,
    taken_over: list[float] | None,
) -> None:
    assert the_same(put(cluster, row, take_over=False), plain)
    assert the_same(put(cluster, row, take_over=True), taken_over)


RATE = st.sampled_from([0.0, 1.0, 2.0, INF])


@given(
    cluster=st.lists(st.tuples(*[RATE] * BASIC), min_size=1, max_size=5),
    held=st.lists(st.none() | st.tuples(*[RATE] * BASIC), min_size=5, max_size=5),
    take_over=st.booleans(),
)
def test_after_a_put_nothing_is_left_to_do(
    cluster: list[tuple[float, ...]],
    held: list[tuple[float, ...] | None],
    take_over: bool,
) -> None:
    names = [f"g{i}" for i in range(len(cluster))]
    rates = np.array(cluster)
    before = {
        name: [None if rate == INF else rate for rate in row]
        for name, row in zip(names, held, strict=False)
        if row is not None
    }
    found = puts(names, rates, table(**before), take_over=take_over)
    after = dict(before)
    for name, quotas in zip(found.groups, found.quotas[:, :BASIC].tolist(), strict=True):
        old = before.get(name, [None] * BASIC)
        after[name] = [
            o if np.isnan(q) else None if q == INF else q for q, o in zip(quotas, old, strict=True)
        ]
    assert set(after) >= set(names)
    assert puts(names, rates, table(**after), take_over=take_over).groups == []
    for name, row in zip(names, cluster, strict=True):
        for place, rate in enumerate(row):
            hidden = take_over and place < 2 and rate == INF
            expected = before.get(name, [None] * BASIC)[place] if hidden else rate
            assert (INF if after[name][place] is None else after[name][place]) == (
                INF if expected is None else expected
            )


def test_many_groups_at_once() -> None:
    rows = table(a=[1], b=[2], other=[3])
    rates = np.full((4, BASIC), INF)
    rates[:, 0] = [9, 2, 7, 1]
    found = puts(["b", "b2", "c", "a"], rates, rows, take_over=False)
    assert found.groups == ["b", "b2", "c"]
    assert found.quotas[:, 0].tolist() == [9, 2, 7]
    assert puts([], np.empty((0, BASIC)), rows, take_over=False).groups == []


def test_who_is_absent_is_neither_in_the_cluster_nor_known_to_be_others() -> None:
    rows = table(a=[1], b=[2], c=[3])
    assert absent(["b", "x"], rows, NOBODY) == ["a", "c"]
    assert absent(["b"], rows, pa.array(["c"])) == ["a"]
    assert absent([], table(), NOBODY) == []


def test_a_group_is_whose_who_created_it_last() -> None:
    def change(group: str, by: str, old: object, new: object) -> dict[str, object]:
        return {"group": group, "by": by, "from": old, "to": new}

    changes = [
        change("ours", "us", None, {}),
        change("ours", "ann", {}, {}),
        change("anns", "ann", None, {}),
        change("anns", "us", {}, {}),
        change("again", "us", None, {}),
        change("again", "us", {}, None),
        change("again", "ann", None, {}),
        change("gone", "us", None, {}),
        change("gone", "us", {}, None),
    ]
    rows = table(ours=[1], anns=[1], again=[1], old=[1])
    groups = ["again", "anns", "old", "ours"]
    assert created_by("us", groups, rows, changes) == ["ours"]
    # the log does not reach back to whoever made ``old``: the row says who wrote it
    assert created_by("ann", groups, rows, changes) == ["again", "anns", "old"]


def test_names_that_no_table_takes() -> None:
    found = unfit(["rg", "a::b", "\x01x", "a::", "x" * 1025, "user=alice", "user=%", "name with ü"])
    assert list(found) == ["\x01x", "a::", "x" * 1025, "user=%"]
    assert all(line.endswith("; it is left out") for line in found.values())
