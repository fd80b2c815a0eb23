"""Groups that a cluster does not list any more are deleted here only when that is sure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.agents.deletion_check import TIMES, DeletionCheck
from quotaplane.errors import ClusterError
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.texts import some_of
from tests.unit.group_sync.follower_cases import Rig, hide
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.unit.registry.groups_cases import quota

pytestmark = pytest.mark.slow

NAMES = "abcdefgh"


@given(st.lists(st.sets(st.sampled_from(NAMES)), max_size=8), st.integers(0, 60))
def test_many_are_gone_after_three_answers_in_a_row(looks: list[set[str]], others: int) -> None:
    check = DeletionCheck()
    for number, missing in enumerate(looks):
        of = len(missing) + others
        confirmed = check.confirmed(missing, of)
        if len(missing) <= max(3, 0.1 * of):
            assert confirmed == missing
        elif number + 1 < TIMES:
            assert confirmed == set()
        else:
            assert confirmed == missing & looks[number - 1] & looks[number - 2]


def test_an_answer_that_did_not_come_ends_the_row() -> None:
    check = DeletionCheck()
    for _ in range(TIMES - 1):
        assert check.confirmed(NAMES, of=8) == set()
    check.begin_again()
    assert check.confirmed(NAMES, of=8) == set()


def test_names_in_a_line_are_printable() -> None:
    assert some_of(["a\nb"]) == r"'a\nb'"


class TestGroups:
    @pytest.fixture(autouse=True)
    def many(self, rig: Rig) -> None:
        for name in NAMES:
            rig.cluster.put(name, publishRateInMsgs=1)
        rig.sync()

    def lists(self, rig: Rig, *listed: str) -> None:
        """The cluster lists these, whatever it has."""
        rig.cluster.answers["GET resourcegroups"] = Answer(200, list(listed))

    def loses(self, rig: Rig, *lost: str) -> None:
        """The cluster has these no more."""
        for name in lost:
            del rig.cluster.groups[name]

    def test_one_empty_answer_deletes_nothing_and_is_told(self, rig: Rig) -> None:
        poll = rig.follower()
        self.lists(rig)
        assert not poll()
        rig.cluster.answers.clear()
        assert not poll(2)
        assert list(rig.table()) == list(NAMES)
        told, over = rig.told
        assert over == "vanished groups: over after 0 s"
        assert told.startswith(
            "vanished groups: the cluster lists 0 of 8 resource groups; missing: 'a', "
        )

    def test_many_that_are_missing_three_times_are_deleted_and_that_is_told(self, rig: Rig) -> None:
        self.loses(rig, *"abcd")
        for _ in range(2):  # a new follower counts anew
            assert not rig.follower()(2)
            assert list(rig.table()) == list(NAMES)
        rig.told.clear()
        assert not rig.follower()(3)
        assert list(rig.table()) == list("efgh")
        assert "'a', 'b', 'c', 'd' are gone from the cluster" in rig.told[-1]
        assert "groups restore" in rig.told[-1]

    def test_what_is_not_listed_and_yet_there_stays(self, rig: Rig) -> None:
        self.lists(rig, *"defgh")
        assert not rig.follower()(5)
        assert list(rig.table()) == list(NAMES)
        (told,) = rig.told
        listed = "unlisted groups: the cluster does not list the resource groups 'a', 'b', 'c', and"
        assert told.startswith(listed)
        self.lists(rig)
        assert not rig.follower()(5)
        assert list(rig.table()) == list(NAMES)

    @pytest.mark.parametrize("status", [401, 403, 500, 503])
    def test_a_group_that_cannot_be_asked_for_is_not_gone(self, rig: Rig, status: int) -> None:
        poll = rig.follower()
        rig.cluster.answers["GET resourcegroups/a"] = Answer(status)
        self.loses(rig, "a")
        assert len(poll()) == 1
        assert list(rig.table()) == list(NAMES)
        rig.cluster.answers.clear()
        assert not poll()
        assert list(rig.table()) == list(NAMES[1:])

    @pytest.mark.parametrize(
        "answer", [Answer(404), Answer(401), Answer(500), Answer(200, {}), Answer(cut=True)]
    )
    def test_without_a_list_nothing_is_deleted_nor_counted(self, rig: Rig, answer: Answer) -> None:
        poll = rig.follower()
        for failures in (1, 4):
            self.lists(rig)
            assert not poll(2)
            rig.cluster.answers["GET resourcegroups"] = answer
            errors = poll(failures)
            assert [isinstance(error, ClusterError) for error in errors] == [True] * failures
        assert list(rig.table()) == list(NAMES)

    def test_groups_of_others_do_not_count(self, rig: Rig) -> None:
        anns = [f"ann{i}" for i in range(20)]
        put_groups(rig.history, anns, quota(1).repeat(20, axis=0), "ann")
        # 4 of our 8, and not of 28, are too many at once.
        self.loses(rig, *"abcd")
        rig.sync()
        assert set(rig.table()) == {*NAMES, *anns}
        assert rig.told[0].startswith("vanished groups: the cluster lists 4 of 8 resource groups")

    def test_a_row_put_meanwhile_stays(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ann deletes the cluster's row and makes one of her own, between our look and delete."""

        def overtaken(*args: object) -> object:
            monkeypatch.undo()
            changes = group_changes(*args)  # type: ignore[arg-type]
            delete_groups(rig.history, ["a"], "ann")
            put_groups(rig.history, ["a"], quota(9), "ann")
            return changes

        poll = rig.follower()
        monkeypatch.setattr("quotaplane.group_sync.sync.group_changes", overtaken)
        self.loses(rig, "a")
        assert not poll(2)
        assert rig.table()["a"] == [9, None, None, None]

    def test_what_came_back_after_a_wrong_answer_has_its_quota(self, rig: Rig) -> None:
        """Even if the cluster lied three times in a row."""
        before = rig.table()
        hide(rig, "a")
        there = dict(rig.cluster.groups)
        poll = rig.follower()
        rig.cluster.groups.clear()
        assert not poll(3)
        rig.cluster.groups.update(there)
        assert not poll()
        assert [c["to"] for c in group_changes(rig.history, "a")][-2] is None
        assert rig.table() == before
