"""Many groups from a file: all of them or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quotaplane.history.store import open_table
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.group_input import read_groups
from quotaplane.registry.table import get_group, list_groups, put_groups
from quotaplane.settings import History
from tests.unit.registry.groups_cases import Command, rates

FILES = [
    (
        "groups.csv",
        "dispatch_bytes_per_s,group,publish_messages_per_s\n"
        '5,old,\nunlimited,"new, with comma",7.5\n',
    ),
    (
        "groups.json",
        '[{"group": "old", "dispatch_bytes_per_s": 5, "publish_messages_per_s": null},'
        ' {"group": "new, with comma", "publish_messages_per_s": 7.5}]',
    ),
]


@pytest.mark.parametrize(("name", "text"), FILES)
def test_a_file_of_groups(groups: Command, tmp_path: Path, name: str, text: str) -> None:
    groups("put", "old", "--publish-messages-per-s", "100", "--dispatch-bytes-per-s", "9")
    (tmp_path / name).write_text(text, "utf-8")
    assert groups("put", "--file", str(tmp_path / name)) == {"groups": 2}
    new, old = groups("list")
    assert rates(old) == [100.0, None, None, 5.0, None, None, None]
    assert rates(new) == [7.5, *[None] * (len(RATE_COLUMNS) - 1)]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("f.csv", "name\na\n", "f.csv: line 1: there is no column group"),
        ("f.csv", "", "f.csv: line 1: there is no column group"),
        ("f.csv", "group,weight,weight\na,5,6\n", "line 1: the column weight occurs 2 times"),
        ("f.csv", "group,group\na,a\n", "f.csv: line 1: the column group occurs 2 times"),
        ("f.csv", "group,\na,\n", "f.csv: line 1: column 2 has no name"),
        ("f.csv", "group,publish_bytes_per_s\na,0100\n", "line 2: publish_bytes_per_s: must be"),
        ("f.csv", "group,publish_bytes_per_s\na,1_000\n", "line 2: publish_bytes_per_s: must be"),
        ("f.csv", "group,publish_bytes_per_s\na,-0.0\n", "line 2: publish_bytes_per_s: must be"),
        ("f.csv", "group,weight\na,\u0663\n", "line 2: weight: must be a number"),
        ("f.csv", "group,height\na,1\n", "f.csv: line 2: height: unknown key"),
        ("f.csv", "group,publish_bytes_per_s\na\n", "f.csv: line 2: has not as many cells"),
        ("f.csv", "group\na,1\n", "f.csv: line 2: has not as many cells"),
        ("f.csv", "group,publish_bytes_per_s\na,1\nb,-1\n", "line 3: publish_bytes_per_s: must be"),
        ("f.csv", "group,publish_bytes_per_s\n,1\n", "f.csv: line 2: group: must be a name"),
        ("f.csv", "group\na\nb\na\n", "f.csv: line 4: group 'a' is given twice: also /"),
        ("f.json", '[{"group": "a"}, {"group": "a"}]', "f.json: 1: group 'a' is given twice"),
        ("f.csv", 'group\n"a\n', "f.csv: not CSV: "),
        ("f.csv", b"group\n\xff\n", "f.csv: not CSV: "),
        ("f.json", "{}", "f.json: must be a list of groups, not an object"),
        ("f.json", "[1]", "f.json: 0: must be an object, not a number"),
        ("f.json", '[{"group": "a"}, {"group": 1}]', "f.json: 1: group: must be a name"),
        ("f.json", '[{"group": "a", "x": 1}]', "f.json: 0: x: unknown key"),
        ("f.json", '[{"group": "a", "publish_bytes_per_s": true}]', "must be a number"),
        ("f.json", '[{"group": "a", "publish_bytes_per_s": NaN}]', "NaN is not a JSON number"),
        ("f.json", '[{"group": "a", "publish_bytes_per_s": -0.0}]', "-0.0: would be read as zero"),
        ("f.json", "[", "f.json: not JSON"),
    ],
)
def test_a_wrong_file_is_one_line_and_nothing_of_it_is_put(
    groups: Command, tmp_path: Path, name: str, text: str | bytes, problem: str
) -> None:
    groups("put", "there")
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert problem in groups.refused("put", "--file", str(tmp_path / name))
    assert [row["group"] for row in groups("list")] == ["there"]


def test_an_empty_file_changes_nothing(groups: Command, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("group\n", "utf-8")
    assert groups("put", "--file", str(tmp_path / "f.csv")) == {"groups": 0}


def test_many_groups_are_one_commit(history: History, tmp_path: Path) -> None:
    n = 20_000
    lines = "".join(f"tenant-{i % 97}/g{i},{i}\n" for i in range(n))
    (tmp_path / "f.csv").write_text("group,publish_bytes_per_s\n" + lines, "utf-8")
    names, quotas, policy, timeframe_s = read_groups(str(tmp_path / "f.csv"))
    assert policy is None
    assert timeframe_s is None
    put_groups(history, names, quotas, "ann")
    assert list_groups(history).num_rows == n
    rows = put_groups(history, names, np.where(np.arange(n)[:, None] == 7, 1.0, quotas), "bob")
    assert rows["updated_by"].to_pylist().count("bob") == 1
    assert open_table(history, "resource_groups").version() == 2
    assert get_group(history, "tenant-7/g7")["publish_bytes_per_s"] == 1.0
