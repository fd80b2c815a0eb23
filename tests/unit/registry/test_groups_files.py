"""Many groups from a file: all of them or none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.group_input import read_groups
from quotaplane.registry.table import get_group, list_groups, put_groups
from quotaplane.settings import History
from tests.unit.registry.groups_cases import Command, rates, version

pytestmark = pytest.mark.slow


CSV = """\
dispatch_bytes_per_s,group,publish_messages_per_s,quotas,throttle
5,old,,,
unlimited,"new, with comma",7.5,"[""write 1KB/min""]","{""*"": {""mode"": ""hard""}}"
"""
OF_OLD = {"group": "old", "dispatch_bytes_per_s": 5, "publish_messages_per_s": None, "quotas": None}
OF_NEW = {"group": "new, with comma", "publish_messages_per_s": 7.5}
OF_NEW |= {"quotas": ["write 1KB/min"], "throttle": {"*": {"mode": "hard"}}}


@pytest.mark.parametrize(
    ("name", "text"), [("groups.csv", CSV), ("groups.json", json.dumps([OF_OLD, OF_NEW]))]
)
def test_a_file_of_groups(groups: Command, tmp_path: Path, name: str, text: str) -> None:
    groups("put", "old", "--publish-messages-per-s", "100", "--dispatch-bytes-per-s", "9")
    (tmp_path / name).write_text(text, "utf-8")
    assert groups("put", "--file", str(tmp_path / name)) == {"groups": 2}
    new, old = groups("list")
    assert (rates(old), old["throttle"]) == ([100.0, None, None, 5.0, None, None, None, None], {})
    assert rates(new) == [7.5, 1024 / 60, *[None] * (len(RATE_COLUMNS) - 2)]
    assert new["throttle"]["publish_bytes"] == {"mode": "hard", "window_s": 60.0}


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
    assert version(history) == 2
    assert get_group(history, "tenant-7/g7")["publish_bytes_per_s"] == 1.0
