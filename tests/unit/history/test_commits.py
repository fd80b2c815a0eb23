"""Writers that change one table at the same time, on a store where a change takes a second."""

from __future__ import annotations

import heapq
import random
from pathlib import Path

import numpy as np
import pytest

from quotaplane.history import commits
from quotaplane.history.commits import Turns
from quotaplane.history.store import ensure_tables, open_table
from quotaplane.model import DIMENSIONS
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import list_groups, put_groups
from quotaplane.settings import History


def refused(writers: int, puts: int, *, least_s: float, most_s: float, pause_s: float) -> int:
    """How many of each writer's changes are given up, with a simulated clock.

    An attempt takes ``least_s`` to ``most_s``, and is lost if another one ended meanwhile.
    """
    version = given_up = 0
    left = [puts] * writers
    turns: dict[int, Turns] = {}
    read: dict[int, int] = {}
    events = [(0.01 * writer, writer, True) for writer in range(writers)]
    while events:
        now_s, writer, begins = heapq.heappop(events)
        if begins:
            turns.setdefault(writer, Turns(now_s)).begin(version, now_s)
            read[writer] = version
            heapq.heappush(events, (now_s + random.uniform(least_s, most_s), writer, False))
            continue
        wait_s = None
        if read[writer] == version:
            version += 1
        else:
            wait_s = turns[writer].wait_s(now_s)
            given_up += wait_s is None
        if wait_s is None:
            del turns[writer]
            left[writer] -= 1
            wait_s = pause_s
        if left[writer]:
            heapq.heappush(events, (now_s + wait_s, writer, True))
    return given_up


@pytest.mark.parametrize(("seed", "pause_s"), [(1, 0.0), (2, 0.0), (3, 0.3), (4, 2.0)])
def test_four_writers_on_a_slow_store_are_never_refused(seed: int, pause_s: float) -> None:
    random.seed(seed)
    assert refused(4, 100, least_s=0.5, most_s=1.0, pause_s=pause_s) == 0


def test_a_change_that_fails_without_any_other_writer_is_given_up_soon() -> None:
    turns = Turns(0.0)
    attempts = 0
    wait_s: float | None = 0.0
    while wait_s is not None:
        turns.begin(5, 0.0)
        attempts += 1
        wait_s = turns.wait_s(0.01)
    assert attempts == 21


def test_the_files_of_many_changes_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change reads all files: 400 changes of a table on a store took more than nine minutes.

    The authors of all changes are still known, and nothing seems to have changed again.
    """
    monkeypatch.setattr(commits, "MOST_SMALL_FILES", 4)
    history = History(path=str(tmp_path))
    ensure_tables(history)
    names = [f"g{number}" for number in range(9)]
    for name in names:
        put_groups(history, [name], np.full((1, len(DIMENSIONS)), 7.0), by=name)
    assert len(open_table(history, "resource_groups").file_uris()) < 4
    assert list_groups(history)["group"].to_pylist() == names
    changes = [(change["group"], change["by"]) for change in group_changes(history)]
    assert sorted(changes) == [(name, name) for name in names]
