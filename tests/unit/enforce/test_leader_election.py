"""Several enforcers and one topic: never do two write at once, and one leads within 10 s."""

from __future__ import annotations

import asyncio
import random

import httpx
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.leader_election import (
    BEAT_EVERY_S,
    HOLD_S,
    LATE_S,
    LeaderElection,
    LeaderRest,
)
from quotaplane.errors import ClusterError, TransportError
from tests.unit.enforce.election_cases import ElectionRoom, ElectionSeat
from tests.unit.pulsar_admin.cluster_cases import IN_MEMORY, transport_to

TAKES_OVER_WITHIN_S = 10.0


class Enforcers:
    """Several of them; time passes when a test says so."""

    def __init__(self, *names: str) -> None:
        self.now_s = 0.0
        self.room = ElectionRoom()
        self.said: list[str] = []
        self.access: dict[str, ElectionSeat] = {}
        self.elections: dict[str, LeaderElection] = {}
        self.frozen: set[str] = set()
        for name in names:
            self.begin(name)

    def begin(self, name: str) -> None:
        access = self.access[name] = ElectionSeat(self.room, name)
        say, log = self.said.append, Conditions(self.said.append)
        self.elections[name] = LeaderElection(access, log, say, clock=lambda: self.now_s)

    def kill(self, name: str) -> None:
        """As by SIGKILL: the connection closes if it is not cut off, and nothing is said."""
        del self.elections[name]
        seat = self.access.pop(name)
        if not seat.is_cut_off:
            seat.close()

    def leaders(self) -> list[str]:
        leaders = [name for name, election in self.elections.items() if election.leads()]
        assert len(leaders) <= 1, f"{leaders} write at once"
        return leaders

    async def step(self, name: str) -> None:
        try:
            await self.elections[name].step()
        except TransportError:
            self.said.append("failed")

    async def pass_time(self, seconds: float, tick_s: float = BEAT_EVERY_S) -> None:
        for _ in range(round(seconds / tick_s)):
            self.now_s += tick_s
            for name in list(self.elections):
                self.leaders()
                if name not in self.frozen:
                    await self.step(name)
        self.leaders()

    async def until_one_leads(self, besides: str = "") -> float:
        """Seconds until another one than ``besides`` leads."""
        begun_s = self.now_s
        while self.leaders() in ([], [besides]):
            await self.pass_time(BEAT_EVERY_S)
            assert self.now_s < begun_s + 60
        return self.now_s - begun_s


async def test_the_first_one_leads_at_once_and_a_second_one_waits_and_says_for_whom() -> None:
    both = Enforcers("a", "b")
    await both.step("a")
    assert both.leaders() == ["a"]
    await both.pass_time(100)
    assert both.leaders() == ["a"]
    assert both.said == ["enforcer: a leads; this one waits, and writes nothing"]


async def test_after_a_clean_stop_another_one_leads_at_once() -> None:
    both = Enforcers("a", "b")
    await both.pass_time(10)
    await both.elections.pop("a").leave()
    assert await both.until_one_leads() <= BEAT_EVERY_S


@pytest.mark.parametrize("how", ["killed", "cut off", "frozen"])
async def test_after_any_other_end_another_one_leads_within_10_s(how: str) -> None:
    both = Enforcers("a", "b")
    await both.pass_time(10)
    if how == "killed":
        both.kill("a")
    elif how == "cut off":
        both.access["a"].is_cut_off = True
    else:
        both.frozen.add("a")
    assert await both.until_one_leads("a") <= TAKES_OVER_WITHIN_S
    assert both.leaders() == ["b"]
    # The first one comes back: it finds that it has lost, and waits.
    both.frozen.clear()
    if how != "killed":
        both.access["a"].is_cut_off = False
        await both.step("a")
        await both.pass_time(100)
    assert both.leaders() == ["b"]


async def test_a_restart_after_a_kill_waits_until_the_one_before_can_not_write_any_more() -> None:
    one = Enforcers("a")
    await one.pass_time(10)
    one.kill("a")
    one.begin("a again")
    assert LATE_S < await one.until_one_leads() <= LATE_S + HOLD_S + BEAT_EVERY_S


async def test_one_whose_own_connection_fails_takes_nothing_from_the_leader() -> None:
    both = Enforcers("a", "b")
    await both.pass_time(10)
    both.access["b"].is_cut_off = True
    await both.pass_time(60)
    both.access["b"].is_cut_off = False
    await both.pass_time(60)
    assert both.leaders() == ["a"]


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_two_never_write_at_once(seed: int) -> None:
    chance = random.Random(seed)
    world = Enforcers("a", "b", "c")
    for _ in range(150):
        name = chance.choice(sorted(world.elections))
        fault = chance.choice(["none"] * 4 + ["freeze", "thaw", "cut", "join", "kill"])
        if fault == "freeze":
            world.frozen.add(name)
        elif fault == "thaw":
            world.frozen.clear()
        elif fault in ("cut", "join"):
            world.access[name].is_cut_off = fault == "cut"
        elif fault == "kill" and len(world.elections) > 1:
            world.kill(name)
            world.begin(f"{name}'")
        await world.pass_time(chance.choice([0.25, 1.0, 3.0]), tick_s=0.25)
    # Once nothing fails any more, one leads within the time that is promised.
    world.frozen.clear()
    for access in world.access.values():
        access.is_cut_off = False
    assert await world.until_one_leads() <= TAKES_OVER_WITHIN_S


async def test_a_request_that_had_to_wait_is_not_sent_after_the_lead_is_lost() -> None:
    """While the cluster is slow, requests wait for a connection for longer
    than another enforcer waits before it writes."""
    sent: list[str] = []
    answered = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        sent.append(f"{request.method} {request.url.path}")
        await answered.wait()
        # A redirect is sent as well, and by then the lead is lost.
        return httpx.Response(307 if request.url.path == "/c" else 204, headers={"location": "/d"})

    wire, world = httpx.MockTransport(answer), Enforcers("a")
    async with LeaderRest(transport_to(IN_MEMORY), concurrency=2, wire=wire) as rest:
        rest.election = world.elections["a"]
        await rest.election.step()
        waits = [
            asyncio.create_task(rest.ask(method, path))
            for method, path in (("PUT", "/a"), ("PUT", "/c"), ("PUT", "/b"), ("GET", "/e"))
        ]
        await asyncio.sleep(1.0)
        assert sent == ["PUT /a", "PUT /c"]
        world.now_s += HOLD_S + 1
        assert not rest.election.leads()
        answered.set()
        results = await asyncio.gather(*waits, return_exceptions=True)
    assert [isinstance(each, ClusterError) for each in results] == [False, True, True, False]
    assert sent == ["PUT /a", "PUT /c", "GET /e"]
