"""Our table follows a cluster: what is read, what is written, and how failures are reported."""

from __future__ import annotations

import threading
import time
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from quotaplane.errors import ClusterError, HistoryError
from quotaplane.group_sync.runner import following
from quotaplane.pulsar_admin.bulk import READS_PER_S
from quotaplane.pulsar_admin.rest import RefusedError
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import delete_groups, get_group, put_groups
from quotaplane.settings import History, Reports
from tests.unit.group_sync.follower_cases import BY, Rig
from tests.unit.pulsar_admin.cluster_cases import Answer, Paced
from tests.unit.registry.groups_cases import quota, rates

pytestmark = pytest.mark.slow


def test_groups_are_created_changed_and_deleted(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInBytes=7)
    rig.cluster.put("free", publishRateInBytes=9)
    rig.sync(
        lambda: None,
        lambda: rig.cluster.put("rg", publishRateInMsgs=50),
        lambda: rig.cluster.put("new", publishRateInBytes=5),
        lambda: rig.cluster.groups.pop("free"),
    )
    assert rig.table() == {"rg": [50, None, None, 7], "new": [None, 5, None, None]}
    changes = group_changes(rig.history)
    assert [(c["by"], c["group"], c["from"] is None, c["to"] is None) for c in changes] == [
        (BY, "free", True, False),
        (BY, "rg", True, False),
        (BY, "rg", False, False),
        (BY, "new", True, False),
        (BY, "free", False, True),
    ]
    assert rig.told == []


def test_what_only_we_know_stays(rig: Rig) -> None:
    policy = pa.table({"weight": [3.0], "mode": ["soft"]})
    quotas = quota(1, 2, 3, 4, 5, 6, 7, 8)
    put_groups(rig.history, ["rg"], quotas, "ann", policy=policy)
    rig.cluster.put("rg", publishRateInMsgs=100)
    rig.sync()
    row = get_group(rig.history, "rg")
    assert rates(row) == [100, 2, None, None, 5, 6, 7, 8]
    assert (row["weight"], row["mode"], row["updated_by"]) == (3.0, "soft", BY)


def test_groups_of_others_stay(rig: Rig) -> None:
    put_groups(rig.history, ["acme", "both"], quota(1).repeat(2, axis=0), "ann")
    rig.cluster.put("both", publishRateInMsgs=5)
    rig.cluster.put("acme::ours", publishRateInMsgs=1)
    rig.sync()
    put_groups(rig.history, ["acme::ours"], quota(2), "ann")
    rig.cluster.put("acme::ours", publishRateInMsgs=2)
    rig.sync(lambda: None, rig.cluster.groups.clear, lambda: None)
    # Ann made acme and both, and only changed acme::ours.
    assert set(rig.table()) == {"acme", "both"}


def test_who_made_a_group_is_asked_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(*args: Any) -> Any:
        asked.append(1)
        return group_changes(*args)

    monkeypatch.setattr("quotaplane.group_sync.sync.group_changes", counted)
    put_groups(rig.history, ["anns"], quota(1), "ann")
    rig.sync(*[lambda: None] * 5)
    assert len(asked) == 1
    rig.sync(
        lambda: None,
        lambda: rig.cluster.put("anns"),
        lambda: delete_groups(rig.history, ["anns"], "ann"),
        lambda: rig.cluster.put("anns", publishRateInMsgs=3),
        rig.cluster.groups.clear,
    )
    assert rig.table() == {}  # Ann's was deleted, the one after it was the cluster's
    assert len(asked) == 3


def test_names_that_do_not_fit_are_told_once(rig: Rig) -> None:
    rig.cluster.put("a\x01b", publishRateInMsgs=1)
    rig.cluster.put("rg", publishRateInMsgs=1)
    rig.sync(lambda: None, lambda: None, lambda: rig.cluster.put("a::"), lambda: None)
    assert list(rig.table()) == ["rg"]
    (told,) = rig.told  # the other one within a minute
    assert told.startswith(r"left out groups: group 'a\x01b': has a character")


