"""`quotaplane groups apply`: the table becomes what YAML files say, in one commit."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.registry.apply import apply_groups
from quotaplane.registry.attachments import attach
from quotaplane.registry.group_files import read_group_files
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.registry.groups_cases import Command, names, quota, version

pytestmark = pytest.mark.slow

Write = Callable[..., Path]


@pytest.fixture
def write(history: History, tmp_path: Path) -> Write:
    """Writes files of groups, with the history's tables there."""
    make_history(history)

    def files(**texts: str) -> Path:
        for name, text in texts.items():
            file = tmp_path / "groups" / f"{name.replace('__', '/')}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        return tmp_path / "groups"

    return files


def test_a_folder_is_one_change_and_the_plan_says_what(
    groups: Command, history: History, write: Write
) -> None:
    groups("put", "kept", "--weight", "2")
    groups("put", "changed", "--weight", "2", "--publish-bytes-per-s", "7")
    groups("put", "gone")
    before = version(history)
    folder = write(
        kept="group: kept\nweight: 2\n",
        team__more="- group: changed\n  weight: 3\n- group: new\n  quotas: [write 60 reqs/min]\n",
    )
    (folder / ".hidden.yaml").write_text("not: a group")
    (folder / "notes.txt").write_text("not yaml")
    planned = groups.answer("apply", "-f", str(folder), "--prune", "--dry-run")
    assert version(history) == before
    done = groups.answer("apply", "-f", str(folder), "--prune", "--by", "ann", "--why", "v2")
    assert version(history) == before + 1
    assert planned == {**done, "dry_run": True}
    counts = {"groups": 3, "created": 1, "changed": 1, "deleted": 1, "unchanged": 1}
    assert {name: done[name] for name in counts} == counts
    assert done["changes"] == [
        {
            "group": "changed",
            "result": "changed",
            "changes": {
                "publish_bytes_per_s": {"from": 7.0, "to": None},
                "weight": {"from": 2.0, "to": 3.0},
            },
        },
        {
            "group": "new",
            "result": "created",
            "changes": {
                "publish_messages_per_s": {"from": None, "to": 1.0},
                "throttle": {"from": {}, "to": groups("get", "new")["throttle"]},
            },
        },
        {"group": "gone", "result": "deleted", "changes": {}},
    ]
    assert names(history) == ["changed", "kept", "new"]
    last = groups("history")[-3:]
    assert {(c["version"], c["by"], c["why"]) for c in last} == {(before + 1, "ann", "v2")}
    again = groups.answer("apply", "-f", str(folder), "--prune")
    assert (again["unchanged"], version(history)) == (3, before + 1)


def test_a_dry_run_can_answer_by_its_exit_code(groups: Command, write: Write) -> None:
    file = str(write(a="group: a") / "a.yaml")
    words = ["-f", file, "--dry-run", "--exit-code"]
    assert json.loads(groups.text("apply", *words, code=12))["created"] == 1
    groups("apply", "-f", file)
    assert json.loads(groups.text("apply", *words))["unchanged"] == 1
    assert "--exit-code goes with --dry-run" in groups.refused("apply", "-f", file, "--exit-code")


