"""`quotaplane groups restore`: what was deleted or changed comes back out of the history."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.main import main
from quotaplane.errors import InputError, TableChangedError
from quotaplane.history.maintenance import maintain
from quotaplane.registry import restore as group_restore
from quotaplane.registry.restore import last_states, states_at
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.registry.groups_cases import Command, quota, rates, version

pytestmark = pytest.mark.slow

FROM = "--from-history"
TERMS = '{"b1": {"ceiling": {"publish_bytes_per_s": 3}}}'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Three groups, one with a policy; then two of them are deleted, and one is changed."""
    history = History(path=str(tmp_path_factory.mktemp("made") / "history"))
    make_history(history)
    words = "--publish-messages-per-s", "100", "--by", "ann"
    for command in (
        ("put", "a", *words, "--weight", "3", "--mode", "soft", "--brokers", TERMS),
        ("put", "b", *words, "--total-bytes-per-s", "7"),
        ("put", "c", *words),
        ("put", "c", "--publish-messages-per-s", "unlimited", "--weight", "2", "--by", "zed"),
        ("delete", "a", "b", "--by", "zed"),
    ):
        assert main(["groups", *command, "--history", history.path]) == 0
    return history


@pytest.fixture
def three(made: History, history: History) -> None:
    """The history is a copy of ``made``."""
    shutil.copytree(made.path, history.path)


@pytest.mark.usefixtures("three")
def test_deleted_groups_come_back_as_they_were_in_one_change(
    groups: Command, history: History
) -> None:
    before = version(history)
    deleted = {c["group"]: c["from"] for c in groups("history") if c["to"] is None}
    restored = groups("restore", FROM, "--by", "bob")
    assert [(one["group"], one["from"]) for one in restored] == [("a", None), ("b", None)]
    assert {one["group"]: one["to"] for one in restored} == deleted
    assert version(history) == before + 1
    row = groups("get", "a")
    assert (row["weight"], row["mode"], row["updated_by"]) == (3.0, "soft", "bob")
    assert row["brokers"] == {"b1": {"ceiling": {"publish_bytes_per_s": 3.0}}}
    assert rates(groups("get", "b")) == [100, None, None, None, None, 7, None, None]
    last = groups("history")[-1]
    assert (last["by"], last["version"], last["from"]) == ("bob", before + 1, None)
    # Of c only its name says that it is to be undone.
    assert rates(groups("get", "c"))[0] is None


@pytest.mark.usefixtures("three")
def test_a_group_that_is_named_is_as_before_its_last_change(groups: Command) -> None:
    (changed,) = groups("restore", FROM, "c")
    assert (rates(changed["from"])[0], rates(changed["to"])[0]) == (None, 100)
    assert (changed["from"]["weight"], changed["to"]["weight"]) == (2, 1)
    assert [row["group"] for row in groups("list")] == ["c"]
    assert (rates(groups("get", "c"))[0], groups("get", "c")["weight"]) == (100, 1)


@pytest.mark.usefixtures("three")
def test_a_dry_run_shows_the_same_and_changes_nothing(groups: Command, history: History) -> None:
    before = version(history)
    shown = groups("restore", FROM, "--dry-run")
    assert version(history) == before
    assert groups("restore", FROM) == shown


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("by_time", [False, True])
def test_everything_as_it_was_then_but_what_came_later_stays(
    groups: Command, by_time: bool
) -> None:
    groups("put", "later", "--publish-bytes-per-s", "1")
    then = next(c for c in groups("history") if c["group"] == "c")
    when = ("--at", then["at"]) if by_time else ("--version", str(then["version"]))
    restored = groups("restore", FROM, *when)
    assert [(one["group"], one["from"] is None) for one in restored] == [
        ("a", True),
        ("b", True),
        ("c", False),
    ]
    assert [row["group"] for row in groups("list")] == ["a", "b", "c", "later"]
    assert groups("get", "c")["publish_messages_per_s"] == 100
    assert groups("restore", FROM, *when) == []


