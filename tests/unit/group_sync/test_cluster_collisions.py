"""Names with one id in a cluster: one of them is followed, and so are all other groups."""

from __future__ import annotations

from typing import Any

import pytest

from quotaplane.pulsar_admin.bulk import READS_PER_S
from quotaplane.registry.table import put_groups
from tests.unit.group_sync.follower_cases import Rig
from tests.unit.registry.groups_cases import quota
from tests.unit.wire.test_collisions import ONE, OTHER


def test_the_one_in_the_table_holds_it_and_all_other_groups_are_followed(rig: Rig) -> None:
    poll = rig.follower()
    for name in (ONE, "plain", "gone"):
        rig.cluster.put(name, publishRateInMsgs=10)
    assert not poll()
    for name, rate in {OTHER: 1, "new": 7, "plain": 5, ONE: 20}.items():
        rig.cluster.put(name, publishRateInMsgs=rate)
    del rig.cluster.groups["gone"]
    assert not poll(3)
    assert {group: row[0] for group, row in rig.table().items()} == {ONE: 20, "new": 7, "plain": 5}
    (told,) = rig.told
    assert told.startswith(f"left out groups: group {OTHER!r}: has the same id as {ONE!r}")


def test_the_other_one_is_put_once_the_holder_is_gone(rig: Rig) -> None:
    poll = rig.follower()
    rig.cluster.put(ONE, publishRateInMsgs=1)
    assert not poll()
    rig.cluster.put(OTHER, publishRateInMsgs=2)
    assert not poll()
    del rig.cluster.groups[ONE]
    assert not poll(3)
    assert rig.table() == {OTHER: [2, None, None, None]}


def test_one_that_is_put_meanwhile_holds_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def after_ann(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        put_groups(rig.history, [ONE], quota(3), "ann")
        return put_groups(*args, **kwargs)

    monkeypatch.setattr("quotaplane.group_sync.sync.put_groups", after_ann)
    rig.cluster.put(OTHER, publishRateInMsgs=1)
    rig.cluster.put("plain", publishRateInMsgs=1)
    rig.sync()
    assert rig.table() == {ONE: [3, None, None, None], "plain": [1, None, None, None]}


def test_the_one_that_is_left_out_takes_no_turn_of_the_others(rig: Rig) -> None:
    rig.poll_interval_s = 1 / READS_PER_S
    for name in (ONE, OTHER, "a"):
        rig.cluster.put(name, publishRateInMsgs=1)
    rig.sync(lambda: None, rig.cluster.asked.clear, *[lambda: None] * 3)
    read = [path for path in rig.cluster.paths() if path.startswith("resourcegroups/")]
    held = f"resourcegroups/{min(ONE, OTHER)}"
    assert sorted(read) == sorted([held, "resourcegroups/a"] * 2)
