"""Rates that administrators set on topics and namespaces: ceilings that outlive the enforcer's."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.agents.conditions import Conditions
from quotaplane.cli.main import main
from quotaplane.enforce.agent import leader_election
from quotaplane.enforce.agent.administrator_rates import AdministratorRates
from quotaplane.enforce.rate_writes import plan
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.enforce.subdivide import Divide, subdivide
from quotaplane.errors import HistoryError
from quotaplane.history.tables import ADMINISTRATOR_RATES
from quotaplane.model import FloatArray
from quotaplane.registry.recorded_rates import (
    AdministratorRate,
    Key,
    change_administrator_rates,
    list_administrator_rates,
)
from quotaplane.topics.rate_marks import Mark, mark_of, marked, unlimited_number
from tests.unit.enforce.enforce_cases import Cluster, layout_of, only_messages
from tests.unit.enforce.enforce_cluster import NAMESPACE, FakePulsar, administrators, full, ours_of
from tests.unit.enforce.rate_writer_rig import Rig
from tests.virtual_loop import run_virtually

INF = np.inf
A, B = ((full(topic), "publishRate") for topic in "ab")
LAWS: tuple[Divide, ...] = ("max_min", "even", "by_rate")


@pytest.fixture
def cluster(busy: FakePulsar) -> FakePulsar:
    busy.limit(300.0, safe=300.0)
    return busy


def recorded(cluster: FakePulsar, kind: str = "publish") -> dict[str, AdministratorRate]:
    """The table's rows by the local names of topics, or the namespace."""
    rows = list_administrator_rates(cluster.history, "blue")
    return {row.place.rpartition("/")[2]: row for row in rows if row.kind == kind}


def published(rate: dict[str, Any] | None) -> tuple[int, int]:
    assert rate is not None
    return rate["publishThrottlingRateInMsg"], rate["publishThrottlingRateInByte"]


# --- whose a rate is ------------------------------------------------------------------------------


@given(st.integers(1, 2**31 - 1), st.integers(1, 2**53), st.booleans())
def test_a_rate_of_ours_shows_its_mark(messages: int, in_bytes: int, in_place: bool) -> None:
    own = Mark.IN_PLACE if in_place else Mark.OURS
    unlimited = unlimited_number(in_place=in_place)
    assert mark_of(messages, unlimited) is mark_of(unlimited, in_bytes) is own
    rates = np.array([[messages, in_bytes]], np.float64)
    written = marked(rates, np.array([in_place]))
    assert mark_of(messages, int(written[0, 1])) is own
    assert rates[0, 1] - 64 < written[0, 1] <= max(rates[0, 1], 39)
    assert np.array_equal(marked(written, np.array([in_place])), written)


@given(st.integers(1, 10**6), st.sampled_from([2, 10, 60, 1000, 1024, 1 << 20]))
def test_a_rate_in_round_numbers_is_an_administrators(number: int, unit: int) -> None:
    assert mark_of(number, number * unit) is Mark.NONE
    assert mark_of(number, -1) is mark_of(-1, number) is mark_of(0, number) is Mark.NONE


# --- the division ---------------------------------------------------------------------------------


