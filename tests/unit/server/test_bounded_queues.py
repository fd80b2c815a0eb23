"""All that programs keep of what others send is bounded; docs/operate/reliability.md lists it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.types import Message, Receive, Scope, Send

from quotabalance.agent.executor import Executor
from quotabalance.agent.plans_listener import PlansListener
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.settings import Balance
from quotabalance.wire.balance_plans import PlanMessage
from quotaplane.agents.conditions import Conditions
from quotaplane.errors import InputError
from quotaplane.registry.change_feed import ChangeFeed
from quotaplane.registry.table import put_groups
from quotaplane.server.change_log import ChangeLog, newest_of
from quotaplane.server.guard import Guard
from quotaplane.server.workers import Workers
from quotaplane.settings import History
from quotaplane.transport.pulsar_options import PREFETCHED, reading_options, source_options
from tests.histories import make_history
from tests.unit.pulsar.test_pulsar_source import pulsar_settings
from tests.unit.registry.groups_cases import quota

SCOPE: Scope = {
    "type": "http",
    "method": "PUT",
    "raw_path": b"/",
    "headers": [(b"content-type", b"application/json")],
}


class Requests:
    """Requests to a guarded app that answers none before ``go_on``."""

    def __init__(self, **bounds: int) -> None:
        self.answers: list[int] = []
        self._go_on = asyncio.Event()
        self._guard = Guard(self._app, hosts=None, **bounds)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await self._go_on.wait()
        await send({"type": "http.response.start", "status": 200})

    async def send(self, *parts: int) -> None:
        """A request whose body comes in parts of these sizes."""
        left = [*parts]

        async def receive() -> Message:
            size = left.pop(0)
            return {"type": "http.request", "body": b" " * size, "more_body": bool(left)}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.answers.append(message["status"])

        await self._guard(SCOPE, receive, send)

    def go_on(self) -> None:
        self._go_on.set()


def test_bodies_of_all_requests_together_have_a_bound() -> None:
    async def run() -> None:
        requests = Requests(max_body_bytes=1000, most_held_bytes=2500)
        waiting = [asyncio.create_task(requests.send(600, 400)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await requests.send(400, 200)
        await requests.send(501)
        assert requests.answers == [503, 503]
        waiting.append(asyncio.create_task(requests.send(500)))  # there is room for this one
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(requests.answers) == 2
        requests.go_on()
        await asyncio.gather(*waiting)
        assert requests.answers[2:] == [200] * 3
        await requests.send(400, 601)
        assert requests.answers[5:] == [413]
        # All room is back, also that of refused requests.
        requests.answers.clear()
        for _ in range(5):
            await requests.send(600, 400)
        assert requests.answers == [200] * 5

    asyncio.run(run())


def plan(number: int, moves: int) -> PlanMessage:
    bundles = [f"acme/n{number}/0x00000000_0x{n:08x}" for n in range(1, moves + 1)]
    decisions = Decisions([Move(name, "a", "b", 1.0, "Overloaded", "") for name in bundles])
    return PlanMessage(
        epoch=1,
        seq=number,
        decided_at_ms=1000 + number,
        mode="propose",
        plan_hash=decisions.plan_hash(1000 + number),
        decisions=decisions,
    )


def test_plans_that_may_be_approved_have_a_bound() -> None:
    link: Any = None
    conditions = Conditions(lambda _: None)
    listener = PlansListener(link, conditions, 1800.0, lambda: 1e9, kept_actions=100)
    plans = [plan(number, 30) for number in range(10)]
    for each in plans:
        listener.take(each)
        listener.take(each)  # the same again counts once
    assert listener.with_hash(plans[-3].plan_hash).seq == 7
    with pytest.raises(InputError, match="no such plan"):
        listener.with_hash(plans[-4].plan_hash)
    large = plan(99, 300)
    listener.take(large)
    assert listener.with_hash(large.plan_hash) is large
    assert len(listener._by_hash) == 1


def test_an_executor_remembers_some_durations_of_moves() -> None:
    rest: Any = None
    executor = Executor(Balance(), rest, "c", None, lambda _: None)
    executor.took_s.extend(float(n) for n in range(5000))
    assert len(executor.took_s) == 1000
    assert executor.took_s[-1] == 4999.0


def test_our_readers_of_pulsar_fetch_few_messages_ahead() -> None:
    transport: Any = pulsar_settings().transport
    assert reading_options(transport).receiver_queue_size == PREFETCHED
    assert source_options(transport)["receiver_queue_size"] == str(PREFETCHED)
    assert PREFETCHED * 5 * 1024 * 1024 <= 320 * 1024 * 1024


def feed_of(*rows_of_commits: int) -> ChangeFeed:
    """Commits 1, 2, ... with so many rows each."""
    versions = np.repeat(np.arange(1, 1 + len(rows_of_commits)), rows_of_commits)
    log = {version: {"version": version} for version in range(1, 1 + len(rows_of_commits))}
    return ChangeFeed(pa.table({"_commit_version": versions}), log, len(rows_of_commits))


@pytest.mark.parametrize(
    ("commits", "kept"),
    [((3, 4, 3), [1, 2, 3]), ((4, 4, 3), [2, 3]), ((4, 8, 3), [3]), ((1, 2, 30), [3])],
)
def test_a_server_keeps_the_newest_changes(commits: tuple[int, ...], kept: list[int]) -> None:
    found = newest_of(feed_of(*commits), 10)
    assert sorted(set(found.rows["_commit_version"].to_pylist())) == kept
    assert len(found.rows) == sum(commits[version - 1] for version in kept)
    assert sorted(found.log) == kept
    assert found.version == len(commits)


def test_changes_are_still_found_after_older_ones_were_left_out(history: History) -> None:
    make_history(history)
    log = ChangeLog(history, Workers(30.0), most_rows=3)
    for number in range(1, 7):
        put_groups(history, ["g"], quota(float(number)), by="test")
        page = asyncio.run(log.page(None, None, 0, 10))
        assert page.changes[0]["to"]["publish_messages_per_s"] == number
        assert page.total <= 2
