"""A table that is opened repeatedly is the newest, whatever became of its log meanwhile."""

from __future__ import annotations

from pathlib import Path

from quotaplane.history.cached_table import CachedTable
from quotaplane.history.tables import CHECKPOINT_INTERVAL
from quotaplane.settings import History
from tests.unit.enforce.enforce_cluster import history_in
from tests.unit.enforce.test_enforce_quotas import put


def change(history: History, *values: float) -> None:
    for value in values:
        put(history, a=value)


def test_it_follows_changes(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    table = CachedTable(history, "resource_groups")
    first = table.open().version()
    assert table.open().version() == first
    change(history, 1.0)
    assert table.open().version() == first + 1
    change(history, 2.0, 3.0)
    assert table.open().version() == first + 3


def test_the_log_behind_it_may_be_gone(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    table = CachedTable(history, "resource_groups")
    behind = table.open().version()
    change(history, *range(CHECKPOINT_INTERVAL + 2))
    newest = CachedTable(history, "resource_groups").open().version()
    for file in Path(history.path, "resource_groups", "_delta_log").glob("*.json"):
        if int(file.stem) <= CHECKPOINT_INTERVAL:
            file.unlink()
    assert table.open().version() == newest > behind + CHECKPOINT_INTERVAL
