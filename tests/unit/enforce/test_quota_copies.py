"""The second copy of a quota that was taken over: in the cluster, as a group of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quotaplane.registry.table import delete_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.enforce.enforce_cluster import FakePulsar
from tests.unit.enforce.test_enforce_takeover import record, take
from tests.unit.group_sync.follower_cases import Rig
from tests.unit.pulsar_admin.cluster_cases import Answer

COPY = "g.taken-over"


@pytest.fixture
def cluster(cluster: FakePulsar) -> FakePulsar:
    cluster.put("g", publishRateInMsgs=300, publishRateInBytes=4000, dispatchRateInMsgs=9)
    return cluster


@pytest.fixture
def recorded(cluster: FakePulsar) -> None:
    """The table has the cluster's quota."""
    record(cluster.history, "g", messages=300.0, of_bytes=4000.0)


@pytest.fixture
def rig(cluster: FakePulsar, tmp_path: Path) -> Rig:
    return Rig(cluster, History(path=str(tmp_path / "history")))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    "answer", [Answer(500, {"reason": "upset"}), Answer(204)], ids=["refused", "not kept"]
)
async def test_without_a_copy_nothing_is_taken_over(cluster: FakePulsar, answer: Answer) -> None:
    cluster.answers[f"PUT resourcegroups/{COPY}"] = answer
    assert await take(cluster, "g", times=3) == 0
    assert cluster.groups["g"]["publishRateInMsgs"] == 300


def take_over_with(rig: Rig, cluster: FakePulsar) -> None:
    """As the enforcer leaves it."""
    rig.sync()
    cluster.put(COPY, publishRateInMsgs=300, publishRateInBytes=4000)
    cluster.put("g", publishRateInMsgs=-1, publishRateInBytes=-1)
    rig.sync()


@pytest.mark.parametrize("take_over", [True, False])
@pytest.mark.parametrize("lost", ["the row", "the table", "the history"])
def test_a_lost_quota_is_revived(rig: Rig, cluster: FakePulsar, lost: str, take_over: bool) -> None:
    take_over_with(rig, cluster)
    assert rig.table() == {"g": [300, 4000, 9, None]}, "the copy is no group"
    path = Path(rig.history.path)
    if lost == "the row":
        delete_groups(rig.history, ["g"], "ann")
    else:
        shutil.rmtree(path if lost == "the history" else path / "resource_groups")
        make_history(rig.history)
    assert rig.table() == {}
    rig.take_over = take_over
    rig.sync()
    assert rig.table() == {"g": [300, 4000, 9, None]}
    assert "they got those of their copies there (GROUP.taken-over)" in rig.told[-1]


def test_a_copy_that_cant_be_read_opens_nothing(rig: Rig, cluster: FakePulsar) -> None:
    take_over_with(rig, cluster)
    shutil.rmtree(rig.history.path)
    make_history(rig.history)
    cluster.answers[f"GET resourcegroups/{COPY}"] = Answer(500, {"reason": "upset"})
    (failures,) = rig.run(lambda: None)
    assert failures
    assert rig.table() == {}
    del cluster.answers[f"GET resourcegroups/{COPY}"]
    rig.sync()
    assert rig.table() == {"g": [300, 4000, 9, None]}


def test_the_copy_of_a_group_that_was_deleted_goes_with_it(rig: Rig, cluster: FakePulsar) -> None:
    take_over_with(rig, cluster)
    del cluster.groups["g"]
    rig.sync()
    assert (rig.table(), cluster.groups) == ({}, {})


@pytest.mark.parametrize("missing_in", ["both", "the cluster", "the table"])
def test_a_copy_goes_when_both_lost_it(rig: Rig, cluster: FakePulsar, missing_in: str) -> None:
    """As ``groups import`` and the server make groups; the sync does not delete their rows."""
    record(rig.history, "g", messages=300.0, of_bytes=4000.0)
    take_over_with(rig, cluster)
    if missing_in != "the table":
        del cluster.groups["g"]
        rig.sync()
        assert COPY in cluster.groups
    if missing_in != "the cluster":
        delete_groups(rig.history, ["g"], "ann")
        rig.sync()
    assert (COPY in cluster.groups) == (missing_in != "both")


async def test_without_the_table_a_clean_stop_hands_the_copies_back(cluster: FakePulsar) -> None:
    record(cluster.history, "g", messages=300.0)
    cluster.put("g", publishRateInMsgs=-1, publishRateInBytes=-1)
    cluster.put(COPY, publishRateInMsgs=300)
    cluster.add("a", used=500.0)
    cluster.limit(300.0)
    async with cluster.enforcing(take_over=True, on_exit="remove") as running:
        await running.until(lambda: cluster.published() == {"a": 300})
        shutil.rmtree(Path(cluster.history.path, "resource_groups"))
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert COPY not in cluster.groups
    assert not cluster.rates