@pytest.mark.usefixtures("three")
def test_what_a_follower_brought_back_without_its_policy_gets_it_again(groups: Command) -> None:
    groups("put", "a", "--publish-messages-per-s", "100", "--by", "pulsar:blue")
    assert groups("get", "a")["weight"] == 1
    groups("restore", FROM, "a")
    assert groups("get", "a")["weight"] == 3


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([FROM, "nobody"], "group 'nobody': the table's history, which begins at 20"),
        ([FROM, "--version", "99"], "version: the table's history has 0 to "),
        ([FROM, "--version", "-1"], "version: the table's history has 0 to "),
        ([FROM, "--version", "0"], "there was no group at version 0"),
        ([FROM, "--version", "1", "b"], "group 'b' did not exist at version 1"),
        ([FROM, "--at", "2001-01-01"], "at: the table's history begins at 20"),
        ([FROM, "--at", "1s", "--version", "1"], "not allowed with argument"),
        (["a"], "--from-history"),
    ],
)
def test_what_the_history_does_not_have_is_told_and_nothing_is_written(
    groups: Command, history: History, words: list[str], problem: str
) -> None:
    before = version(history)
    assert problem in groups.refused("restore", *words)
    assert version(history) == before


@pytest.mark.parametrize("made_anew", [False, True])
def test_when_nothing_was_lost_that_is_told(
    groups: Command, history: History, made_anew: bool
) -> None:
    groups("put", "a", "--publish-messages-per-s", "100")
    if made_anew:
        shutil.rmtree(Path(history.path))
        make_history(history)
    assert groups.refused("restore", FROM).startswith("nothing to restore: the table's history, ")
    assert "has no other state of it" in groups.refused("restore", FROM, "a")


@pytest.mark.usefixtures("three")
def test_upkeep_keeps_what_can_be_restored(groups: Command, history: History) -> None:
    maintain(history, datetime.now(timezone.utc) + timedelta(days=100))
    assert [one["group"] for one in groups("restore", FROM)] == ["a", "b"]


@pytest.mark.usefixtures("three")
def test_a_change_under_way_is_not_overwritten(
    groups: Command, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ann puts a group anew while it is restored: hers stays."""
    real = group_restore.change_groups

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        put_groups(history, ["a"], quota(5), "ann")
        return real(*args, **kwargs)

    monkeypatch.setattr(group_restore, "change_groups", overtaken)
    assert [one["group"] for one in groups("restore", FROM)] == ["b"]
    assert groups("get", "a")["publish_messages_per_s"] == 5


@pytest.mark.usefixtures("three")
def test_a_table_that_changes_all_the_time_ends_with_an_error(
    history: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def overtaken(*_: Any, **__: Any) -> Any:
        raise TableChangedError("somebody else")

    monkeypatch.setattr(group_restore, "change_groups", overtaken)
    assert main(["groups", "restore", FROM, "--history", history.path]) == 4
    assert "is being changed all the time" in capsys.readouterr().err


STATE = st.none() | st.sampled_from([{"quota": n} for n in range(3)])


@given(st.lists(st.tuples(st.sampled_from("abc"), STATE), max_size=12))
def test_undoing_changes_gives_every_earlier_state(steps: list[tuple[str, Any]]) -> None:
    states: list[dict[str, Any]] = [{}]
    changes: list[dict[str, Any]] = []
    for group, state in steps:
        before = states[-1].get(group)
        after = {g: s for g, s in {**states[-1], group: state}.items() if s is not None}
        if after != states[-1]:
            version = len(states)
            changes.append({"version": version, "group": group, "from": before, "to": state})
            states.append(after)
    for number, wanted in enumerate(states):
        assert states_at(states[-1], changes, number) == wanted
    begins = datetime(2026, 3, 1, tzinfo=timezone.utc)
    lost = {group for state in states for group in state} - states[-1].keys()
    if not lost:
        with pytest.raises(InputError, match=r"begins at 2026-03-01T00:00:00\.000Z"):
            last_states(states[-1], changes, [], since=begins)
        return
    deleted = last_states(states[-1], changes, [], since=begins)
    assert deleted.keys() == lost
    for group, state in deleted.items():
        assert state == next(s[group] for s in reversed(states) if group in s)
