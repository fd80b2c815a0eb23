"""A publish quota of -1 in the cluster is never taken for "unlimited" where that may be wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.errors import HistoryError
from quotaplane.registry import table as storage
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import delete_groups, get_group, put_groups
from tests.histories import make_history
from tests.unit.cluster_cases import Answer
from tests.unit.follower_cases import BY, Rig
from tests.unit.groups_cases import quota, rates


def hide(rig: Rig, *groups: str) -> None:
    """What the enforcer does."""
    for group in groups:
        rig.cluster.put(group, publishRateInMsgs=-1, publishRateInBytes=-1)


def test_a_group_that_was_deleted_and_made_again_has_its_last_quota(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, publishRateInBytes=1000, dispatchRateInMsgs=9)
    rig.sync(
        lambda: None,
        lambda: hide(rig, "rg"),
        lambda: rig.cluster.groups.pop("rg"),
        lambda: rig.cluster.put("rg", dispatchRateInMsgs=8),
    )
    # Dispatch quotas are never taken over: what the cluster says there holds.
    assert rig.table() == {"rg": [100, 1000, 8, None]}
    (told,) = rig.told
    assert told.startswith("resource groups 'rg': new to the table")
    assert "they got the last ones in the table's history" in told


def test_only_what_the_cluster_does_not_tell_comes_out_of_the_history(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, publishRateInBytes=1000)
    rig.sync(
        lambda: None,
        lambda: rig.cluster.groups.pop("rg"),
        lambda: rig.cluster.put("rg", publishRateInMsgs=50),
    )
    assert rig.table() == {"rg": [50, 1000, None, None]}


def test_a_row_that_somebody_deletes_comes_back_with_its_quota(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100)
    rig.sync(
        lambda: None, lambda: hide(rig, "rg"), lambda: delete_groups(rig.history, ["rg"], "ann")
    )
    assert rig.table() == {"rg": [100, None, None, None]}


def test_a_row_that_is_deleted_while_the_follower_puts_is_not_made_without_its_quota(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower changes the dispatch quota of a row that it read a moment ago."""
    deleted: list[str] = []
    real = storage._rows_after

    def overtaken(*args: object) -> object:
        if not deleted:
            deleted.append("rg")
            delete_groups(rig.history, deleted, "ann")
        return real(*args)  # type: ignore[arg-type]

    def change() -> None:
        rig.cluster.put("rg", publishRateInMsgs=-1, dispatchRateInMsgs=9)
        monkeypatch.setattr(storage, "_rows_after", overtaken)

    rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInMsgs=5)
    # The next poll puts it: what was read in the cluster may be older than the deletion.
    rig.sync(lambda: None, change, lambda: None)
    assert deleted
    assert rig.table() == {"rg": [100, None, 9, None]}
    assert all(c["to"] is None or rates(c["to"])[0] == 100 for c in group_changes(rig.history))


def test_a_quota_that_somebody_puts_while_the_follower_puts_is_not_overwritten(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100)
    rig.sync(lambda: None, lambda: rig.cluster.groups.pop("rg"))
    hide(rig, "rg")
    put: list[str] = []
    real = storage._rows_after

    def overtaken(*args: object) -> object:
        if not put:
            put.append("rg")
            put_groups(rig.history, ["rg"], quota(30), "ann")
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(storage, "_rows_after", overtaken)
    rig.sync()
    assert put
    assert rig.table() == {"rg": [30, None, None, None]}
    assert get_group(rig.history, "rg")["updated_by"] == "ann"


def test_while_the_history_cannot_be_read_only_what_depends_on_it_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, publishRateInBytes=1000)
    rig.sync(lambda: None, lambda: rig.cluster.groups.pop("rg"))
    # The bytes are in the history only.
    rig.cluster.put("rg", publishRateInMsgs=50)
    rig.cluster.put("new", publishRateInMsgs=7, publishRateInBytes=8)
    tables = []

    def unreadable(*_: object) -> object:
        raise HistoryError("a file of the change feed is gone")

    def mend() -> None:
        tables.append(rig.table())
        monkeypatch.undo()

    monkeypatch.setattr("quotaplane.group_sync.hidden_quotas.group_changes", unreadable)
    failures = rig.run(lambda: None, mend)
    assert [[str(error) for error in each] for each in failures] == [
        ["a file of the change feed is gone"],
        [],
    ]
    assert tables == [{"new": [7, 8, None, None]}]
    assert rig.table()["rg"] == [50, 1000, None, None]


