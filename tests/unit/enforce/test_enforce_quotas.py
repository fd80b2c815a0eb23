"""The history's quotas and epochs, as the enforcer reads them."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.history.store import table_uri
from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from tests.job import write_round
from tests.unit.enforce.enforce_cluster import EPOCH, history_in
from tests.virtual_loop import CALL_S


@pytest.fixture
def history(tmp_path: Path) -> History:
    return history_in(tmp_path)


def put(history: History, policy: dict[str, Any] | None = None, **messages: float) -> None:
    quotas = np.full((len(messages), len(DIMENSIONS)), np.nan)
    quotas[:, 0] = list(messages.values())
    rows = None if policy is None else pa.table({k: [v] for k, v in policy.items()})
    put_groups(history, list(messages), quotas, "test", policy=rows)


def watched(history: History, patience_s: float = 10.0) -> tuple[QuotaTable, list[str]]:
    lines: list[str] = []
    conditions = Conditions(lines.append, clock=itertools.count(0.0, 100.0).__next__)
    return QuotaTable(history, conditions, patience_s=patience_s), lines


def quota(table: QuotaTable, group: str) -> float:
    assert table.quotas is not None
    return float(table.quotas.quota[table.quotas.place[group], 0])


async def test_quotas_are_followed(history: History) -> None:
    table, lines = watched(history)
    put(history, a=100.0, b=50.0)
    await table.look()
    assert (quota(table, "a"), quota(table, "b")) == (100, 50)
    first = table.quotas
    await table.look()
    assert table.quotas is first  # nothing changed, and nothing was read
    put(history, a=70.0)
    delete_groups(history, ["b"], "test")
    await table.look()
    assert quota(table, "a") == 70
    assert table.quotas is not None
    assert "b" not in table.quotas.place
    assert np.isinf(table.quotas.quota[0, 1:]).all()
    assert not lines


async def test_who_is_enforced_and_where(history: History) -> None:
    table, _ = watched(history)
    put(history, a=1.0)
    put(history, {"mode": "soft"}, b=1.0)
    put(history, {"mode": "shadow"}, c=1.0)
    put(history, {"mode": "hard", "enforcement_percent": 10.0}, d=1.0)
    await table.look()
    assert table.quotas is not None
    assert table.quotas.hard.tolist() == [True, False, False, True]
    assert table.quotas.in_part.tolist() == [False, False, False, True]


async def test_what_can_not_be_read_stays_and_that_is_told(history: History) -> None:
    table, lines = watched(history)
    put(history, a=100.0)
    folder = Path(history.path, "resource_groups")
    away = folder.with_name("away")
    shutil.move(folder, away)
    await table.look()
    assert table.looked
    assert table.quotas is None
    assert lines[0].endswith("; limits are not capped by quotas; retrying")
    shutil.move(away, folder)
    await table.look()
    assert quota(table, "a") == 100
    assert "quotas in the history: over after" in lines[1]
    shutil.move(folder, away)
    table._groups._table = None
    await table.look()
    assert quota(table, "a") == 100
    assert lines[2].endswith("; the quotas read last stay in use; retrying")


async def test_silent_storage_is_not_waited_for_and_asked_once(history: History) -> None:
    patience_s = 0.6 * CALL_S
    table, lines = watched(history, patience_s)
    begun_s = asyncio.get_running_loop().time()
    await table.look()
    assert asyncio.get_running_loop().time() - begun_s == pytest.approx(patience_s)
    assert (table.looked, table.quotas, len(lines)) == (True, None, 1)
    assert "no answer within" in lines[0]
    # The read that began then is over before a second one would be.
    await table.look()
    assert table.quotas is not None


async def test_the_newest_epoch_is_that_of_all_rounds(history: History) -> None:
    table, lines = watched(history)
    for epoch in (EPOCH + 7, EPOCH + 3):
        write_round(history, epoch)
    await table.look_at_epochs()
    assert table.newest_epoch == EPOCH + 7
    write_round(history, EPOCH + 20)
    await table.look_at_epochs()
    assert table.newest_epoch == EPOCH + 20
    assert table.newest_round_ms == 1_790_000_000_000
    shutil.rmtree(history.path)
    table._rounds._table = None
    await table.look_at_epochs()
    assert table.newest_epoch is None
    assert "checked against the clock only" in lines[0]


async def test_a_log_that_was_cut_off_behind_us_is_read_anew(history: History) -> None:
    table, lines = watched(history)
    put(history, a=100.0)
    await table.look()

    class Cut(DeltaTable):
        def update_incremental(self) -> None:
            raise OSError("the log is gone")

    table._groups._table = Cut(table_uri(history, "resource_groups"))
    put(history, a=90.0)
    await table.look()
    assert quota(table, "a") == 90
    assert not lines