@given(
    st.integers(1, 10_000),
    st.lists(
        st.tuples(st.integers(0, 5000), st.booleans(), st.integers(1, 3000) | st.just(INF)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(LAWS),
)
def test_no_topic_is_above_its_ceiling_and_the_others_get_what_it_may_not_use(
    limit: int, topics: list[tuple[int, bool, float]], law: Divide
) -> None:
    layout = layout_of({f"t{i}": "b" for i in range(len(topics))}, "g")
    usage, saturated, ceilings = (
        np.repeat(np.array(each)[:, None], 4, axis=1) for each in zip(*topics, strict=True)
    )
    usage, ceilings = usage.astype(np.float64), ceilings.astype(np.float64)

    def rates(most: FloatArray | None) -> FloatArray:
        found = subdivide(
            layout, only_messages([limit]), usage, saturated, ceilings=most, law=law
        ).rates
        assert np.isposinf(found[:, 2:]).all()
        column: FloatArray = found[:, 0]
        return column

    given, most = rates(ceilings), ceilings[:, 0]
    assert (given <= most).all()
    assert (given == np.floor(given)).all()
    assert (given >= 1).all()
    free = rates(None)
    assert (given >= np.minimum(free, most) - 1).all()
    floor = np.floor(min(max(0.1 * limit / len(topics), 1.0), limit / len(topics)))
    if law == "even":
        # All of the limit is divided, as far as ceilings allow.
        room = np.minimum(most, max(limit, len(topics))).sum()
        assert given.sum() >= min(limit, room) - len(topics)
        assert given.sum() <= max(limit, len(topics))
    elif law == "by_rate":
        assert (given >= np.minimum(floor, most)).all()
    else:
        held, used = saturated[:, 0], usage[:, 0]
        use = np.where(held, given, np.minimum(given, used)).sum()
        assert use <= limit + len(topics)
        wants = np.minimum(np.where(held, INF, used), most).sum()
        if held.any():
            assert use >= min(limit, wants) - len(topics)


def test_a_topic_without_a_limit_gets_no_rate_and_keeps_its_administrators() -> None:
    layout = layout_of({"a": "b"}, "g")
    limits = np.array([[INF, INF, 10.0, INF]])
    ceilings = np.array([[5.0, INF, INF, 900.0]])
    nothing = np.zeros((1, 4))
    division = subdivide(layout, limits, nothing, nothing > 0, ceilings=ceilings)
    assert division.rates.tolist() == [[INF, INF, 10.0, 900.0]]
    assert division.unlimited.tolist() == [[True, True, False, True]]
    cluster = Cluster(layout, [INF], {})
    five = np.array([5.0, INF])
    cluster.topic_rates.read("a", 0, five, five, administrators=True, recorded=True)
    moves = plan(layout, limits, division, cluster.topic_rates.rates(1.0), significant_change=0.0)
    assert moves.kind.tolist() == [1]


# --- a running enforcer ---------------------------------------------------------------------------


async def test_an_administrators_lower_rate_stays_others_get_the_rest(cluster: FakePulsar) -> None:
    """The issue's case: a rate of 5 became 100."""
    five = administrators(5)
    cluster.rates[A] = five
    cluster.used[full("a")] = 5.0
    cluster.used[full("b")] = 500.0
    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: cluster.published().get("b", 0) >= 290)
        await running.until(lambda: "a" in recorded(cluster))
        await running.until(lambda: bool(running.lines))
        assert running.enforcer.status().administrators_rates == 1
    (line,) = running.lines
    assert line.startswith(f"administrators' rates: found on 1 topics: {full('a')}; these get no")
    assert cluster.rates == {A: five}
    assert not [write for write in cluster.topic_writes() if "/a/" in write]


async def test_a_higher_rate_is_kept(cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {
        "dispatchThrottlingRateInMsg": 60_000,
        "dispatchThrottlingRateInByte": 6_000_000,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": 60,
    }
    his = administrators(400, 1_000_000)
    cluster.rates[B] = his
    cluster.rates[full("b"), "dispatchRate"] = before
    at_commit: list[object] = []
    commit = AdministratorRates._commit

    async def noted(self: AdministratorRates, changes: Any) -> None:
        at_commit.append(cluster.rates.get(B))
        await commit(self, changes)

    monkeypatch.setattr(AdministratorRates, "_commit", noted)

    async with cluster.enforcing() as running:
        cluster.limit(300.0, safe=300.0, dispatch=90.0)
        await running.until(lambda: cluster.published().get("b", 400) < 100)
        key = "dispatchThrottlingRateInMsg"
        await running.until(lambda: cluster.rates[full("b"), "dispatchRate"][key] == 30)
        # In place of an administrator's rate; bytes are his.
        assert published(cluster.rates[B]) == (10, 999_975)
        assert published(cluster.rates[full("c"), "publishRate"]) == (10, -2)
        row = recorded(cluster, "dispatch")["b"]
        assert (row.cluster, row.resource_group, row.messages_per_s) == ("blue", "g", 1000.0)
        assert row.policy == json.dumps(before, sort_keys=True)
        assert "enforcer, process" in row.seen_by
    assert his in at_commit
    # As after a kill: nothing was given back, and the next run knows from the table and the mark.
    assert published(cluster.rates[B]) == (10, 999_975)

    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: running.enforcer.parts.topic_rates.recorded.sum() == 2)
        await running.ticks()
    assert running.lines == []
    assert cluster.rates == {B: his, (full("b"), "dispatchRate"): before}
    assert recorded(cluster) == {}


async def test_a_kill_between_record_and_write_changes_nothing(cluster: FakePulsar) -> None:
    for on_exit in ("keep", "remove"):
        # In the second run the record is there, and the write is not.
        cluster.rates[A] = administrators(5000)
        async with cluster.enforcing(on_exit=on_exit) as running:
            await running.until(lambda: cluster.published().get("a") == 300)
    assert running.lines == []
    assert cluster.rates == {A: administrators(5000)}


async def test_a_rate_changed_by_hand_is_the_new_ceiling(cluster: FakePulsar) -> None:
    cluster.rates[A] = administrators(5000)
    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: cluster.published().get("a") == 300)
        cluster.rates[A] = administrators(50)
        # At once another limit, which would be written over it.
        cluster.limit(200.0, safe=200.0)
        await running.until(lambda: recorded(cluster)["a"].messages_per_s == 50)
        await running.ticks(10)
        assert cluster.rates[A] == administrators(50)
        # An earlier leader, which did not know of an administrator's rate, writes late.
        cluster.rates[A] = ours_of(300)
        await running.until(lambda: cluster.rates[A] == ours_of(50, in_place=True))
        cluster.limit(30.0, safe=30.0)
        await running.until(lambda: published(cluster.rates[A]) == (30, -3))
        del cluster.rates[A]
        await running.until(lambda: "a" not in recorded(cluster))
        await running.until(lambda: cluster.rates.get(A) == ours_of(30))
        cluster.limit(300.0, safe=300.0)
        await running.until(lambda: cluster.published().get("a") == 300)
    assert cluster.rates == {}


