"""`quotaplane groups`: quotas change as asked, or not at all, whoever else is at it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.main import main
from quotaplane.errors import HistoryError, InputError
from quotaplane.groups.ids import NO_ID, ids_of
from quotaplane.groups.names import check_name
from quotaplane.groups.policy_options import DEFAULTS, JSON_COLUMNS
from quotaplane.history import commits
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry import table as storage
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import delete_groups, get_group, put_groups
from quotaplane.settings import History
from tests.unit.registry.groups_cases import Command, names, quota, rates

pytestmark = pytest.mark.slow


def test_put_changes_only_what_is_given(groups: Command) -> None:
    groups("put", "g", "--publish-messages-per-s", "100", "--dispatch-bytes-per-s", "1e6")
    changed = groups("put", "g", "--publish-bytes-per-s", "0", "--publish-messages-per-s", "50")
    assert rates(changed) == [50.0, 0.0, None, 1e6, None, None, None, None]
    freed = groups("put", "g", "--publish-messages-per-s", "unlimited")
    assert rates(freed) == [None, 0.0, None, 1e6, None, None, None, None]


def test_list_is_sorted_and_one_row_a_line(
    groups: Command, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("b", "a/ü", 'c "quoted" \\'):
        groups("put", name)
    assert [row["group"] for row in groups("list")] == ["a/ü", "b", 'c "quoted" \\']
    main(["groups", "list", "--history", history.path])
    assert len(capsys.readouterr().out.splitlines()) == 5


@pytest.mark.parametrize("name", ["it's", "a''b", '"', "`", "x; --", "%_\\", " ", "名", "a" * 1024])
def test_any_printable_name_will_do(history: History, name: str) -> None:
    put_groups(history, [name, "other"], quota(1.0).repeat(2, axis=0), "ann")
    put_groups(history, [name], quota(2.0), "ann")
    assert get_group(history, name)["publish_messages_per_s"] == 2.0
    delete_groups(history, [name], "ann")
    assert names(history) == ["other"]


def test_what_is_not_there_is_told(groups: Command) -> None:
    groups("put", "g")
    assert groups.refused("delete", "g", "nope") == "group 'nope' does not exist"
    assert [row["group"] for row in groups("list")] == ["g"]


@pytest.mark.parametrize("words", [["put", "g"], ["apply", "-f", "FILE"]])
def test_init_makes_the_history_and_says_so_once(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text("group: g")
    words = ["groups", *(word.replace("FILE", str(file)) for word in words)]
    words += ["--history", history.path]
    assert main(words) == 2
    assert "use --init to create it" in capsys.readouterr().err
    assert main([*words, "--init"]) == 0
    assert names(history) == ["g"]
    err = capsys.readouterr().err
    assert err.startswith("quotaplane: history: created the tables resource_groups, usage, ")
    assert err.endswith(f" at {history.path}\n")
    assert main([*words, "--init"]) == 0
    assert capsys.readouterr().err == ""


def test_init_makes_nothing_of_wrong_input(groups: Command, history: History) -> None:
    assert "must be a number" in groups.refused("put", "g", "--init", "--weight", "x")
    assert "has an empty part" in groups.refused("put", "a::", "--init")
    assert not Path(history.path).exists()


def test_a_colliding_id_is_refused(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "quotaplane.registry.rows_after.ids_of", lambda names: np.array(list(map(len, names)))
    )
    put_groups(history, ["ab"], quota(1.0), "ann")
    with pytest.raises(InputError, match=r"^group 'xy': has the same id as 'ab'"):
        put_groups(history, ["abc", "xy"], quota().repeat(2, axis=0), "ann")
    put_groups(history, ["ab"], quota(2.0), "ann")
    assert names(history) == ["ab"]


def test_concurrent_changes_of_one_group_all_arrive(history: History) -> None:
    put_groups(history, ["g"], quota(), "ann")

    def put(dimension: int) -> None:
        given = quota()
        for value in range(1, 6):
            given[0, dimension] = value
            put_groups(history, ["g"], given, f"writer-{dimension}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    assert rates(get_group(history, "g")) == [*[5.0] * 4, None, None, None, None]
    changes = group_changes(history, "g")
    assert len(changes) == 21
    for before, after in pairwise(changes):
        assert after["from"] == before["to"]


def test_somebody_else_always_being_first_ends_with_an_error(history: History) -> None:
    put_groups(history, ["g"], quota(0.0), "ann")
    waits: list[float] = []
    real = storage.rows_after

    def overtaken(*args: Any) -> Any:
        answer = real(*args)
        if args[2] == "slow":
            put_groups(history, ["g"], quota(float(len(waits) + 100)), "fast")
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "rows_after", overtaken)
        patch.setattr(commits, "_PATIENCE_S", 1.0)
        with pytest.raises(HistoryError, match=r"^history table resource_groups at .*concurrent"):
            put_groups(history, ["g"], quota(1.0), "slow", sleep=waits.append)
    assert waits
    assert get_group(history, "g")["updated_by"] == "fast"


def test_history_says_who_when_from_and_to(groups: Command) -> None:
    groups("put", "g", "--publish-messages-per-s", "10", "--by", "ann")
    groups("put", "other", "--by", "ann")
    groups("put", "g", "--publish-messages-per-s", "20", "--by", "bob")
    groups("delete", "g", "--by", "zed")
    changes = groups("history", "g")
    assert [(c["by"], c["group"]) for c in changes] == [("ann", "g"), ("bob", "g"), ("zed", "g")]
    unlimited = {**dict.fromkeys(RATE_COLUMNS), **DEFAULTS, **{name: {} for name in JSON_COLUMNS}}
    ten, twenty = ({**unlimited, "publish_messages_per_s": rate} for rate in (10.0, 20.0))
    steps = [(None, ten), (ten, twenty), (twenty, None)]
    assert [(c["from"], c["to"]) for c in changes] == steps
    assert sorted(c["at"] for c in changes) == [c["at"] for c in changes]
    assert len(groups("history")) == 4
    assert groups.refused("history", "nobody") == "group 'nobody' does not exist"


@given(st.text(max_size=30) | st.text(":a", max_size=6))
def test_a_name_is_taken_if_reports_can_use_it_and_no_part_is_empty(name: str) -> None:
    if ids_of([name])[0] != NO_ID and "" not in name.split("::"):
        assert check_name(name) == name
        return
    with pytest.raises(InputError) as refused:
        check_name(name)
    assert len(str(refused.value).splitlines()) == 1
