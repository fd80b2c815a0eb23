"""The second copy of a quota that was taken over: in the cluster, as a group of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quotaplane.registry.table import delete_groups, list_groups, put_groups
from quotaplane.settings import History, Settings
from tests.histories import make_history
from tests.unit.enforce.enforce_cluster import FakePulsar, Link, enforcing, settings_for
from tests.unit.enforce.test_enforce_takeover import LATER_MS, record, take
from tests.unit.group_sync.follower_cases import BY, Rig
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.virtual_loop import run_virtually

COPY = "g.taken-over"
IN_FORCE = {"g": np.array([LATER_MS, LATER_MS])}


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    with FakePulsar() as fake:
        fake.put("g", publishRateInMsgs=300, publishRateInBytes=4000, dispatchRateInMsgs=9)
        yield fake


@pytest.fixture
def rig(cluster: FakePulsar, tmp_path: Path) -> Rig:
    return Rig(cluster, History(path=str(tmp_path / "history")))


def recorded(folder: Path, cluster: FakePulsar, messages: float = 300.0) -> Settings:
    settings = settings_for(cluster, folder)
    record(settings.history, "g", messages=messages, of_bytes=4000.0)
    return settings


def test_a_quota_is_copied_before_it_is_taken_over(cluster: FakePulsar, tmp_path: Path) -> None:
    recorded(tmp_path, cluster)
    asked = take(cluster, tmp_path, IN_FORCE, taken=1)
    assert cluster.groups["g"]["publishRateInMsgs"] == -1
    assert cluster.groups[COPY]["publishRateInMsgs"] == 300
    assert cluster.groups[COPY]["publishRateInBytes"] == 4000
    writes = [each for each in asked if each.startswith("PUT")]
    assert writes == [f"PUT resourcegroups/{COPY}", "PUT resourcegroups/g"]
    read_back = asked.index(f"PUT resourcegroups/{COPY}") + 1
    assert asked[read_back] == f"GET resourcegroups/{COPY}"


@pytest.mark.parametrize(
    "answer", [Answer(500, {"reason": "upset"}), Answer(204)], ids=["refused", "not kept"]
)
def test_without_a_copy_nothing_is_taken_over(
    cluster: FakePulsar, tmp_path: Path, answer: Answer
) -> None:
    recorded(tmp_path, cluster)
    cluster.answers[f"PUT resourcegroups/{COPY}"] = answer
    take(cluster, tmp_path, IN_FORCE, taken=0, times=3)
    assert cluster.groups["g"]["publishRateInMsgs"] == 300


def test_the_copy_follows_the_table(cluster: FakePulsar, tmp_path: Path) -> None:
    """A quota that was taken over can be changed in the table only."""
    recorded(tmp_path, cluster)
    take(cluster, tmp_path, IN_FORCE, taken=1)
    recorded(tmp_path, cluster, messages=70.0)
    take(cluster, tmp_path, IN_FORCE)
    assert cluster.groups[COPY]["publishRateInMsgs"] == 70
    # Nor does it follow to nothing: the table lost its row.
    delete_groups(settings_for(cluster, tmp_path).history, ["g"], "ann")
    take(cluster, tmp_path, IN_FORCE)
    assert cluster.groups[COPY]["publishRateInMsgs"] == 70


def test_what_an_earlier_version_took_over_is_copied(cluster: FakePulsar, tmp_path: Path) -> None:
    recorded(tmp_path, cluster)
    cluster.put("g", publishRateInMsgs=-1, publishRateInBytes=-1)
    take(cluster, tmp_path, IN_FORCE)
    assert cluster.groups[COPY]["publishRateInMsgs"] == 300


def test_a_copy_that_is_there_is_not_written_again(cluster: FakePulsar, tmp_path: Path) -> None:
    recorded(tmp_path, cluster)
    asked = take(cluster, tmp_path, IN_FORCE, times=20, taken=1)
    assert asked.count(f"PUT resourcegroups/{COPY}") == 1
    assert asked.count(f"GET resourcegroups/{COPY}") == 2


def take_over_with(rig: Rig, cluster: FakePulsar) -> None:
    """As the enforcer leaves it."""
    rig.sync()
    cluster.put(COPY, publishRateInMsgs=300, publishRateInBytes=4000)
    cluster.put("g", publishRateInMsgs=-1, publishRateInBytes=-1)
    rig.sync()


def test_a_copy_is_no_group(rig: Rig, cluster: FakePulsar) -> None:
    take_over_with(rig, cluster)
    assert rig.table() == {"g": [300, 4000, 9, None]}


@pytest.mark.parametrize("take_over", [True, False])
@pytest.mark.parametrize("lost", ["the table", "the history"])
def test_a_quota_whose_table_and_history_are_lost_comes_from_the_copy(
    rig: Rig, cluster: FakePulsar, lost: str, take_over: bool
) -> None:
    take_over_with(rig, cluster)
    path = Path(rig.history.path)
    shutil.rmtree(path if lost == "the history" else path / "resource_groups")
    make_history(rig.history)
    assert rig.table() == {}
    rig.take_over = take_over
    rig.sync()
    assert rig.table() == {"g": [300, 4000, 9, None]}
    assert "they got those of their copies there (GROUP.taken-over)" in rig.told[-1]


def test_a_row_that_somebody_deletes_comes_back_from_the_copy(
    rig: Rig, cluster: FakePulsar
) -> None:
    take_over_with(rig, cluster)
    delete_groups(rig.history, ["g"], "ann")
    rig.sync()
    assert rig.table() == {"g": [300, 4000, 9, None]}


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
def test_the_copy_of_a_group_that_an_administrator_put_goes_when_both_have_lost_it(
    rig: Rig, cluster: FakePulsar, missing_in: str
) -> None:
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


def test_everything_lost_at_once_a_new_start_has_all_quotas(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table, history and checkpoint: the groups come back from the cluster, with their quotas."""
    settings = settings_for(cluster, tmp_path, take_over=True)
    recorded(tmp_path, cluster)
    cluster.add("a", used=500.0)
    link = Link()

    async def took_over() -> None:
        async with enforcing(cluster, settings, link) as running:
            link.tell("pulsar://b0", 300.0, dispatch=9.0)
            await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == -1)

    run_virtually(took_over())
    shutil.rmtree(settings.history.path)
    rig = Rig(cluster, settings.history)
    rig.sync()
    assert rig.table() == {"g": [300, 4000, 9, None]}
    assert list_groups(settings.history)["updated_by"].to_pylist() == [BY]
    assert cluster.published() == {"a": 300}


def test_without_the_table_a_clean_stop_hands_the_copies_back(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    settings = settings_for(cluster, tmp_path, take_over=True, on_exit="remove")
    put_groups(settings.history, ["g"], np.array([[300.0, *[np.nan] * 6]]), "test")
    cluster.put("g", publishRateInMsgs=-1, publishRateInBytes=-1)
    cluster.put(COPY, publishRateInMsgs=300)
    cluster.add("a", used=500.0)
    link = Link()

    async def scene() -> None:
        async with enforcing(cluster, settings, link) as running:
            link.tell("pulsar://b0", 300.0)
            await running.until(lambda: cluster.published() == {"a": 300})
            shutil.rmtree(Path(settings.history.path, "resource_groups"))

    run_virtually(scene())
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert COPY not in cluster.groups
    assert not cluster.rates