async def test_a_group_that_becomes_unlimited_gives_the_rate_back(cluster: FakePulsar) -> None:
    cluster.rates[A] = administrators(5000)
    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: cluster.published().get("a") == 300)
        cluster.limit(INF, safe=INF)
        await running.until(lambda: cluster.rates == {A: administrators(5000)})
        await running.ticks(10)
        assert running.enforcer.status().given_back == 1
        assert running.enforcer.readings().numbers["writes"]["given_back",] == 1
        cluster.limit(100.0, safe=100.0)
        await running.until(lambda: cluster.published().get("a") == 100)
    assert cluster.rates == {A: administrators(5000)}


@pytest.mark.parametrize("meanwhile", [False, True], ids=["running", "down"])
async def test_a_detached_topic_gets_its_rate_back(cluster: FakePulsar, meanwhile: bool) -> None:
    cluster.rates[A] = administrators(5000)
    cluster.namespaces["acme/other"] = "g"

    def given_back() -> bool:
        return cluster.rates.get(A) == administrators(5000) and not recorded(cluster)

    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.published().get("a") == 300)
        if not meanwhile:
            cluster.namespaces[NAMESPACE] = None
            await running.until(given_back)
    cluster.namespaces[NAMESPACE] = None
    if meanwhile:
        async with cluster.enforcing() as running:
            await running.until(given_back)


async def test_an_administrators_rate_of_a_topic_that_leaves_is_let_be(cluster: FakePulsar) -> None:
    cluster.namespaces["acme/other"] = "g"
    async with cluster.enforcing() as running:
        await running.until(lambda: len(cluster.published()) == 3)
        cluster.rates[A] = administrators(7)
        cluster.namespaces[NAMESPACE] = None
        await running.until(lambda: set(cluster.published()) == {"a"})
        await running.until(lambda: not running.enforcer.parts.topic_rates.to_remove)
    assert cluster.rates == {A: administrators(7)}