class TestNobodyKnows:
    """The history was deleted and made anew: the table and its changes are empty."""

    @pytest.fixture(autouse=True)
    def lost(self, rig: Rig) -> None:
        rig.cluster.put("rg", publishRateInMsgs=100)
        rig.cluster.put("told", publishRateInMsgs=100)
        rig.sync(lambda: None, lambda: hide(rig, "rg"))
        shutil.rmtree(Path(rig.history.path))
        make_history(rig.history)

    def test_the_group_gets_no_row_and_an_alarm_says_so(self, rig: Rig) -> None:
        rig.cluster.put("rg", dispatchRateInMsgs=5)
        rig.sync(lambda: None, lambda: None)
        assert rig.table() == {"told": [100, None, None, None]}
        (alarm,) = rig.told
        assert alarm.startswith("resource groups 'rg': the cluster has no publish quota of them")
        assert "rates in force stay as they are" in alarm
        assert "pulsar-admin resourcegroups update -mp" in alarm
        assert "quotaplane groups put GROUP --publish-messages-per-s" in alarm

    def test_the_alarm_is_repeated_until_the_group_has_a_quota(self, rig: Rig) -> None:
        rig.poll_interval_s = 20.0
        rig.sync(*[lambda: None] * 7)
        assert len(rig.told) == 3
        assert len(set(rig.told)) == 1
        rig.told.clear()
        rig.sync(
            lambda: None, lambda: put_groups(rig.history, ["rg"], quota(70), "ann"), *[str] * 6
        )
        assert len(rig.told) == 1
        assert rig.table()["rg"] == [70, None, None, None]

    def test_a_number_in_the_cluster_is_its_quota(self, rig: Rig) -> None:
        rig.sync(lambda: None, lambda: rig.cluster.put("rg", publishRateInBytes=7))
        assert rig.table()["rg"] == [None, 7, None, None]
        assert "a publish quota was given in messages or in bytes only" in rig.told[1]
        assert len(rig.told) == 2

    def test_whoever_means_unlimited_says_so_in_the_table(self, rig: Rig) -> None:
        free = quota(np.inf, np.inf)
        rig.sync(lambda: None, lambda: put_groups(rig.history, ["rg"], free, "ann"), *[str] * 3)
        assert rig.table()["rg"] == [None, None, None, None]
        assert len(rig.told) == 1

    def test_a_group_that_is_gone_needs_none(self, rig: Rig) -> None:
        rig.poll_interval_s = 60.0
        rig.sync(lambda: None, lambda: rig.cluster.groups.pop("rg"), lambda: None)
        assert len(rig.told) == 1

    def test_without_take_over_the_cluster_is_taken_at_its_word(self, rig: Rig) -> None:
        rig.take_over = False
        rig.sync()
        assert rig.table()["rg"] == [None, None, None, None]
        assert rig.told == []


class TestTakeOverSwitchedOff:
    @pytest.fixture(autouse=True)
    def hidden(self, rig: Rig) -> None:
        rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInMsgs=9)
        rig.cluster.put("free", publishRateInMsgs=100)
        rig.sync(lambda: None, lambda: hide(rig, "rg"))
        rig.take_over = False

    def test_what_was_not_handed_back_is_kept_and_told(self, rig: Rig) -> None:
        rig.sync(lambda: None, lambda: rig.cluster.put("rg", dispatchRateInMsgs=-1), lambda: None)
        assert rig.table()["rg"] == [100, None, None, None]
        (alarm,) = rig.told
        assert alarm.startswith("resource groups 'rg': the cluster has no publish quota of them")
        assert "enforce.on_exit: remove" in alarm

    def test_once_it_is_in_the_cluster_again_the_cluster_is_taken_at_its_word(
        self, rig: Rig
    ) -> None:
        rig.sync(
            lambda: None,
            lambda: rig.cluster.put("rg", publishRateInMsgs=100),
            lambda: rig.cluster.put("rg", publishRateInMsgs=-1),
        )
        assert rig.table()["rg"] == [None, None, 9, None]
        assert len(rig.told) == 1

    def test_a_quota_that_was_never_taken_over_is_followed_at_once(self, rig: Rig) -> None:
        rig.sync(lambda: None, lambda: rig.cluster.put("free", publishRateInMsgs=-1))
        assert rig.table()["free"] == [None] * 4


def test_what_was_handed_back_rounded_up_is_no_change(rig: Rig) -> None:
    put_groups(rig.history, ["rg"], quota(99.5, 0.4), "ann")
    rig.cluster.put("rg", publishRateInMsgs=100, publishRateInBytes=1)
    version = rig.version()
    rig.sync(lambda: None, lambda: None)
    assert rig.version() == version
    rig.sync(lambda: rig.cluster.put("rg", publishRateInMsgs=101))
    assert rig.table() == {"rg": [101, 0.4, None, None]}


def test_a_quota_of_zero_is_none_and_is_told(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInMsgs=5)
    rig.sync(
        lambda: None,
        lambda: rig.cluster.put("rg", publishRateInMsgs=0, dispatchRateInMsgs=0),
        lambda: None,
        lambda: rig.cluster.put("rg", publishRateInMsgs=-1, dispatchRateInMsgs=-1),
    )
    assert rig.table() == {"rg": [100, None, None, None]}
    (told,) = rig.told
    assert told.startswith("resource groups 'rg': have a quota of 0")


def test_an_answer_without_any_rate_changes_nothing(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInMsgs=5)
    rig.sync()
    rig.cluster.answers["GET resourcegroups/rg"] = Answer(200, {})
    ((error,),) = rig.run(lambda: None)
    assert "the answer has no rates" in str(error)
    assert rig.table() == {"rg": [100, None, 5, None]}


def test_two_clusters_that_write_the_same_groups_are_told(rig: Rig) -> None:
    put_groups(rig.history, ["rg"], quota(1), "pulsar:green")
    rig.cluster.put("rg", publishRateInMsgs=2)
    rig.sync(
        lambda: None, lambda: put_groups(rig.history, ["rg"], quota(1), "pulsar:green"), *[str] * 2
    )
    (told,) = rig.told
    assert told.startswith(f"pulsar:green writes quotas into this history, too, as {BY} does")


def test_policies_survive_what_the_cluster_does_not_tell(rig: Rig) -> None:
    policy = pa.table({"weight": [3.0]})
    put_groups(rig.history, ["rg"], quota(5), "ann", policy=policy)
    hide(rig, "rg")
    rig.sync()
    assert get_group(rig.history, "rg")["weight"] == 3.0
    assert rig.told == []
