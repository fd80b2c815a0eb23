"""The enforcer's writer, its troubles and what it knows: at the edges."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone

import numpy as np
import pytest
from deltalake.exceptions import DeltaError

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.pace import Pace
from quotaplane.enforce.agent.observer import Observer
from quotaplane.enforce.part_usage import PartUsage
from quotaplane.errors import ClusterError, HistoryError
from quotaplane.pulsar_admin.rest import NotFoundError
from quotaplane.registry import change_feed
from quotaplane.registry.recorded_rates import AdministratorRate
from quotaplane.settings import History
from tests.unit.enforce.enforce_cases import layout_of
from tests.unit.enforce.enforce_cluster import ALL_OF_IT, NAMESPACE, FakePulsar, full, ours_of
from tests.unit.enforce.rate_writer_rig import Rig
from tests.unit.pulsar_admin.cluster_cases import Answer

pytestmark = pytest.mark.slow


def _unread(*_: object) -> None:
    """Rates of namespaces are not looked at."""


async def test_as_many_writes_start_at_once_as_the_budget_allows() -> None:
    rig = Rig(150)
    rig.settled()
    assert rig.writer.begin(rig.moves(5.0), 0.0) == 50
    await rig.writer.idle(5.0)
    writes = [asked for asked in rig.rest.asked if asked.startswith("POST")]
    # A twentieth of the read budget is for looking at a rate before it is written.
    assert (len(writes), len(rig.rest.asked)) == (100, 110)


async def test_reads_that_hang_let_no_more_of_them_begin() -> None:
    rig = Rig(3000, max_reads_per_s=1000.0)
    rig.rest.answers.clear()
    for _ in range(5):
        rig.writer.read_unknown(rig.unread(), set(rig.names))
        await asyncio.sleep(0.05)
    assert len(rig.rest.asked) == 16
    assert not rig.writer.at_rest
    # What only waits for its turn can be written.
    assert rig.topic_rates.rates(0.0).idle[:, 0].sum() == 3000 - 16
    rig.rest.answers.set()
    await rig.writer.idle(0.0)


async def test_rates_are_read_in_turn_by_group() -> None:
    rig = Rig(0)
    group = {f"a{n:04}": "large" for n in range(1000)} | {"y": "small", "z": "small"}
    rig.topic_rates.carry(layout_of(dict.fromkeys(group, "b"), group))
    rig.writer.read_unknown(rig.unread())
    await asyncio.sleep(0.05)
    assert [asked.split("/")[3] for asked in rig.rest.asked[:4]] == ["a0000", "y", "a0001", "z"]
    await rig.writer.idle(5.0)


async def test_odd_ones_are_read_within_the_same_bounds() -> None:
    rig = Rig(3000)
    rig.settled(5.0)
    rig.topic_rates.in_force[:] = 5.0
    rig.rest.answers.clear()
    nothing = rig.unread()._replace(unread=np.zeros((3000, 2), np.bool_))
    for _ in range(3):
        rig.writer.read_unknown(nothing, set(rig.names))
        await asyncio.sleep(0.02)
    assert 0 < len(rig.rest.asked) <= 16
    await rig.writer.idle(0.0)


async def test_a_mistake_of_ours_leaves_no_topic_under_way() -> None:
    rig = Rig(1)
    rig.settled()
    rig.rest.error = ZeroDivisionError("oops")
    await rig.write()
    assert rig.topic_rates.rates(np.float64(1e12)).idle.all()
    assert rig.lines == ["writing rates: t0000 (publish): ZeroDivisionError: oops; retrying"]
    rig.has()
    await rig.write()
    # Neither does one whose rate is taken off.
    assert set(rig.topic_rates.to_remove) == {("t0000", 0)}
    assert max(rig.topic_rates.to_remove.values()) < np.inf


@pytest.mark.parametrize("when", ["unknown", "under way"])
async def test_a_topic_that_leaves_after_a_write_that_failed_loses_its_rate(when: str) -> None:
    rig = Rig(2)
    rig.settled()
    rig.rest.error = ClusterError("no answer")
    rig.writer.begin(rig.moves(5.0), 0.0)
    if when == "under way":
        rig.has()
    await rig.writer.idle(5.0)
    rig.has()
    assert set(rig.topic_rates.to_remove) == {("t0000", 0), ("t0001", 0)}
    rig.rest.error, rig.rest.rate = None, ours_of(5)
    rig.rest.asked.clear()
    await rig.write(now_s=1.0)
    assert sorted(asked.split()[0] for asked in rig.rest.asked) == ["DELETE"] * 2 + ["GET"] * 2
    assert not rig.topic_rates.to_remove
    assert rig.writer.counts["removed"] == 2


async def test_trouble_with_topics_that_are_gone_is_forgotten() -> None:
    rig = Rig(1)
    rig.settled()
    rig.rest.error = ClusterError("no answer")
    await rig.write()
    rig.has("new")
    assert len(rig.lines) == 1  # its rate must be taken off still
    rig.rest.error = NotFoundError("404", 404)
    rig.writer.begin(rig.moves(5.0)._replace(topic=np.zeros(0, np.int64)), 1.0)
    await rig.writer.idle(5.0)
    assert rig.lines[1:] == ["writing rates: over after 0 s"]
    assert (rig.topic_rates.to_remove, rig.writer.counts["removed"]) == ({}, 0)
    rig.rest.error = ClusterError("no answer")
    await rig.write(now_s=2.0)
    assert "writing rates" in rig.trouble.active()


async def test_trouble_with_namespaces_and_brokers_that_are_gone_is_forgotten() -> None:
    cluster, lines = FakePulsar(2), list[str]()
    failing = Answer(500, {"reason": "upset"})
    cluster.namespaces["acme/other"] = "g"
    cluster.answers["GET namespaces/acme/other"] = failing
    cluster.answers["GET brokers/blue/127.0.0.1:1/ownedNamespaces"] = failing
    async with cluster.rest() as rest:
        observer = Observer(rest, Pace(1e6), Conditions(lines.append), _unread)
        await observer.start()
        assert not await observer.placement.read_brokers()
        assert not await observer.placement.read_namespaces()
        assert len(lines) == 2
        del cluster.namespaces["acme/other"], cluster.owned["127.0.0.1:1"]
        assert await observer.placement.read_brokers()
        assert await observer.placement.read_namespaces()
        assert [": over after " in line for line in lines[2:]] == [True] * 2


async def test_nothing_is_divided_before_everything_was_read(cluster: FakePulsar) -> None:
    cluster.limit(300.0)
    cluster.namespaces["acme/other"] = "g"
    cluster.topics.add(full("x", "acme/other"))
    cluster.add("a", used=500.0)
    cluster.answers["GET namespaces/acme/other"] = Answer(500, {"reason": "upset"})
    async with cluster.enforcing() as running:
        asks = "namespaces/acme/other"
        await running.until(lambda: cluster.paths().count(asks) > 12)
        assert not cluster.writes()
        # Not for ever: what can't be read must not keep limits from the rest.
        await running.until(lambda: cluster.published() == {"a": 300})


async def test_a_part_that_has_just_moved_is_as_it_was() -> None:
    b1 = "GET /b1/admin/v2/broker-stats/topics"
    cluster = FakePulsar(2)
    cluster.add("a", used=500.0)
    cluster.answers[b1] = Answer(200, {})
    async with cluster.rest() as rest:
        observer = Observer(rest, Pace(1e6), Conditions(print), _unread)
        await observer.start()

        async def used() -> float:
            observer._not_before_s.clear()
            await observer.look_at_brokers()
            await observer.look_at_topics()
            await observer.look_at_usage()
            return float(observer.usage.usage[0, 0])

        assert await used() == 500
        cluster.owned["127.0.0.1:0"] = []
        cluster.owned["127.0.0.1:1"] = [f"{NAMESPACE}/{ALL_OF_IT}"]
        # Read before it was loaded there.
        cluster.answers[b1] = Answer(200, {"n/n": {ALL_OF_IT: {"persistent": {}}}})
        assert await used() == 500
        cluster.answers[b1] = Answer(200, {})
        assert await used() == 0


def test_odd_is_who_used_more_than_any_rate_of_the_window_let_through() -> None:
    usage = PartUsage(lag_s=2.0)
    usage.carry(layout_of({"a": "b"}, "g"))
    at = np.array([0])

    def sampled(used: float, *rates: float) -> set[str]:
        for rate in rates:
            clock[0] += 1.0
            usage.note_rates(np.array([[rate, np.inf, np.inf, np.inf]]), clock[0])
        usage.add_sample(at, np.array([[used, 0.0, 0.0, 0.0]]))
        return usage.take_implausible()

    clock = [0.0]
    assert not sampled(500.0, 300.0, 300.0)  # nobody knows what was in force before
    assert not sampled(300.0, 300.0, 300.0, 300.0, 300.0, 300.0)
    assert not sampled(300.0, 300.0, 150.0)  # halved under way
    assert not sampled(150.0, 150.0, 150.0, 150.0, 150.0)
    assert sampled(300.0, 150.0, 150.0) == {"a"}


def test_an_unreadable_log_is_an_error(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def version(self) -> int:
            return 1

        def history(self, limit: int | None) -> None:
            raise DeltaError("files are missing\nin the log")

    monkeypatch.setattr(change_feed, "open_table", lambda *_: Broken())
    with pytest.raises(HistoryError, match=r"files are missing$"):
        change_feed.group_changes(history)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_topic_that_comes_back_meanwhile_keeps_its_row(comes_back: bool) -> None:
    """A write of ours in place of the administrator's may already be under way again."""
    rig = Rig(1)
    rig.settled(5.0)
    key = "t0000", "publish"
    seen_at = datetime(2026, 3, 1, tzinfo=timezone.utc)
    row = AdministratorRate("c", *key, "g", 100.0, None, None, seen_at, "x")
    rig.record._rows[key] = row
    rig.has()
    rig.rest.answers.clear()
    rig.rest.rate = ours_of(5)
    rig.writer.begin(rig.moves(5.0), 0.0)
    await asyncio.sleep(0)
    if comes_back:
        rig.has("t0000")
    rig.rest.answers.set()
    await rig.writer.idle(5.0)
    assert (rig.record._changes.get(key, "kept") is None) == (not comes_back)


