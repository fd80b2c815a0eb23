"""Answers of `quotaplane groups`: what changed, in which form, and that it can be put back."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from quotaplane.cli.main import main
from quotaplane.console.text_table import unescape_cell
from quotaplane.groups.policy_options import OPTIONS
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.table import list_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.registry.groups_cases import Command, version

pytestmark = pytest.mark.slow

TERMS = {
    "b1": {"weight": 2.0, "priority": 1, "floor": {"publish_bytes_per_s": 0.1}},
    "*": {"ceiling": {"total_messages_per_s": 1e6}},
}
THROTTLE = {"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard", "window_s": 60.0}}
FIELDS = {"replicationDispatchRateInMsgs": 400, "replicatorDispatchRate": {"a->b": [1, None]}}


def _option(column: str) -> str:
    return f"--{column.replace('_', '-')}"


EVERYTHING = [
    *("--mode", "soft", "--enforcement-percent", "12.5", "--weight", "0.3", "--priority", "-7"),
    *("--brokers", json.dumps(TERMS), "--throttle", json.dumps(THROTTLE)),
    *("--pulsar-fields", json.dumps(FIELDS)),
    *(word for n, c in enumerate(RATE_COLUMNS) for word in (_option(c), str(1 / (n + 3)))),
    *(word for n, c in enumerate(RATE_COLUMNS) for word in (_option(f"floor_{c}"), str(n / 7))),
]
"""A value that is not the default for every option."""
OTHER = [
    *("--mode", "shadow", "--weight", "77", "--brokers", "{}", "--throttle", "{}"),
    *("--publish-messages-per-s", "9", "--floor-total-bytes-per-s", "1"),
]
"""Other values, of which nothing is strange."""


@pytest.fixture
def table(groups: Command, history: History) -> list[dict[str, Any]]:
    """Groups of all kinds; returns their rows without when and by whom."""
    groups("put", "@acme")  # to a spreadsheet it begins a formula, to YAML it needs quotes
    groups("put", '@acme::a "b", c', *EVERYTHING)
    groups("put", "no", "--quota", "write 10MB/min", "--quota", "read 3 reqs/s")
    groups("put", "--user", "CN=alice", "--client", "<default>", "--quota", "5 mutations/hour")
    return held(history)


def held(history: History) -> list[dict[str, Any]]:
    rows = list_groups(history).to_pylist()
    return [{k: v for k, v in row.items() if not k.startswith("updated_")} for row in rows]


def test_the_table_has_every_option(table: list[dict[str, Any]]) -> None:
    full = next(row for row in table if row["group"].startswith("@acme::"))
    columns = [*RATE_COLUMNS, *(column for option in OPTIONS for column in option.columns)]
    empty = [column for column in columns if full[column] is None]
    assert empty == [f"floor_{RATE_COLUMNS[0]}"]  # 0 is the default


@pytest.mark.parametrize("form", ["json", "csv"])
def test_what_list_prints_can_be_put_back(
    groups: Command, history: History, table: list[dict[str, Any]], tmp_path: Path, form: str
) -> None:
    file = tmp_path / f"kept.{form}"
    file.write_text(groups.text("list", f"--{form}"), "utf-8")
    before = version(history)
    counts = {"groups": 4, "created": 0, "changed": 0, "unchanged": 4}
    assert groups.answer("put", "--file", str(file)) == {**counts, "changes": []}
    assert version(history) == before
    # Also into a table that has something else by now, or nothing.
    for row in table:
        groups("put", row["group"], *OTHER)
    groups("delete", "no")
    assert groups.answer("put", "--file", str(file))["created"] == 1
    assert held(history) == table
    other = History(path=str(tmp_path / "other"))
    make_history(other)
    assert main(["groups", "put", "--file", str(file), "--history", other.path]) == 0
    assert held(other) == table


def test_what_get_prints_can_be_put_back(
    groups: Command, history: History, table: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "one.json").write_text(f"[{groups.text('get', 'no')}]", "utf-8")
    (tmp_path / "one.csv").write_text(groups.text("get", "no", "--csv"), "utf-8")
    for file in ("one.json", "one.csv"):
        groups("put", "no", "--publish-bytes-per-s", "1", "--total-bytes-per-s", "1")
        groups("put", "--file", str(tmp_path / file))
        assert held(history) == table


def test_what_export_prints_can_be_applied(
    groups: Command, history: History, table: list[dict[str, Any]], tmp_path: Path
) -> None:
    text = groups.text("export")
    file = tmp_path / "groups.yaml"
    file.write_text(text, "utf-8")
    answer = groups.answer("apply", "-f", str(file), "--prune")
    assert (answer["unchanged"], answer["changes"]) == (len(table), [])
    for row in table:
        groups("put", row["group"], *OTHER)
    groups("put", "new")
    groups("apply", "-f", str(file), "--prune")
    assert held(history) == table
    assert yaml.safe_load(text)[0] == {"group": "@acme"}


def test_an_empty_table_can_be_exported_and_applied(
    groups: Command, history: History, tmp_path: Path
) -> None:
    make_history(history)
    (tmp_path / "none.yaml").write_text(groups.text("export"), "utf-8")
    assert groups.answer("apply", "-f", str(tmp_path / "none.yaml"))["groups"] == 0


def test_put_says_created_changed_or_unchanged(groups: Command, history: History) -> None:
    make_history(history)
    put = ["put", "g", "--publish-bytes-per-s", "5"]
    created = groups.answer(*put, "--weight", "1")
    assert created["result"] == "created"
    assert created["changes"] == {"publish_bytes_per_s": {"from": None, "to": 5.0}}
    unchanged = groups.answer(*put)
    assert (unchanged["result"], unchanged["changes"]) == ("unchanged", {})
    changed = groups.answer("put", "g", "--publish-bytes-per-s", "unlimited", "--mode", "soft")
    assert (changed["result"], changed["publish_bytes_per_s"]) == ("changed", None)
    assert changed["changes"] == {
        "publish_bytes_per_s": {"from": 5.0, "to": None},
        "mode": {"from": "hard", "to": "soft"},
    }
    terms = groups.answer("put", "g", "--brokers", '{"b": {"weight": 2}}')["changes"]
    assert terms == {"brokers": {"from": {}, "to": {"b": {"weight": 2.0}}}}


def _csv(folder: Path, *lines: str) -> Path:
    file = folder / "f.csv"
    file.write_text("\n".join(("group,weight", *lines)) + "\n", "utf-8")
    return file


def test_a_dry_run_answers_the_same_and_writes_nothing(
    groups: Command, history: History, tmp_path: Path
) -> None:
    groups("put", "a", "--weight", "5")
    before = version(history)
    words = ["--file", str(_csv(tmp_path, "a,1", "b,2"))]
    for action in (["put", "a", "--weight", "7"], ["put", *words], ["delete", "a"]):
        tried = groups.answer(*action, "--dry-run")
        assert tried.pop("dry_run") is True
        assert version(history) == before
        if action[0] == "put":
            made = groups.answer(*action)
            times = ("updated_at", "updated_by")
            assert {k: v for k, v in tried.items() if k not in times} == {
                k: v for k, v in made.items() if k not in times
            }
            before = version(history)
    assert groups.refused("delete", "nope", "--dry-run") == "group 'nope' does not exist"
    assert "must be a number" in groups.refused("put", "a", "--weight", "-1", "--dry-run")


@pytest.mark.parametrize("action", [["put", "g"], ["apply", "-f", "FILE"]])
def test_a_dry_run_creates_no_history(
    groups: Command, history: History, tmp_path: Path, action: list[str]
) -> None:
    (tmp_path / "g.yaml").write_text("group: g", "utf-8")
    words = [word.replace("FILE", str(tmp_path / "g.yaml")) for word in action]
    assert "there is no history at" in groups.refused(*words, "--init", "--dry-run")
    assert not Path(history.path).exists()


def test_history_shows_why(groups: Command) -> None:
    groups("put", "g", "--by", "ann")
    groups("put", "g", "--weight", "2", "--by", "ann", "--why", "Black Friday: «more»")
    groups("put", "g", "--weight", "2", "--why", "nothing changes, so nothing is recorded")
    groups("delete", "g", "--why", "retired")
    groups("restore", "--from-history", "g", "--why", "not yet")
    whys = [None, "Black Friday: «more»", "retired", "not yet"]
    assert [change["why"] for change in groups("history", "g")] == whys
    assert "--why must not be empty" in groups.refused("put", "g", "--why", " ")


def test_tables_are_for_people(groups: Command, table: list[dict[str, Any]]) -> None:
    listed = groups.text("list", "--table").splitlines()
    assert listed[0].split()[:2] == ["group", "publish_messages_per_s"]
    assert listed[-1] == "(4 rows)"
    assert "floor_publish_messages_per_s" not in listed[0]  # all have the default
    assert listed[2].split()[:2] == ["@acme", "-"]
    one = groups.text("get", "no", "--table").splitlines()
    assert ["publish_messages_per_s", "unlimited"] in [line.split() for line in one]
    changed = groups.text("put", "no", "--weight", "2", "--table", "--dry-run").splitlines()
    assert changed[0].split() == ["group", "result", "field", "from", "to"]
    assert changed[2].split() == ["no", "changed", "weight", "1", "2"]
    assert changed[-1] == "dry run: nothing was changed"
    history = groups.text("history", "@acme", "--table").splitlines()
    assert history[0].split() == ["version", "at", "by", "why", "group", "change"]
    assert history[2].endswith("@acme  created")
    resolved = groups.text("resolve", "--user", "CN=alice", "--client", "x", "--table")
    assert '{"user": "CN=alice", "client": "x"}' in resolved


def test_csv_is_for_scripts(groups: Command, table: list[dict[str, Any]]) -> None:
    rows = list(csv.DictReader(io.StringIO(groups.text("list", "--csv"))))
    assert rows[0]["group"] == "'@acme"
    assert [unescape_cell(row["group"]) for row in rows] == [row["group"] for row in table]
    assert json.loads(rows[1]["brokers"]) == TERMS
    assert rows[0]["publish_bytes_per_s"] == "unlimited"
    changes = list(csv.DictReader(io.StringIO(groups.text("history", "--csv"))))
    assert changes[0]["change"] == "created"
