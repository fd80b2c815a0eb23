"""The policy of a group, from the command line to the table: kept, shown, refused or doubted."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quotaplane.errors import InputError
from quotaplane.groups.policy_options import DEFAULTS, FLOOR_COLUMNS, JSON_COLUMNS, POLICY_COLUMNS
from quotaplane.history.store import open_table
from quotaplane.registry.table import get_group, put_groups
from quotaplane.settings import History
from tests.unit.registry.groups_cases import Command, quota, warned

ALL = {
    "mode": "soft",
    "enforcement_percent": 12.5,
    "weight": 2.0,
    "priority": -3,
    **{name: float(i + 1) for i, name in enumerate(FLOOR_COLUMNS)},
    "brokers": {"*": {"ceiling": {"publish_bytes_per_s": 1e6}}, "b1": {"weight": 2.0}},
    "throttle": {"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard"}},
    "pulsar_fields": {"replicationDispatchRateInMsgs": 400},
}
NOTHING = {**DEFAULTS, **{name: {} for name in JSON_COLUMNS}}


def options(policy: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in policy.items()
        for word in (
            "--" + name.replace("_", "-"),
            json.dumps(value) if isinstance(value, dict) else str(value),
        )
    ]


def policy_of(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in POLICY_COLUMNS}


def test_a_policy_is_put_shown_and_kept_until_something_else_is_given(groups: Command) -> None:
    assert policy_of(groups("put", "g")) == NOTHING
    assert policy_of(groups("put", "g", *options(ALL))) == ALL
    assert policy_of(groups("put", "g", "--publish-messages-per-s", "9")) == ALL
    changed = groups("put", "g", "--weight", "5", "--mode", "shadow")
    assert policy_of(changed) == {**ALL, "weight": 5.0, "mode": "shadow"}
    assert groups("get", "g") == changed
    assert groups("list") == [changed]


def test_defaults_given_are_written_as_null_and_are_no_change(
    groups: Command, history: History
) -> None:
    made = groups("put", "g")
    assert groups("put", "g", *options(NOTHING)) == made
    assert open_table(history, "resource_groups").version() == 1
    groups("put", "g", *options(ALL))
    assert policy_of(groups("put", "g", *options(NOTHING))) == NOTHING
    row = get_group(history, "g")
    assert [row[name] for name in POLICY_COLUMNS] == [None] * len(POLICY_COLUMNS)


def test_the_same_policy_written_otherwise_is_no_change(groups: Command, history: History) -> None:
    groups("put", "g", "--brokers", '{"b": {"weight": 2, "floor": {}}, "a": {"priority": 1}}')
    groups("put", "g", "--brokers", '{"a":{"priority":1},"b":{"weight":2.0},"c":{}}')
    assert open_table(history, "resource_groups").version() == 1


def test_terms_of_brokers_may_come_from_a_file(groups: Command, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"b1": {"priority": 7}}', "utf-8")
    made = groups("put", "g", "--brokers", str(tmp_path / "b.json"))
    assert made["brokers"] == {"b1": {"priority": 7}}


def test_files_of_groups_carry_the_policy(groups: Command, tmp_path: Path) -> None:
    cells = {c: json.dumps(v) if isinstance(v, dict) else v for c, v in ALL.items()}
    with (tmp_path / "f.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["group", *POLICY_COLUMNS])
        writer.writeheader()
        writer.writerows([{"group": "csv", **cells}, {"group": "plain"}])
    (tmp_path / "f.json").write_text(json.dumps([{"group": "json", **ALL}]), "utf-8")
    assert groups("put", "--file", str(tmp_path / "f.csv")) == {"groups": 2}
    assert groups("put", "--file", str(tmp_path / "f.json")) == {"groups": 1}
    found = {row["group"]: policy_of(row) for row in groups("list")}
    assert found == {"csv": ALL, "json": ALL, "plain": NOTHING}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--mode", "loud"], "--mode: invalid choice"),
        (["--enforcement-percent", "101"], "enforcement_percent: must be a number from 0 to 100"),
        (["--enforcement-percent", "ten"], "--enforcement-percent: must be a number, not 'ten'"),
        (["--weight", "0"], "group 'g': weight: must be a number from 1e-09 to 1e+09, not 0"),
        (["--weight", "0100"], "not '0100': write a plain decimal number, such as 100 or 0.5"),
        (["--publish-bytes-per-s", "1_000"], "or unlimited, not '1_000': write a plain decimal"),
        (["--weight", "nan"], "--weight: must be a number, not 'nan'"),
        (["--priority", "1.5"], "--priority: must be a whole number, not '1.5'"),
        (["--priority", "1234567"], "priority: must be a number from -100 to 100, not 1234567"),
        (["--enforcement-percent", "100.0000001"], "from 0 to 100, not 100.0000001"),
        (["--priority", "1e30"], "--priority: must be a number from -100 to 100, not '1e30'"),
        (["--priority", "9007199254740993"], "to 100, not '9007199254740993'"),
        (["--floor-publish-bytes-per-s", "-1"], "floor_publish_bytes_per_s: must be a number from"),
        (["--floor-publish-bytes-per-s", "unlimited"], "must be a number, not 'unlimited'"),
        (["--brokers", "nowhere.json"], "nowhere.json: can't be read"),
        (["--brokers", "{"], "--brokers: not JSON"),
        (["--brokers", '{"b": {}, "b": {}}'], "--brokers: b: the key occurs twice"),
        (["--brokers", '{"b": {"weigt": 2}}'], "--brokers: b.weigt: unknown key"),
        (["--brokers", '{"b": {"weight": "2"}}'], "--brokers: b.weight: must be a number, not"),
        (["--brokers", '{"b": {"weight": 0}}'], "--brokers: b.weight: must be at least 1e-09"),
        (["--brokers", '{"b": {"priority": 1.5}}'], "--brokers: b.priority: must be a whole"),
        (["--brokers", '{"b": {"floor": {"x": 1}}}'], "--brokers: b.floor.x: unknown key"),
        (["--brokers", '{"b": {"ceiling": {"publish_bytes_per_s": -1}}}'], "must be at least 0"),
        (["--brokers", '{"": {}}'], "1 to 512 printable characters"),
        (["--file", "x.csv", "--weight", "1"], "GROUP or --file"),
    ],
)
def test_a_wrong_policy_is_one_line_and_writes_nothing(
    groups: Command, history: History, words: list[str], problem: str
) -> None:
    assert problem in groups.refused("put", "g", *words)
    assert not Path(history.path).exists()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("f.csv", "group,weight\na,x\n", "f.csv: line 2: weight: must be a number, not 'x'"),
        ("f.csv", "group,mode\na,loud\n", "group 'a': mode: must be one of hard, soft, shadow"),
        ("f.csv", 'group,brokers\na,"{""b"": 1}"\n', "line 2: brokers: b: must be an object"),
        ("f.csv", "group,brokers\na,b\n", "f.csv: line 2: brokers: not JSON"),
        ("f.json", '[{"group": "a", "weight": true}]', "f.json: 0: weight: must be a number"),
        ("f.json", '[{"group": "a", "mode": 1}]', "f.json: 0: mode: must be one of"),
        ("f.json", '[{"group": "a", "brokers": "{}"}]', "brokers: must be an object, not a string"),
    ],
)
def test_a_wrong_policy_in_a_file_is_one_line(
    groups: Command, tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert problem in groups.refused("put", "--file", str(tmp_path / name))


def test_history_tells_changes_of_the_policy(groups: Command) -> None:
    groups("put", "g", "--by", "ann")
    groups("put", "g", "--mode", "soft", "--by", "bob")
    first, second = groups("history", "g")
    assert (second["by"], second["from"]) == ("bob", first["to"])
    assert second["to"] == {**first["to"], "mode": "soft"}


def test_the_parent_is_shown(groups: Command) -> None:
    for name in ("a", "a::b::c", "x::y"):
        groups("put", name)
    assert [(row["group"], row["parent"]) for row in groups("list")] == [
        ("a", None),
        ("a::b::c", "a"),
        ("x::y", None),
    ]
    assert groups("put", "a::b")["parent"] == "a"
    assert groups("get", "a::b::c")["parent"] == "a::b"


def test_what_a_parent_cannot_give_is_a_warning(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    rate, floor = "--publish-messages-per-s", "--floor-publish-messages-per-s"
    assert warned(history, capsys, "a", rate, "100") == []
    assert warned(history, capsys, "a::b", rate, "100", floor, "60") == []
    more = "group 'a::c': publish_messages_per_s: 200 is more than the 100 of its parent 'a'"
    assert warned(history, capsys, "a::c", rate, "200") == [more]
    floors = (
        "group 'a': floor_publish_messages_per_s: the floors of its children add up to 120, "
        "more than its quota of 100"
    )
    assert warned(history, capsys, "a::c", rate, "50", floor, "60") == [floors]
    assert warned(history, capsys, "a", rate, "unlimited") == []
    assert len(warned(history, capsys, "a", rate, "40")) == 3
    assert warned(history, capsys, "other") == []
    assert get_group(history, "a")["publish_messages_per_s"] == 40.0


def test_many_warnings_are_cut_short(history: History) -> None:
    said: list[str] = []
    names = ["a", *(f"a::{i}" for i in range(20))]
    quotas = quota().repeat(21, axis=0)
    quotas[:, 0] = [1.0] + [2.0] * 20
    put_groups(history, names, quotas, "ann", warn=said.append)
    assert (len(said), said[-1]) == (11, "and 10 more")


def test_a_policy_of_another_shape_is_refused(history: History) -> None:
    with pytest.raises(InputError, match="policy must have 1 rows, not 2"):
        put_groups(history, ["g"], quota(), "ann", policy=pa.table({"weight": [1.0, 2.0]}))
    with pytest.raises(InputError, match="policy: height: unknown key"):
        put_groups(history, ["g"], quota(), "ann", policy=pa.table({"height": [1.0]}))
