"""Tests of ids, shards and parents of group names: a whole tree has the same shard."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.groups.hierarchy import ancestors, nested, parents_of, roots_of
from quotaplane.groups.ids import ids_of, ids_of_column
from quotaplane.model import DIMENSIONS, group_id, shard_of
from quotaplane.quota.groups import plain_groups, whole_trees

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("::".join)
ANY_NAMES = PATHS | st.text(":a", min_size=1, max_size=8) | st.text(min_size=1, max_size=20)
SHARDS = st.sampled_from([1, 2, 3, 7, 64, 4096])


@given(ANY_NAMES, SHARDS)
def test_a_group_is_in_the_shard_of_its_root_by_name_or_by_id(name: str, shards: int) -> None:
    number = group_id(name)
    assert 0 <= number < 1 << 63
    assert shard_of(number, shards) == shard_of(group_id(name.partition("::")[0]), shards)
    assert shard_of(np.array([number]), shards).tolist() == [shard_of(number, shards)]


@given(st.text(max_size=20).filter(lambda name: "::" not in name))
def test_a_name_that_is_no_path_has_the_id_it_always_had(name: str) -> None:
    digest = hashlib.sha256(name.encode()).digest()
    assert group_id(name) == int.from_bytes(digest[:8], "big") >> 1


def test_a_path_has_its_own_lower_bits() -> None:
    names = [f"acme::{i}" for i in range(10_000)] + ["acme"]
    ids = ids_of(names)
    assert ids.tolist() == list(map(group_id, names)) == ids_of_column(pa.array(names)).tolist()
    assert len(np.unique(ids)) == len(names)
    assert len(np.unique(ids >> 40)) == 1


def test_roots_spread_evenly_over_the_shards() -> None:
    count = np.bincount(shard_of(ids_of(f"tenant-{i}" for i in range(40_000)), 4))
    assert abs(count - 10_000).max() < 400


@given(st.lists(ANY_NAMES, unique=True, max_size=12))
def test_the_parent_is_the_nearest_group_up_the_path_that_exists(names: list[str]) -> None:
    column = pa.array(names, pa.string())
    expected = [next((names.index(a) for a in ancestors(n) if a in names), -1) for n in names]
    parent = parents_of(column)
    assert parent.tolist() == expected
    assert nested(column).tolist() == ["::" in name for name in names]
    which = np.arange(len(names)) % 2 == 0
    assert parents_of(column, which).tolist() == np.where(which, expected, -1).tolist()
    for name, index in zip(names, parent.tolist(), strict=True):
        assert index < 0 or group_id(names[index]) >> 40 == group_id(name) >> 40


@given(st.lists(ANY_NAMES, unique=True, max_size=12), st.data())
def test_a_tree_is_touched_as_a_whole(names: list[str], data: st.DataObject) -> None:
    parent = parents_of(pa.array(names, pa.string()))
    n = len(names)
    touched = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    groups = plain_groups(np.arange(n), pa.array(names, pa.string()), np.ones((len(DIMENSIONS), n)))
    groups.parent[:] = parent

    def root(index: int) -> int:
        return index if parent[index] < 0 else root(int(parent[index]))

    roots = [root(i) for i in range(n)]
    assert roots_of(parent).tolist() == roots
    hit = {roots[i] for i in np.flatnonzero(touched)}
    assert whole_trees(groups, touched).tolist() == [r in hit for r in roots]
