"""Names that no report will have: allowed, with a warning that says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.cli.main import main
from quotaplane.groups.name_warnings import broker_warnings, name_warnings
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.registry.groups_cases import Command, warned

LOOK_ALIKE = """\
- {group: "USER=alice", publish_messages_per_s: 5}
- {group: "acme ", publish_messages_per_s: 5}
- {group: "acme", publish_messages_per_s: 5}
- {group: "b", brokers: {"b*": {weight: 2}}}
"""


def doubts(*names: str) -> dict[str, str]:
    """The doubts about each of the names."""
    lines = name_warnings(pa.array(names, pa.string()), np.full(len(names), True))
    return {line.partition(": ")[0].removeprefix("group "): line for line in lines}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("client-id=app,user=bar", "looks like a scope and is none: a scope is user=NAME, client="),
        ("USER=alice", "looks like a scope"),
        ("client_id=a", "looks like a scope"),
        ("ip=10.0.0.1", "looks like a scope"),
        ("user =alice", "looks like a scope"),
        ("user-principal=alice", "looks like a scope"),
        (" acme", "has a space at an end"),
        ("acme:: orders", "has a space at an end"),
        ("acme ::orders", "has a space at an end"),
        ("cafe\u0301", r"is 'cafe\u0301', and most programs write 'caf\xe9' (Unicode's NFC)"),
        ("ac\u3164me", r"has an invisible character: 'ac\u3164me'"),
        ("acme\ufe0f", r"has an invisible character: 'acme\ufe0f'"),
        ("\u0430cme", r"has letters of Latin and Cyrillic, which look alike: '\u0430cme'"),
        ("orders.taken-over", "keeps the quota of 'orders' while the enforcer has it"),
        ("acme/*", "is no pattern, but one group's name"),
    ],
)
def test_a_doubtful_name(name: str, says: str) -> None:
    [line] = doubts(name, "other").values()
    assert line.startswith(f"group {name!r}: ")
    assert says in line


@pytest.mark.parametrize(
    "name",
    [
        *("acme", "acme::orders", "tenant a/b c", "a=b", "username", "ip", "userspace=1"),
        *("user=alice", "user=<default>,client=app-1", "client=a%2A"),
        *("j\u00fcrgen", "\u043e\u0440\u0434\u0435\u0440", "\u6771\u4eac", "a.taken-over.b"),
    ],
)
def test_a_name_without_doubts(name: str) -> None:
    assert doubts(name, "other") == {}


@pytest.mark.parametrize(
    "twins", [("acme", "Acme"), ("\u00c9cole", "\u00e9cole"), ("\uff41cme", "acme")]
)
def test_twins_are_doubtful_together_and_not_alone(twins: tuple[str, str]) -> None:
    assert all(not doubts(name, "other") for name in twins)
    found = doubts("other", *twins)
    assert list(found) == [repr(name) for name in twins]
    for line, other in zip(found.values(), twins[::-1], strict=True):
        assert f"differs from {other!a} only in case, or in what can't be seen" in line


def test_twins_of_doubtful_names_are_said_once() -> None:
    found = doubts("acme", "acme ", "cafe\u0301", "caf\u00e9")
    assert "only in case, or in what can't be seen" in found["'acme'"]
    assert "space" in found["'acme '"]
    assert r"differs from 'cafe\u0301'" in found["'caf\xe9'"]


def test_only_the_named_groups_are_looked_at() -> None:
    names = pa.array(["Acme", "acme", "x*", " y"])
    lines = list(name_warnings(names, np.array([True, False, False, False])))
    assert [line[:13] for line in lines] == ["group 'Acme':"]


def test_brokers_with_doubtful_names() -> None:
    terms = '{"*": {"weight": 2.0}, "b*": {"weight": 2.0}, "b:8080": {"weight": 3.0}}'
    [line] = broker_warnings("g", terms)
    assert line.startswith("group 'g': brokers: 'b*': is no pattern")
    [line] = broker_warnings("g", '{"b ": {"weight": 2.0}}')
    assert line.startswith("group 'g': brokers: 'b ': has a space at an end")
    assert list(broker_warnings("g", None)) == []


def test_put_warns(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    assert warned(history, capsys, "acme") == []
    [line] = warned(history, capsys, "ACME")
    assert "differs from 'acme' only in case" in line
    [line] = warned(history, capsys, "b", "--brokers", '{"b*": {"weight": 2}}')
    assert "brokers: 'b*': is no pattern" in line


def test_apply_warns_also_in_a_dry_run(
    groups: Command, history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_history(history)
    (tmp_path / "f.yaml").write_text(LOOK_ALIKE, "utf-8")
    words = ["groups", "apply", "-f", str(tmp_path / "f.yaml"), "--history", history.path]
    for more in (["--dry-run"], []):
        assert main([*words, *more]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 4
        assert all(line.startswith("quotaplane: warning: group ") for line in lines)
    assert len(groups("list")) == 4


@pytest.mark.parametrize("extra", [(), ("--dry-run",)])
def test_nobody_changes_the_enforcers_copies_at_the_command_line(
    groups: Command, history: History, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    make_history(history)
    (tmp_path / "g.yaml").write_text('- {group: "orders.taken-over", publish_messages_per_s: 5}\n')
    (tmp_path / "g.csv").write_text("group,publish_messages_per_s\norders.taken-over,5\n")
    for words in (
        "put orders.taken-over --weight 2",
        f"put --file {tmp_path}/g.csv",
        f"apply --file {tmp_path}/g.yaml",
        "delete orders.taken-over",
    ):
        line = groups.refused(*words.split(), *extra)
        assert "group 'orders.taken-over' keeps the quota of group 'orders' for the" in line
    assert groups("list") == []


def test_a_copy_that_the_table_has_from_an_earlier_version_can_be_removed_and_restored(
    groups: Command, history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_history(history)
    put_groups(history, ["a.taken-over"], np.full((1, len(RATE_COLUMNS)), 5.0), "somebody")
    (tmp_path / "g.yaml").write_text("[]\n")
    groups.answer("apply", "--file", str(tmp_path / "g.yaml"), "--prune", "--delete-all")
    assert groups("list") == []
    assert main(["groups", "restore", "--from-history", "--history", history.path]) == 0
    capsys.readouterr()
    assert [row["group"] for row in groups("list")] == ["a.taken-over"]
