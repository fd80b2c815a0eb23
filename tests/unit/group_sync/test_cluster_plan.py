"""Changes of our table, given a cluster's groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.group_sync.changes import Puts, absent, created_by, puts, taken, unfit
from quotaplane.groups.pulsar_fields import NO_FIELDS
from quotaplane.model import BASIC, DIMENSIONS, RATE_COLUMNS, FloatArray
from quotaplane.pulsar_admin.resource_groups import to_cluster
from quotaplane.registry.rows_after import ROWS
from tests.unit.wire.test_collisions import ONE, OTHER

INF = np.inf
NAN = np.nan
NOBODY = pa.array([], pa.string())


def table(**groups: list[float | None]) -> pa.Table:
    """Rows with these rates, of Ann."""
    rows = [
        {"group": group, **dict(zip(RATE_COLUMNS, rates, strict=False)), "updated_by": "ann"}
        for group, rates in groups.items()
    ]
    schema = pa.schema([field.with_nullable(True) for field in ROWS])
    return pa.Table.from_pylist(rows, schema)


def planned(
    groups: list[str],
    rates: FloatArray,
    rows: pa.Table,
    copies: dict[str, list[float]] | None = None,
) -> Puts:
    known = {group: np.array(publish) for group, publish in (copies or {}).items()}
    return puts(groups, rates, dict.fromkeys(groups, NO_FIELDS), rows, known)


@pytest.mark.parametrize(
    ("cluster", "copy", "wanted"),
    [
        ([INF, INF, 5, INF], [100, 200], [100, 200, 5, INF]),
        ([INF, INF, INF, INF], [INF, 200], [INF, 200, INF, INF]),
        # What the cluster tells holds, and only that.
        ([50, INF, INF, INF], [100, 200], [50, 200, INF, INF]),
        ([50, 60, INF, INF], [100, 200], [50, 60, INF, INF]),
        ([50, INF, INF, INF], [100, INF], [50, INF, INF, INF]),
        ([INF, INF, 5, INF], [NAN, NAN], [INF, INF, 5, INF]),
    ],
)
def test_copies_of_new_groups(cluster: list[float], copy: list[float], wanted: list[float]) -> None:
    found = planned(["g"], np.array([cluster]), table(), {"g": copy})
    np.testing.assert_array_equal(found.quotas[0], [*wanted, *[NAN] * (len(DIMENSIONS) - BASIC)])
    assert found.revived == found.hidden == (["g"] if wanted[:2] != cluster[:2] else [])


RATE = st.sampled_from([0.4, 1.0, 2.0, INF])
QUOTA = st.sampled_from([0.0, 0.4, 1.0, 1.5, 2.0, INF])


@given(
    cluster=st.lists(st.tuples(*[RATE] * BASIC), min_size=1, max_size=5),
    held=st.lists(st.none() | st.tuples(*[QUOTA] * BASIC), min_size=5, max_size=5),
    copied=st.lists(st.none() | st.tuples(QUOTA, QUOTA), min_size=5, max_size=5),
)
def test_after_a_put_nothing_is_left_to_do_and_minus_one_opens_nothing(
    cluster: list[tuple[float, ...]],
    held: list[tuple[float, ...] | None],
    copied: list[tuple[float, ...] | None],
) -> None:
    names = [f"g{i}" for i in range(len(cluster))]
    rates = np.array(cluster)
    before = {
        name: [None if rate == INF else rate for rate in row]
        for name, row in zip(names, held, strict=False)
        if row is not None
    }
    copies = {name: list(row) for name, row in zip(names, copied, strict=False) if row is not None}
    found = planned(names, rates, table(**before), copies)
    after = dict(before)
    for name, row in zip(found.groups, found.quotas[:, :BASIC].tolist(), strict=True):
        old = before.get(name, [None] * BASIC)
        after[name] = [
            o if np.isnan(q) else None if q == INF else q for q, o in zip(row, old, strict=True)
        ]
    again = planned(names, rates, table(**after), copies)
    assert (again.groups, again.revived) == ([], [])
    assert again.hidden == found.hidden
    for name, row in zip(names, cluster, strict=True):
        for place, rate in enumerate(row):
            has = INF if after[name][place] is None else after[name][place]
            had = before.get(name, [INF] * BASIC)[place]
            had = INF if had is None else had
            if place < 2 and rate == INF:
                assert has == (had if name in before else copies.get(name, [INF] * 2)[place])
            elif place < 2 and rate == to_cluster(np.array([had, had]))[place]:
                assert has == had
            else:
                assert has == rate


@given(publish=st.lists(st.floats(0, 1e18), min_size=2, max_size=2))
def test_what_is_given_back_is_whole_and_never_unlimited(publish: list[float]) -> None:
    given = to_cluster(np.array(publish))
    assert (given >= 1).all()
    assert (given == np.floor(given)).all()
    assert given[0] <= 2**31 - 1
    assert given[1] <= 2**63 - 1
    assert given[1] >= publish[1]
    # Read again it is no change.
    rows = table(g=list(publish))
    rates = np.array([[*given, INF, INF]])
    assert planned(["g"], rates, rows).groups == []


def change(group: str, by: str, old: object, new: object) -> dict[str, object]:
    return {"group": group, "by": by, "from": old, "to": new}


def test_who_is_absent_is_neither_in_the_cluster_nor_known_to_be_others() -> None:
    rows = table(a=[1], b=[2], c=[3])
    assert absent(["b", "x"], rows, NOBODY) == ["a", "c"]
    assert absent(["b"], rows, pa.array(["c"])) == ["a"]
    assert absent([], table(), NOBODY) == []


def test_a_group_is_whose_who_created_it_last() -> None:
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


@pytest.mark.parametrize(
    ("listed", "defined", "left_out"),
    [
        ([ONE, OTHER], [], {ONE: OTHER}),  # OTHER is the first by name
        ([OTHER, "a", ONE], ["b"], {ONE: OTHER}),
        ([ONE, OTHER], [ONE], {OTHER: ONE}),
        ([OTHER], [ONE], {OTHER: ONE}),
        ([ONE], [ONE], {}),
        ([ONE, OTHER], [ONE, OTHER], {}),  # somebody else put both: nothing is put here
        ([ONE], [], {}),
        ([], [ONE, OTHER], {}),
        ([], [], {}),
    ],
)
def test_of_names_with_one_id_the_one_in_the_table_holds_it_and_then_the_first(
    listed: list[str], defined: list[str], left_out: dict[str, str]
) -> None:
    rows = table(**{group: [1] for group in sorted(defined)})
    found = taken(listed, rows)
    assert set(found) == set(left_out)
    for group, holder in left_out.items():
        assert f"{group!r}: has the same id as {holder!r}" in found[group]
        assert "left out" in found[group]
