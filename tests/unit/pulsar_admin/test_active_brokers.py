"""The cluster's list of brokers: read over REST, kept for a while, the same for a batch again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from unittest.mock import Mock

import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.errors import ClusterError, ConfigError
from quotaplane.pulsar_admin.active_brokers import ActiveBrokers, following_brokers
from quotaplane.pulsar_admin.cluster_list import NO_BROKERS, ClusterList
from quotaplane.settings import Cluster
from quotaplane.streams.listed_brokers import listed_brokers
from tests.unit.pulsar_admin.cluster_cases import Answer, Paced, RestServer
from tests.unit.streams.test_attempts import Folder

LIST = "GET brokers"


def lookup(broker: str) -> str:
    return f"GET /lookup/v2/topic/persistent/pulsar/{broker}/healthcheck"


def listing(server: RestServer, *brokers: str) -> None:
    server.answers[LIST] = Answer(body=list(brokers))
    for broker in brokers:
        host = broker.partition(":")[0]
        urls = {"brokerUrl": f"pulsar://{host}:6650", "httpUrl": f"http://{broker}"}
        server.answers[lookup(broker)] = Answer(body=urls)


@pytest.fixture
def server() -> RestServer:
    return RestServer()


async def read(
    server: RestServer, brokers: ActiveBrokers, now_s: float = 0.0
) -> dict[str, ClusterError]:
    async with server.rest() as rest:
        return await brokers.read(rest, now_s, int(now_s * 1000))


async def test_names_are_those_of_reports_and_looked_up_once(server: RestServer) -> None:
    brokers = ActiveBrokers(as_listed=False, keep_s=120)
    listing(server, "b1:8080", "b2:8080")
    assert await read(server, brokers) == {}
    assert brokers.names == {"pulsar://b1:6650", "pulsar://b2:6650"}
    asked = len(server.asked)
    await read(server, brokers, 2)
    assert len(server.asked) == asked + 1, "only the list"


async def test_a_broker_left_with_the_first_list_without_it(server: RestServer) -> None:
    brokers = ActiveBrokers(as_listed=False, keep_s=120)
    b1, b2 = "pulsar://b1:6650", "pulsar://b2:6650"
    listing(server, "b1:8080", "b2:8080")
    await read(server, brokers, 0)
    assert brokers.newest.left_at_ms == {}
    listing(server, "b1:8080")
    for now_s in (2, 4, 6):
        await read(server, brokers, now_s)
        assert brokers.newest == ClusterList(frozenset({b1, b2}), {b2: 2000})
    listing(server, "b1:8080", "b2:8080")
    server.answers[lookup("b2:8080")] = Answer(500)
    assert [*await read(server, brokers, 8)] == ["b2:8080"]
    assert brokers.newest.left_at_ms == {}, "it is in the list, whatever its name is now"
    listing(server, "b1:8080")
    await read(server, brokers, 10)
    assert brokers.newest.left_at_ms == {b2: 10_000}
    await read(server, brokers, 128)
    assert b2 in brokers.names
    await read(server, brokers, 129)
    assert brokers.newest == ClusterList(frozenset({b1}), {})


async def test_a_broker_that_is_back_with_another_port_has_another_name(server: RestServer) -> None:
    brokers = ActiveBrokers(as_listed=False, keep_s=120)
    listing(server, "b1:8080", "b2:8080")
    await read(server, brokers, 0)
    listing(server, "b1:8080")
    await read(server, brokers, 2)
    urls = {"brokerUrl": "pulsar://b2:6651", "httpUrl": "http://b2:8080"}
    listing(server, "b1:8080", "b2:8080")
    server.answers[lookup("b2:8080")] = Answer(body=urls)
    await read(server, brokers, 4)
    assert brokers.newest.left_at_ms == {"pulsar://b2:6650": 2000}


@pytest.mark.parametrize(
    "answer", [Answer(500), Answer(403), Answer(body=[]), Answer(body={"b1": 1}), Answer(cut=True)]
)
async def test_an_unreadable_list_changes_nothing(server: RestServer, answer: Answer) -> None:
    brokers = ActiveBrokers(as_listed=False, keep_s=10)
    listing(server, "b1:8080")
    await read(server, brokers, 0)
    server.answers[LIST] = answer
    with pytest.raises(ClusterError):
        await read(server, brokers, 9_999)
    assert brokers.newest == ClusterList(frozenset({"pulsar://b1:6650"}), {})


async def test_a_broker_without_an_address_is_named_and_tried_again(server: RestServer) -> None:
    brokers = ActiveBrokers(as_listed=False, keep_s=10)
    listing(server, "b1:8080", "b2:8080")
    server.answers[lookup("b2:8080")] = Answer(500)
    assert [*await read(server, brokers)] == ["b2:8080"]
    assert brokers.names == {"pulsar://b1:6650"}
    listing(server, "b1:8080", "b2:8080")
    assert await read(server, brokers) == {}
    assert brokers.names == {"pulsar://b1:6650", "pulsar://b2:6650"}


@contextmanager
def following(
    server: RestServer, pace: Paced, printed: list[str], *, needed: bool = True
) -> Iterator[Callable[[], ClusterList]]:
    times = count(1)
    with (
        server,
        following_brokers(
            server.transport(),
            Cluster(),
            ActiveBrokers(as_listed=True, keep_s=60),
            conditions=Conditions(printed.append),
            sleep=pace,
            wall_clock=lambda: next(times),
            needed=needed,
        ) as newest,
    ):
        yield newest


def test_the_list_is_followed_and_kept_while_it_cannot_be_read(server: RestServer) -> None:
    printed: list[str] = []
    pace = Paced()
    listing(server, "b1:8080")
    with following(server, pace, printed) as newest:
        assert newest().names == {"b1:8080"}
        listing(server, "b1:8080", "b2:8080")
        pace.next_poll()
        assert newest().names == {"b1:8080", "b2:8080"}
        server.answers[LIST] = Answer(500)
        pace.next_poll()
        pace.next_poll()
        assert newest().names == {"b1:8080", "b2:8080"}
        assert newest().left_at_ms == {}, "a list that can't be read says nothing"
        listing(server, "b1:8080")
        pace.next_poll()
        assert newest().left_at_ms == {"b2:8080": 5000}
    failed, recovered = printed
    assert failed.startswith("list of brokers: Pulsar's REST API at")
    assert recovered == "list of brokers: over after 0 s (2 times)"


def test_a_job_does_not_start_without_the_list(server: RestServer) -> None:
    server.answers[LIST] = Answer(401)
    with pytest.raises(ClusterError, match="401"), following(server, Paced(), []):
        pass


def test_a_list_that_only_says_who_left_may_come_later(server: RestServer) -> None:
    printed: list[str] = []
    pace = Paced()
    server.answers[LIST] = Answer(403)
    with following(server, pace, printed, needed=False) as newest:
        assert newest() == NO_BROKERS
        listing(server, "b1:8080", "b2:8080")
        pace.next_poll()
        assert newest() == ClusterList(frozenset({"b1:8080", "b2:8080"}), {})
    assert printed[1:] == ["list of brokers: over after 0 s"]


def listing_of(*names: str, left: dict[str, int] | None = None) -> ClusterList:
    return ClusterList(frozenset(names), left or {})


def test_a_batch_that_runs_again_sees_the_same_list_whatever_it_is_by_then() -> None:
    a, ab, left = listing_of("a"), listing_of("a", "b"), listing_of("a", "b", left={"b": 7})
    folder, lists = Folder(), [a, ab, left, listing_of("c", "d"), listing_of("d"), *[a] * 2]
    for seq, newest in enumerate(lists):
        listed = listed_brokers(folder, lambda now=newest: now)  # type: ignore[misc]
        seen = listed.of_batch(seq)
        for later in (listing_of("x"), listing_of("y", "z", left={"z": 8})):
            # The job is killed in the batch and starts again, and the cluster has changed.
            after = listed_brokers(folder, lambda later=later: later)  # type: ignore[misc]
            assert after.of_batch(seq) == seen
    assert listed.of_batch(7) == a
    assert listed.of_batch(8) == a


def test_a_departure_holds_from_the_next_batch_on() -> None:
    folder, newest = Folder(), listing_of("a", "b")
    listed = listed_brokers(folder, lambda: newest)
    assert listed.of_batch(1).left_at_ms == {}
    newest = listing_of("a", "b", left={"b": 1500})
    assert [listed.of_batch(seq).left_at_ms for seq in (2, 3, 4)] == [{}, {"b": 1500}, {"b": 1500}]
    newest = listing_of("a", "b")
    assert [listed.of_batch(seq).left_at_ms for seq in (5, 6)] == [{"b": 1500}, {}]


def test_a_list_that_stays_is_written_once() -> None:
    folder = Folder()
    folder.write = Mock(side_effect=folder.write)  # type: ignore[method-assign]
    listed = listed_brokers(folder, lambda: listing_of("b", "a", left={"b": 3}))
    expected = listing_of("a", "b", left={"b": 3})
    assert [listed.of_batch(seq) for seq in range(5, 9)] == [expected] * 4
    assert folder.write.call_count == 1


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"since": 1})])
def test_a_damaged_note_is_one_line(text: str) -> None:
    folder = Folder()
    folder.files["listed_brokers.json"] = text
    with pytest.raises(ConfigError, match=r"data/checkpoint: listed_brokers\.json can't be"):
        listed_brokers(folder, lambda: NO_BROKERS)