async def test_a_rate_not_recorded_is_not_touched(
    cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.rates[A] = administrators(5000)
    full_disk = Mock(side_effect=HistoryError("history table administrator_rates: no space left"))
    async with cluster.enforcing(on_exit="remove") as running:
        with monkeypatch.context() as disk:
            disk.setattr(f"{AdministratorRates.__module__}.change_administrator_rates", full_disk)
            await running.until(lambda: set(cluster.published()) == {"a", "b", "c"})
            await running.until(lambda: len(running.lines) == 2)
            await running.ticks(20)
            assert cluster.rates[A] == administrators(5000)
        await running.until(lambda: cluster.published()["a"] == 300)
    failures = [line for line in running.lines if "no space left" in line]
    assert failures == [
        "rates of administrators: history table administrator_rates: no space left; topics whose "
        "administrator's rate is not recorded keep that rate; retrying"
    ]
    assert cluster.rates == {A: administrators(5000)}


async def test_a_lost_table_is_said_and_no_rate_is_raised(cluster: FakePulsar) -> None:
    cluster.rates[B] = administrators(40)
    async with cluster.enforcing() as running:
        await running.until(lambda: "b" in recorded(cluster))
        cluster.limit(60.0, safe=60.0)
        cluster.used[full("b")] = 500.0
        await running.until(lambda: cluster.published().get("b") == 30)
    shutil.rmtree(Path(cluster.history.path) / ADMINISTRATOR_RATES.name)
    cluster.limit(300.0, safe=300.0)
    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: cluster.published().get("a", 0) > 200)
        await running.until(lambda: "b" in recorded(cluster))
        await running.until(lambda: not running.enforcer.parts.topic_rates.administrators.any())
        assert cluster.published()["b"] == 30
    assert any(f"has lost those of 1 topics: {full('b')}" in line for line in running.lines)
    assert cluster.rates == {B: administrators(30)}


async def test_forged_rows_are_not_used(cluster: FakePulsar) -> None:
    seen = datetime.now(timezone.utc), "somebody"
    forged = [
        AdministratorRate("blue", full("b"), "publish", "g", 1.0, None, "[[]]", *seen),
        AdministratorRate("blue", full("c"), "other", "g", 1.0, None, "{}", *seen),
        AdministratorRate("blue", full("c"), "publish", "g", 1.0, None, '{"a": 1e999}', *seen),
    ]
    changes: dict[Key, AdministratorRate | None] = {(row.place, row.kind): row for row in forged}
    change_administrator_rates(cluster.history, "blue", changes, "somebody")
    cluster.rates[B] = ours_of(4, in_place=True)
    async with cluster.enforcing() as running:
        await running.until(lambda: {"a", "b", "c"} <= cluster.published().keys())
        await running.until(lambda: recorded(cluster)["b"].messages_per_s == 4)
        await running.until(lambda: len(running.lines) == 2)
        assert cluster.published()["b"] == 4
        assert running.enforcer.status().errors == 0
    assert any(f"has lost those of 1 topics: {full('b')}" in line for line in running.lines)


async def test_a_namespaces_rate_is_a_ceiling_for_each_of_its_topics(cluster: FakePulsar) -> None:
    cluster.namespace_rates[NAMESPACE, "publishRate"] = administrators(50)
    cluster.rates[B] = administrators(80)
    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: {"a", "b", "c"} <= cluster.published().keys())
        await running.until(lambda: cluster.published()["a"] == 50)
        await running.until(lambda: set(recorded(cluster)) == {"orders", "b"})
        assert cluster.published()["c"] <= 50
        row = recorded(cluster)["orders"]
        assert (row.place, row.messages_per_s, row.policy) == (NAMESPACE, 50.0, None)
    assert cluster.rates == {B: administrators(80)}
    assert cluster.namespace_rates == {(NAMESPACE, "publishRate"): administrators(50)}


