"""A publish quota of -1 in the cluster takes no known quota away."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from quotaplane.registry import table as storage
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import delete_groups, get_group, put_groups
from tests.unit.group_sync.follower_cases import Rig, hide
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.unit.registry.groups_cases import quota, rates

pytestmark = pytest.mark.slow


def test_a_group_that_was_deleted_and_made_again_is_what_the_cluster_says(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInMsgs=9)
    rig.sync(
        lambda: None,
        lambda: rig.cluster.groups.pop("rg"),
        lambda: rig.cluster.put("rg", dispatchRateInMsgs=8),
    )
    assert rig.table() == {"rg": [None, None, 8, None]}
    assert rig.told == []


def overtake(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[str]:
    """Let somebody act once while the follower puts; the list is not empty then."""
    acted: list[str] = []
    real = storage.rows_after

    def overtaken(*args: object) -> object:
        if not acted:
            acted.append("rg")
            act()
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(storage, "rows_after", overtaken)
    return acted


def test_a_row_deleted_meanwhile_stays_limited(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower changes the dispatch quota of a row that it read a moment ago."""
    rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInMsgs=5)
    rig.sync()
    hide(rig, "rg")
    rig.cluster.put("rg", dispatchRateInMsgs=9)
    deleted = overtake(monkeypatch, lambda: delete_groups(rig.history, ["rg"], "ann"))
    # The next poll puts it: what was read in the cluster may be older than the deletion.
    rig.sync(lambda: None, lambda: None)
    assert deleted
    assert rig.table() == {"rg": [100, None, 9, None]}
    assert all(c["to"] is None or rates(c["to"])[0] == 100 for c in group_changes(rig.history))


def test_a_quota_put_meanwhile_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100)
    rig.sync(lambda: None, lambda: rig.cluster.groups.pop("rg"))
    rig.cluster.put("rg")
    put = overtake(monkeypatch, lambda: put_groups(rig.history, ["rg"], quota(30), "ann"))
    rig.sync()
    assert put
    assert rig.table() == {"rg": [30, None, None, None]}
    assert get_group(rig.history, "rg")["updated_by"] == "ann"


NO_COPY = (
    "quotas without a copy: resource groups 'rg': the cluster has no publish quota of them (-1), "
    "and no copy of it"
)


@pytest.mark.parametrize("take_over", [True, False])
def test_unlimited_needs_the_tables_consent(rig: Rig, take_over: bool) -> None:
    rig.take_over = take_over
    rig.cluster.put("rg", publishRateInMsgs=100)
    free = quota(np.inf, np.inf)
    rig.sync(lambda: None, lambda: rig.cluster.put("rg", publishRateInMsgs=-1), *[str] * 3)
    assert rig.table()["rg"] == [100, None, None, None]
    (line,) = rig.told
    assert line.startswith(NO_COPY)
    assert "quotaplane groups put GROUP --publish-messages-per-s unlimited" in line
    rig.told.clear()
    rig.sync(lambda: put_groups(rig.history, ["rg"], free, "ann"), *[str] * 3)
    assert rig.table()["rg"] == [None] * 4
    assert rig.told == []


def test_what_an_enforcer_hides_while_the_groups_are_listed_has_its_copy(rig: Rig) -> None:
    """Its copy came after the list of groups."""
    poll, look = rig.follower(), "GET resourcegroups/rg"
    rig.cluster.put("rg", publishRateInMsgs=100)
    assert not poll()
    hide(rig, "rg")
    hidden = rig.cluster.groups.pop("rg.taken-over")

    def found() -> Answer:
        rig.cluster.groups["rg.taken-over"] = hidden
        del rig.cluster.answers[look]
        return Answer(200, rig.cluster.groups["rg"])

    rig.cluster.answers[look] = found
    assert not poll(4)
    assert rig.told == []


def test_a_quota_of_zero_is_none_and_is_told(rig: Rig) -> None:
    rig.cluster.put("rg", publishRateInMsgs=100, dispatchRateInMsgs=5)
    rig.sync(
        lambda: None,
        lambda: rig.cluster.put("rg", publishRateInMsgs=0, dispatchRateInMsgs=0),
        lambda: None,
        lambda: rig.cluster.put("rg", publishRateInMsgs=-1, dispatchRateInMsgs=-1),
    )
    assert rig.table() == {"rg": [100, None, None, None]}
    zero, over, minus_one = rig.told
    assert over == "zero quotas: over after 0 s"
    assert zero.startswith("zero quotas: resource groups 'rg': have a quota of 0")
    assert minus_one.startswith(NO_COPY)


def test_two_clusters_that_write_the_same_groups_are_told(rig: Rig) -> None:
    put_groups(rig.history, ["rg"], quota(1), "pulsar:green")
    rig.cluster.put("rg", publishRateInMsgs=2)
    rig.sync(
        lambda: None, lambda: put_groups(rig.history, ["rg"], quota(1), "pulsar:green"), *[str] * 2
    )
    (told,) = rig.told
    assert told.startswith("other clusters: pulsar:green: quotas are written into this history")
