"""The history's quotas and epochs, as the enforcer reads them."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from tests.job import write_round
from tests.unit.enforce.enforce_cluster import EPOCH, history_in


@pytest.fixture
def history(tmp_path: Path) -> History:
    return history_in(tmp_path)


def put(history: History, policy: dict[str, Any] | None = None, **messages: float) -> None:
    quotas = np.full((len(messages), 7), np.nan)
    quotas[:, 0] = list(messages.values())
    rows = None if policy is None else pa.table({k: [v] for k, v in policy.items()})
    put_groups(history, list(messages), quotas, "test", policy=rows)


def watched(history: History) -> tuple[QuotaTable, list[str], Callable[[], None]]:
    lines: list[str] = []
    table = QuotaTable(
        history, Conditions(lines.append, clock=itertools.count(0.0, 100.0).__next__)
    )
    return table, lines, lambda: asyncio.run(table.look())


def quota(table: QuotaTable, group: str) -> float:
    assert table.quotas is not None
    return float(table.quotas.quota[table.quotas.place[group], 0])


def test_quotas_are_followed(history: History) -> None:
    table, lines, look = watched(history)
    put(history, a=100.0, b=50.0)
    look()
    assert (quota(table, "a"), quota(table, "b")) == (100, 50)
    first = table.quotas
    look()
    assert table.quotas is first  # nothing changed, and nothing was read
    put(history, a=70.0)
    delete_groups(history, ["b"], "test")
    look()
    assert quota(table, "a") == 70
    assert table.quotas is not None
    assert "b" not in table.quotas.place
    assert np.isinf(table.quotas.quota[0, 1:]).all()
    assert not lines


def test_who_is_enforced_and_where(history: History) -> None:
    table, _, look = watched(history)
    put(history, a=1.0)
    put(history, {"mode": "soft"}, b=1.0)
    put(history, {"mode": "shadow"}, c=1.0)
    put(history, {"mode": "hard", "enforcement_percent": 10.0}, d=1.0)
    look()
    assert table.quotas is not None
    assert table.quotas.hard.tolist() == [True, False, False, True]
    assert table.quotas.in_part.tolist() == [False, False, False, True]


def test_what_can_not_be_read_stays_and_that_is_told(history: History) -> None:
    table, lines, look = watched(history)
    put(history, a=100.0)
    folder = Path(history.path, "resource_groups")
    away = folder.with_name("away")
    shutil.move(folder, away)
    look()
    assert table.looked
    assert table.quotas is None
    assert lines[0].endswith("; limits are not capped by quotas; retrying")
    shutil.move(away, folder)
    look()
    assert quota(table, "a") == 100
    assert "quotas in the history: over after" in lines[1]
    shutil.move(folder, away)
    table._groups._table = None
    look()
    assert quota(table, "a") == 100
    assert lines[2].endswith("; the quotas read last stay in use; retrying")


def test_storage_that_does_not_answer_is_not_waited_for_and_asked_once(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quotaplane.enforce.agent.quota_table._PATIENCE_S", 0.05)
    answers = threading.Event()
    table, lines, _ = watched(history)
    asked: list[int] = []
    read = table._read_quotas

    def slow() -> Any:
        asked.append(1)
        answers.wait(10.0)
        return read()

    table._read_quotas = slow  # type: ignore[method-assign]

    async def scene() -> None:
        for _ in range(3):
            await table.look()
        assert (table.looked, len(asked), len(lines)) == (True, 1, 1)
        assert "no answer within" in lines[0]
        answers.set()
        monkeypatch.setattr("quotaplane.enforce.agent.quota_table._PATIENCE_S", 60.0)
        await table.look()
        assert table.quotas is not None

    asyncio.run(scene())


def test_the_newest_epoch_is_that_of_all_rounds(history: History) -> None:
    table, lines, _ = watched(history)
    for epoch in (EPOCH + 7, EPOCH + 3):
        write_round(history, epoch)
    asyncio.run(table.look_at_epochs())
    assert table.newest_epoch == EPOCH + 7
    write_round(history, EPOCH + 20)
    asyncio.run(table.look_at_epochs())
    assert table.newest_epoch == EPOCH + 20
    assert table.newest_round_ms == 1_790_000_000_000
    shutil.rmtree(history.path)
    table._rounds._table = None
    asyncio.run(table.look_at_epochs())
    assert table.newest_epoch is None
    assert "checked against the clock only" in lines[0]


def test_a_log_that_was_cut_off_behind_us_is_read_anew(history: History) -> None:
    table, lines, look = watched(history)
    put(history, a=100.0)
    look()

    class Cut:
        def update_incremental(self) -> None:
            raise OSError("the log is gone")

    table._groups._table = Cut()  # type: ignore[assignment]
    put(history, a=90.0)
    look()
    assert quota(table, "a") == 90
    assert not lines