async def test_the_brokers_own_rate_of_a_topic_is_a_ceiling_too(cluster: FakePulsar) -> None:
    cluster.runtime["maxPublishRatePerTopicInMessages"] = "60"
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.published().get("a") == 60)
        await running.until(lambda: cluster.default() == 60)  # of 75


# --- giving everything back -----------------------------------------------------------------------


def test_remove_gives_everything_back_and_says_so_in_a_line(
    cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.rates[A] = administrators(5000)

    async def limited() -> None:
        async with cluster.enforcing() as running:
            await running.until(lambda: cluster.published().get("a") == 300)
            await running.until(lambda: len(cluster.published()) == 3)

    run_virtually(limited())
    monkeypatch.setattr("quotaplane.transport.open_broker_link", lambda *_, **__: cluster.link)
    seat = Mock(leads=Mock(return_value=False), run=asyncio.Event.wait, leave=AsyncMock())
    monkeypatch.setattr(leader_election, "take_part", AsyncMock(return_value=seat))
    within_s = "quotaplane.enforce.agent.clean_stop._GIVEN_BACK_WITHIN_S"
    monkeypatch.setattr(within_s, 1.0)

    def remove() -> int:
        return main(["enforce", "pulsar", "--conf", cluster.conf(), "--remove"])

    with cluster:
        assert remove() == 6
        assert "another enforcer leads" in capsys.readouterr().err
        assert cluster.published()["a"] == 300
        seat.leads.return_value = True
        monkeypatch.setattr(within_s, 10.0)
        with monkeypatch.context() as broken:
            listing = "quotaplane.enforce.agent.administrator_rates.list_administrator_rates"
            broken.setattr(listing, lambda *_: [][0])
            assert remove() == 4
        assert "administrator_rates can't be read; nothing was done" in capsys.readouterr().err
        assert cluster.published()["a"] == 300
        assert remove() == 0
    (line,) = capsys.readouterr().out.splitlines()
    counts = {"removed": 2, "given_back": 1, "namespaces": 1}
    nothing = {"failed": 0, "quotas_given_back": 0, "left": 0}
    assert json.loads(line) == counts | nothing
    assert cluster.rates == {A: administrators(5000)}
    assert cluster.namespace_rates == {}
    assert recorded(cluster) == {}


async def test_a_stop_writes_all_rows(cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    history = cluster.history
    goes_on = threading.Event()

    def slow(*args: Any) -> None:
        goes_on.wait(10.0)
        change_administrator_rates(*args)

    record = AdministratorRates(history, RatesInForce(), Conditions(print), print, lambda: 1e6)
    record.cluster = "blue"
    await record.look()
    record.found(full("b"), 0, "g", np.array([400.0, INF]), administrators(400))
    monkeypatch.setattr(f"{AdministratorRates.__module__}.change_administrator_rates", slow)
    periodic = asyncio.create_task(record.look())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    periodic.cancel()  # as at a stop; the write goes on
    record.gone(full("b"), 0)
    goes_on.set()
    await record.finish()
    assert recorded(cluster) == {}


# --- what it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize("administered", [False, True])
async def test_requests_do_not_grow_with_administrators_rates(administered: bool) -> None:
    """Reads of 5,000 topics and 30 writes a second, for a minute."""
    rig = Rig(5000, max_writes_per_s=30.0, max_reads_per_s=200.0)
    rig.rest.rate = administrators(5000) if administered else None
    await rig.record.look()
    for name in rig.names:
        rig.topic_rates.begin_read(name, 0)
        await rig.writer._look(name, 0)
    await rig.record.look()
    assert not rig.topic_rates.held.any()
    assert len(rig.record) == administered * 5000
    for second in range(60):
        rig.writer.begin(rig.moves(10.0 + second, first=30 * second, count=30), float(second))
        await rig.writer.idle(60.0)
    # A twentieth of the read budget is for rates that are about to be written; as much less is read
    # in turn than before there were administrators' rates.
    asked = Counter(line.split()[0] for line in rig.rest.asked)
    assert asked == {"GET": 5000 + 60 * 10, "POST": 60 * 30}
