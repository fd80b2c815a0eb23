"""The queries of a server's requests: they end in time, and leave the threads to others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Queries, Workers
from quotaplane.settings import History
from tests.histories import ENDLESS, make_history


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