def test_groups_of_a_cluster_are_not_deleted(
    history: History, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    put_groups(history, ["copied", "touched"], quota().repeat(2, axis=0), "pulsar:west")
    put_groups(history, ["touched", "mine"], quota(1.0).repeat(2, axis=0), "ann")
    words = ["-f", str(write(a="group: a")), "--prune", "--history", history.path]
    assert main(["groups", "apply", *words]) == 2
    assert "would delete 1 of 1 groups" in capsys.readouterr().err
    assert main(["groups", "apply", *words, "--delete-all"]) == 0
    err = capsys.readouterr().err
    assert err == (
        "quotaplane: not deleted, as they are copied from a Pulsar cluster (delete them there): "
        "copied, touched\n"
    )
    assert names(history) == ["a", "copied", "touched"]


def test_a_group_that_is_attached_is_not_deleted_and_nothing_else_changes(
    groups: Command, history: History, write: Write
) -> None:
    groups("put", "used")
    attach(history, "namespace", "acme/orders", "used", "ann")
    folder = str(write(a="group: a"))
    assert groups.refused("apply", "-f", folder, "--prune", "--delete-all") == (
        "group 'used' is in use: namespace acme/orders is attached"
    )
    assert names(history) == ["used"]


@pytest.mark.parametrize("text", ["", "# none yet\n", "[]"])
def test_an_empty_file_deletes_nothing_unless_that_is_said(
    groups: Command, history: History, write: Write, text: str
) -> None:
    for name in ("a", "b", "c", "d"):
        groups("put", name)
    folder = write(all="[{group: a}, {group: b}, {group: c}]", empty=text)
    for words in (("-f", str(folder)), ("-f", str(folder / "empty.yaml"))):
        for more in ((), ("--dry-run",)):
            refused = groups.refused("apply", *words, "--prune", *more)
            assert refused.startswith(f"{folder}/empty.yaml: has no group, and --prune would")
            assert refused.endswith("or give --delete-all as well")
    assert groups.answer("apply", "-f", str(folder))["deleted"] == 0
    assert groups.answer("apply", "-f", str(folder), "--prune", "--delete-all")["deleted"] == 1
    groups("apply", "-f", str(folder / "empty.yaml"), "--prune", "--delete-all")
    assert names(history) == []


def test_more_than_a_third_of_all_groups_is_deleted_only_if_that_is_said(
    groups: Command, history: History, write: Write
) -> None:
    put_groups(history, [f"g{n}" for n in range(21)], quota(1.0).repeat(21, axis=0), "ann")
    before = version(history)
    lines = [f"- {{group: g{n}, publish_messages_per_s: 1}}\n" for n in range(21)]
    fewer = str(write(f="".join(lines[:13])))
    for more in ((), ("--dry-run",)):
        assert groups.refused("apply", "-f", fewer, "--prune", *more) == (
            "--prune would delete 8 of 21 groups, more than a third: g13, g14, g15, g16, g17 and 3 "
            "more; if that is meant, give --delete-all as well"
        )
    assert version(history) == before
    file = str(write(f="".join(lines[:14])))
    assert groups.answer("apply", "-f", file, "--prune")["deleted"] == 7
    file = str(write(f=lines[0]))
    assert groups.answer("apply", "-f", file, "--prune", "--delete-all")["deleted"] == 13
    assert groups.refused("apply", "-f", file, "--delete-all") == "--delete-all goes with --prune"


def test_stdin_is_a_file_that_may_be_empty(
    groups: Command, history: History, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"group: piped")))
    assert groups.answer("apply", "-f", "-")["created"] == 1
    # Its end has been read: that of a program that failed looks the same.
    assert groups.refused("apply", "-f", "-", "--prune").startswith("stdin: has no group")
    assert names(history) == ["piped"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- group: a\n- group: b\n  Weight: 2\n", "f.yaml: line 3: Weight: unknown key"),
        ("- weight: 1\n", "f.yaml: line 1: group: must be a name"),
        ("# none\n- group: 17\n", "f.yaml: line 2: group: must be a name, not 17 (quote it)"),
        ("group: 'a::'\n", "f.yaml: line 1: group 'a::': has an empty part"),
        ("- group: a\n- group: b\n  weight: -1\n", "f.yaml: line 2: weight: must be a number from"),
        ("group: a\npublish_bytes_per_s: -1\n", "line 2: publish_bytes_per_s: must be a number"),
        ("group: a\nquotas: [write x]\n", "f.yaml: line 2: quotas: 'write x' is no quota"),
        ("group: a\nthrottle:\n  '*': {lav: 1}\n", "f.yaml: line 2: throttle: *.lav: unknown key"),
        ("group: a\nbrokers:\n  1: {}\n", "f.yaml: line 3: the key 1 must be text: quote it"),
        ("group: a\ngroup: b\n", "f.yaml: line 2: group: the key occurs twice"),
        ("- group: a\n- group: a\n", "f.yaml: line 2: group 'a' is given twice: also /"),
        ("- [a]\n", "f.yaml: line 1: must be a mapping (key: value), not a list"),
        ("group: a\nupdated_at: '2026-01-01'\n", "f.yaml: line 2: updated_at: unknown key"),
        ("group: [a\n", "f.yaml: line 2: not YAML: "),
        ("group: \x01\n", "f.yaml: not YAML: "),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place_and_nothing_is_done(
    groups: Command, history: History, write: Write, text: str, problem: str
) -> None:
    folder = write(a="group: whole", f=text)
    said = groups.refused("apply", "-f", str(folder), "--prune")
    assert problem in said
    assert said.startswith(f"{folder}/f.yaml: ")
    assert names(history) == []


def test_a_wrong_place_is_told(groups: Command, write: Write, tmp_path: Path) -> None:
    write()
    (tmp_path / "empty").mkdir()
    empty = groups.refused("apply", "-f", str(tmp_path / "empty"), "--prune")
    assert re.fullmatch(r"/.*/empty: there is no file \*.yaml or \*.yml in this folder", empty)
    assert "nowhere: can't be read" in groups.refused("apply", "-f", str(tmp_path / "nowhere"))
    assert "are required: -f/--file" in groups.refused("apply")


def test_aliases_of_aliases_are_refused(groups: Command, write: Write) -> None:
    """Each line names the one above nine times: 9^20 items if they were copied."""
    lines = ["group: a", "x0: &x0 [1]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 21)]
    refused = groups.refused("apply", "-f", str(write(f="\n".join(lines))))
    assert "with aliases (*) written out, there are more than" in refused


def test_terms_may_be_shared_within_a_file(groups: Command, write: Write) -> None:
    text = (
        "- &base\n  group: a\n  throttle: &hard {'*': {mode: hard}}\n  weight: 2\n"
        "- {<<: *base, group: b}\n- {group: c, throttle: *hard}\n"
    )
    groups("apply", "-f", str(write(f=text)))
    a, b, c = groups("list")
    assert a["throttle"] == b["throttle"] == c["throttle"] != {}
    assert [row["weight"] for row in (a, b, c)] == [2.0, 2.0, 1.0]


def test_changes_of_others_meanwhile_are_not_lost(history: History, write: Write) -> None:
    given = read_group_files(str(write(f="".join(f"- group: g{n}\n" for n in range(5)))))

    def apply(writer: int) -> None:
        apply_groups(history, given, str(writer), prune=False)

    def put(writer: int) -> None:
        put_groups(history, [f"p{writer}"], quota(1.0), str(writer))

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, n) for n in range(3) for work in (apply, put)]:
            future.result()
    assert names(history) == [*(f"g{n}" for n in range(5)), "p0", "p1", "p2"]
