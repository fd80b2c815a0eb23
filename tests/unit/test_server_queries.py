"""The queries of a server's requests: they end in time, and leave the threads to others."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from quotaplane.query import duckdb_engine
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.server.queries import Queries
from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Workers
from quotaplane.settings import History
from tests.histories import ENDLESS, make_history
from tests.job import write_round


@pytest.fixture
def queries(history: History) -> Queries:
    make_history(history)
    return Queries(history, Workers(0.5), 0.5)


def test_queries_that_are_too_late_free_their_threads(queries: Queries) -> None:
    def ask(engine: DuckDBEngine) -> Any:
        return engine.ask("SELECT 1").rows

    def ask_endless(engine: DuckDBEngine) -> Any:
        return engine.ask(ENDLESS)

    async def ask_all() -> tuple[list[Any], Any]:
        late = await asyncio.gather(
            *(queries.ask(n, ask_endless) for n in range(2)), return_exceptions=True
        )
        until = asyncio.get_running_loop().time() + 10.0
        while asyncio.get_running_loop().time() < until:
            try:
                return late, await queries.ask("other", ask)
            except AnswerError:
                continue
        return late, None

    late, other = asyncio.run(ask_all())
    assert [(error.status, "ask for less" in error.reason) for error in late] == 2 * [(503, True)]
    assert other == [(1,)]
    queries.close()


def test_requests_that_ask_the_same_share_a_query(queries: Queries) -> None:
    asked = []

    def ask(engine: DuckDBEngine) -> int:
        asked.append(engine)
        return len(asked)

    async def ask_all() -> list[int]:
        return list(await asyncio.gather(*(queries.ask("same", ask) for _ in range(5))))

    assert asyncio.run(ask_all()) == [1] * 5
    queries.close()


def test_an_engine_that_read_many_files_is_replaced_and_closed_with_its_last_query(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_history(history)
    write_round(history, epoch=1)
    queries = Queries(history, Workers(60.0), 60.0)
    monkeypatch.setattr(duckdb_engine, "MOST_FILES", 1)
    monkeypatch.setattr(duckdb_engine, "_TABLES_AT_ONCE", 0)
    closed: list[DuckDBEngine] = []
    close = DuckDBEngine.close
    monkeypatch.setattr(DuckDBEngine, "close", lambda self: (closed.append(self), close(self))[1])
    used: list[DuckDBEngine] = []
    amid = threading.Event()

    def ask(engine: DuckDBEngine) -> int:
        used.append(engine)
        return len(engine.ask("SELECT * FROM rounds").rows)

    def ask_slowly(engine: DuckDBEngine) -> int:
        found = ask(engine)
        assert amid.wait(20.0)
        assert engine not in closed
        return found

    async def ask_all() -> list[int]:
        slow = asyncio.create_task(queries.ask("slow", ask_slowly))
        while not slow.done() and not (used and used[0].is_full):
            await asyncio.sleep(0.01)
        second = await queries.ask("second", ask)
        amid.set()
        return [await slow, second]

    first, second = asyncio.run(ask_all())
    assert first == second > 0
    assert used[0] is not used[1]
    assert closed == [used[0]]
    queries.close()