def reads_of(rig: Rig) -> list[str]:
    """Topic and kind of what was asked for."""
    return [asked.split("/", 3)[3].replace("//", "/") for asked in rig.rest.asked]


async def test_the_newest_topics_are_read_first_and_of_these_what_will_be_limited() -> None:
    rig = Rig(50)
    rig.has(*rig.names, "b-new", "c-new")
    rig.has(*rig.names, "a-newest", "b-new", "c-new")
    limited = np.zeros((53, 2), bool)
    limited[:, 0] = True
    rig.rest.answers.clear()
    rig.writer.read_unknown(rig.unread()._replace(unread=np.ones((53, 2), bool)), limited=limited)
    await asyncio.sleep(0.05)
    first = ["a-newest", "b-new", "c-new", "t0000", "t0001"]
    assert reads_of(rig)[:5] == [f"{topic}/publishRate" for topic in first]
    await rig.writer.idle(0.0)


async def test_newer_topics_push_older_ones_out_of_the_queue() -> None:
    rig = Rig(3000, max_reads_per_s=200.0)
    rig.rest.answers.clear()
    for topics in (3000, 3030):
        rig.has(*rig.names, *[f"z{n:03}" for n in range(topics - 3000)])
        every = np.ones((topics, 2), bool)
        rig.writer.read_unknown(rig.unread()._replace(unread=every), limited=every)
    await asyncio.sleep(0.05)
    assert len(rig.rest.asked) == 16
    assert all(topic.startswith("z0") for topic in reads_of(rig))
    await rig.writer.idle(0.0)