LOCKED = HistoryError("somebody else writes")


class TestFailures:
    @pytest.mark.parametrize(
        "answer", [Answer(500), Answer(200, "x"), Answer(200, [1]), Answer(200, {})]
    )
    def test_a_group_that_cannot_be_read_is_left_as_it_is(self, rig: Rig, answer: Answer) -> None:
        poll = rig.follower()
        rig.cluster.put("bad", publishRateInMsgs=1)
        assert not poll()
        rig.cluster.answers["GET resourcegroups/bad"] = answer
        rig.cluster.put("good", publishRateInMsgs=3)
        (error,) = poll()
        assert isinstance(error, ClusterError)
        assert rig.table() == {"bad": [1, None, None, None], "good": [3, None, None, None]}

    def test_a_group_that_is_deleted_in_between_is_no_failure(self, rig: Rig) -> None:
        poll = rig.follower()
        rig.cluster.put("rg", publishRateInMsgs=1)
        assert not poll()
        rig.cluster.answers["GET resourcegroups/rg"] = Answer(404)
        assert not poll()
        assert list(rig.table()) == ["rg"]  # until it is not in the list any more

    def test_when_nobody_answers_the_others_are_not_asked(self, rig: Rig) -> None:
        names, poll = [f"g{number}" for number in range(40)], rig.follower()
        for name in names:
            rig.cluster.put(name, publishRateInMsgs=1)
        assert not poll()
        rig.cluster.asked.clear()
        rig.cluster.answers = {f"GET resourcegroups/{name}": Answer(cut=True) for name in names}
        rig.cluster.put("g7", publishRateInMsgs=2)
        (error,) = poll()
        assert "check transport.admin_url" in str(error)
        assert len(rig.cluster.asked) < 40
        rig.cluster.answers.clear()
        assert not poll()
        assert rig.table()["g7"] == [2, None, None, None]

    def test_what_could_not_be_written_is_read_again_at_once(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig.poll_interval_s = 1 / READS_PER_S  # one a time
        poll = rig.follower()
        for name in "ab":
            rig.cluster.put(name, publishRateInMsgs=1)
        assert not poll()
        rig.cluster.put("a", publishRateInMsgs=2)
        with monkeypatch.context() as broken:
            broken.setattr("quotaplane.group_sync.sync.put_groups", Mock(side_effect=LOCKED))
            assert poll() == [LOCKED]
        assert not poll()
        assert rig.table()["a"] == [2, None, None, None]


class TestTurns:
    def test_all_are_read_at_first_then_some_in_turn_and_new_ones_at_once(self, rig: Rig) -> None:
        rig.poll_interval_s = 3 / READS_PER_S
        poll = rig.follower()
        for name in "abcdefg":
            rig.cluster.put(name, publishRateInMsgs=1, publishRateInBytes=1)
        for read in ("abcdefg", "abc", "def", "abg", "cdn", "aef"):
            if "n" in read:
                rig.cluster.put("n", publishRateInMsgs=1, publishRateInBytes=1)
            rig.cluster.asked.clear()
            assert not poll()
            paths = [path.partition("resourcegroups/")[2] for path in rig.cluster.paths()]
            assert sorted(filter(None, paths)) == list(read)

    def test_a_group_that_fails_is_a_failure_until_its_next_turn(self, rig: Rig) -> None:
        rig.poll_interval_s = 1 / READS_PER_S
        poll = rig.follower()
        for name in "ab":
            rig.cluster.put(name)
        rig.cluster.answers["GET resourcegroups/a"] = Answer(500)
        assert len(poll(4)) == 4
        rig.cluster.answers.clear()
        assert [len(poll()) for _ in range(2)] == [1, 0]
        rig.cluster.answers["GET resourcegroups/a"] = Answer(500)
        poll = rig.follower()
        assert len(poll()) == 1
        del rig.cluster.groups["a"]
        rig.cluster.answers.clear()
        assert not poll()


class TestTenants:
    @pytest.fixture(autouse=True)
    def tenant(self, rig: Rig) -> None:
        rig.tenants = {"acme": "rg"}
        rig.cluster.put("rg", publishRateInMsgs=1)
        rig.cluster.put("other", publishRateInMsgs=1)

    def test_namespaces_are_attached_now_later_and_again(self, rig: Rig) -> None:
        namespaces = rig.cluster.namespaces
        namespaces |= {"acme/a": None, "acme/b": "other", "else/a": None}
        rig.sync(
            lambda: None,
            lambda: namespaces.update({"acme/new": None}),
            lambda: namespaces.update({"acme/a": None}),  # somebody detached it
        )
        assert namespaces == {"acme/a": "rg", "acme/b": "other", "else/a": None, "acme/new": "rg"}
        assert rig.cluster.paths("POST") == [
            "namespaces/acme/a/resourcegroup/rg",
            "namespaces/acme/new/resourcegroup/rg",
            "namespaces/acme/a/resourcegroup/rg",
        ]

    def test_a_tenant_or_group_that_is_not_there_yet_is_told_once(self, rig: Rig) -> None:
        del rig.cluster.groups["rg"]
        rig.sync(
            lambda: None,
            lambda: None,
            lambda: rig.cluster.put("rg", publishRateInMsgs=1),
            lambda: None,
            lambda: rig.cluster.namespaces.update({"acme/a": None}),
            lambda: rig.cluster.groups.pop("rg"),
        )
        assert rig.told == [
            "tenants: cluster.tenants: acme: there is no resource group 'rg' yet",
            "tenants: over after 0 s",
        ]
        assert rig.cluster.namespaces == {"acme/a": "rg"}

    def test_a_tenant_waits_on_while_the_cluster_does_not_answer(self, rig: Rig) -> None:
        rig.tenants = {"acme": "none", "else": "rg"}
        rig.cluster.namespaces["else/a"] = "rg"
        poll = rig.follower()
        assert not poll()
        rig.cluster.answers["GET namespaces/else"] = Answer(cut=True)
        assert len(poll(2)) == 2
        assert rig.told == ["tenants: cluster.tenants: acme: there is no resource group 'none' yet"]

    def test_what_goes_wrong_there_does_not_hold_up_groups(self, rig: Rig) -> None:
        namespaces = rig.cluster.namespaces
        namespaces |= dict.fromkeys([f"acme/{name}" for name in ("a", "b", "c", "d", "gone")])
        rig.cluster.answers = {
            "GET namespaces/acme/a": Answer(500),
            "GET namespaces/acme/b": Answer(404),
            "POST namespaces/acme/c/resourcegroup/rg": Answer(412),
            "POST namespaces/acme/gone/resourcegroup/rg": Answer(404),
        }
        failures = rig.follower()()
        refused = [error.status for error in failures if isinstance(error, RefusedError)]
        assert sorted(refused) == [412, 500]
        assert set(rig.table()) == {"rg", "other"}
        assert [each for each, group in namespaces.items() if group] == ["acme/d"]
        rig.cluster.answers = {"GET namespaces/acme": Answer(500)}
        assert len(rig.follower()()) == 1
        rig.cluster.answers = {"GET namespaces/acme": Answer(cut=True)}
        (error,) = rig.follower()()
        assert "check transport.admin_url" in str(error)


@pytest.fixture
def pace() -> Paced:
    return Paced()


class TestFollowing:
    def follow(self, rig: Rig, pace: Paced, **more: Any) -> Any:
        settings = rig.settings.model_copy(update=more)
        assert settings.cluster is not None
        return following(settings.cluster, settings, rig.conditions(), sleep=pace)

    def begin(self, rig: Rig, **more: Any) -> None:
        with self.follow(rig, Paced(), **more):
            pass

    def test_the_table_is_as_the_cluster_from_the_start(self, rig: Rig, pace: Paced) -> None:
        rig.cluster.put("rg", publishRateInMsgs=1)
        with self.follow(rig, pace):
            assert rig.table() == {"rg": [1, None, None, None]}
            rig.cluster.put("rg", publishRateInMsgs=2)
            pace.next_poll()
            assert rig.table() == {"rg": [2, None, None, None]}
        assert get_group(rig.history, "rg")["updated_by"] == BY
        assert pace.slept == [2.0, 2.0]
        assert rig.told == []
        assert "cluster" not in [thread.name for thread in threading.enumerate()]

    def test_failures_are_told_when_they_begin_and_end(self, rig: Rig, pace: Paced) -> None:
        """Refused groups don't keep a job from its start."""
        for name in "ab":
            rig.cluster.put(name, publishRateInMsgs=1)
            rig.cluster.answers[f"GET resourcegroups/{name}"] = Answer(500)
        with self.follow(rig, pace):
            pace.next_poll()
            pace.next_poll()
            rig.cluster.answers.clear()
            pace.next_poll()
            pace.next_poll()
        begun, over = rig.told
        assert "/resourcegroups/a: 500" in begun
        assert begun.endswith("(and 1 more); retrying")
        assert over == "resource group sync: over after 0 s (3 times)"

    def test_a_mistake_of_ours_ends_nothing(
        self, rig: Rig, pace: Paced, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with self.follow(rig, pace):
            monkeypatch.setattr("quotaplane.group_sync.sync.absent", None)
            pace.next_poll()
            monkeypatch.undo()
            pace.next_poll()
        mistake, over = rig.told
        assert "TypeError: 'NoneType' object is not callable" in mistake
        assert over == "resource group sync: over after 0 s"

    @pytest.mark.parametrize("path", ["resourcegroups", "brokers/configuration/runtime"])
    @pytest.mark.parametrize("status", [401, 403, 500])
    def test_a_refusal_is_an_error(self, rig: Rig, path: str, status: int) -> None:
        rig.cluster.answers[f"GET {path}"] = Answer(status, {"reason": "needs super-user"})
        with pytest.raises(RefusedError, match=f"{status} needs super-user"):
            self.begin(rig)
        assert "cluster" not in [thread.name for thread in threading.enumerate()]
        assert rig.table() == {}

    def test_what_else_is_an_error(self, rig: Rig) -> None:
        nowhere = History(path=rig.history.path + "/none")
        with pytest.raises(HistoryError):
            self.begin(rig, history=nowhere)
        rig.cluster.runtime = {}
        with pytest.raises(ClusterError, match="the answer has no clusterName"):
            self.begin(rig)

    def test_it_ends_at_once_in_the_middle_of_a_request(self, rig: Rig, pace: Paced) -> None:
        with self.follow(rig, pace):
            rig.cluster.answers["GET resourcegroups"] = Answer(delay_s=60)
            assert pace.begun.acquire(timeout=60)
            asked = len(rig.cluster.asked)
            pace.woken.release()
            deadline = time.monotonic() + 60
            while len(rig.cluster.asked) == asked and time.monotonic() < deadline:
                time.sleep(0.001)
            assert len(rig.cluster.asked) > asked
        assert "cluster" not in [thread.name for thread in threading.enumerate()]

    def test_brokers_that_report_at_another_pace_are_told(self, rig: Rig) -> None:
        runtime = rig.cluster.runtime
        runtime["resourceUsageTransportPublishIntervalInSecs"] = "60"
        self.begin(rig, reports=Reports(interval_s=2.0))
        runtime["resourceUsageTransportClassName"] = ""
        self.begin(rig)
        own = rig.settings.transport.model_copy(
            update={"report_topics": ("persistent://acme/ops/reports",)}
        )
        self.begin(rig, transport=own)
        assert len(rig.told) == 2
        assert "report every 60 s" in rig.told[0]
        assert "all usage is computed as 30 times" in rig.told[0]
        assert "send no usage reports" in rig.told[1]
