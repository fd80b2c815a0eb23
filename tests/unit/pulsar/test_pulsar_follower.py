"""Topics that a streaming query follows come, go and fall silent: fakes, no server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from quotaplane.errors import TransportError
from quotaplane.pulsar import topic_pool as following
from quotaplane.pulsar.options import Options, parse_options
from quotaplane.pulsar.outages import Patience
from quotaplane.pulsar.position import EARLIEST, LATEST, ranges
from quotaplane.pulsar.topic_pool import TopicPool
from tests.unit.pulsar.pulsar_cases import DISCONNECTED, URL, FakeCluster

A, B = "persistent://t/n/a", "persistent://t/n/b"
PATTERN = {**URL, "admin_url": "http://host:8080", "topics_pattern": "persistent://t/n/.*"}
NAMED = {**URL, "topics": A}


class World:
    """Topics by name, and what is wrong with asking for them."""

    def __init__(self) -> None:
        self.topics: dict[str, Any] = {}
        self.unlisted: str | None = None
        self.opened: list[str] = []
        self.listings = 0
        self.ends: dict[str, str] = {}
        self.pools: list[TopicPool] = []

    def follow(self, given: dict[str, str], **more: Any) -> TopicPool:
        options = parse_options(given | {name: str(value) for name, value in more.items()})
        self.pools.append(TopicPool(options))
        return self.pools[-1]

    def create_reader(self, topic: str, *_: Any, **__: Any) -> Any:
        self.opened.append(topic)
        found = self.topics[topic]
        if isinstance(found, type):
            raise found
        return found

    def close(self) -> None: ...

    def partitions(self, client: Any, options: Options) -> list[str]:
        self.listings += 1
        if self.unlisted is not None:
            raise TransportError(self.unlisted)
        return sorted(self.topics)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    monkeypatch.setattr(following, "open_client", lambda _: world)
    monkeypatch.setattr(following, "topic_partitions", world.partitions)
    monkeypatch.setattr(following, "must_be_there", lambda *_: None)
    monkeypatch.setattr(following, "last_position", lambda _, __, topic: world.ends[topic])
    yield world
    for pool in world.pools:
        pool.close()


@pytest.mark.parametrize(
    ("starting", "begin"), [(LATEST, LATEST), (EARLIEST, EARLIEST), ("17", "@17")]
)
def test_where_a_query_begins_is_the_same_each_time(
    world: World, starting: str, begin: str
) -> None:
    world.topics = {A: FakeCluster([])}
    first = world.follow(NAMED, starting=starting).begin()
    world.ends = {A: "1:7:-1"}
    assert first == world.follow(NAMED, starting=starting).begin() == {A: begin}


def test_the_first_read_says_where_the_end_is(world: World) -> None:
    world.topics, world.ends = {A: FakeCluster([], is_there=True)}, {A: "1:7:-1"}
    follower = world.follow(NAMED, discovery_interval_s=0)
    begin = follower.begin()
    rows, end = follower.read(begin)
    assert (rows, end) == ([], {A: "1:7:-1"})
    assert ranges(begin, end) == []
    # What appears later is read from its beginning, also by the batch that says where the end is.
    world.topics = {A: FakeCluster([7, 8], is_there=True), B: FakeCluster([0])}
    rows, end = follower.read(end)
    assert [row.value for row in rows if row.topic == A] == [b"8"]
    assert [row.value for row in rows if row.topic == B] == [b"0"]


def test_a_named_topic_that_is_missing_is_told(world: World) -> None:
    world.topics = {A: pulsar.exceptions.TopicNotFound}
    with pytest.raises(TransportError, match=r"'persistent://t/n/a'.*does not exist"):
        world.follow(NAMED).read({A: EARLIEST})


def test_a_topic_that_a_pattern_follows_may_go(world: World) -> None:
    world.topics = {A: FakeCluster([0, DISCONNECTED, DISCONNECTED]), B: FakeCluster([0])}
    follower = world.follow(PATTERN)
    rows, end = follower.read({A: EARLIEST, B: EARLIEST})
    assert len(rows) == 2
    del world.topics[A]
    world.opened.clear()
    rows, end = follower.read(end)
    # Listed at once, not at the next interval, and never opened again: that would make it anew.
    assert end == {B: "1:0:-1"}
    assert (world.opened, follower._opening) == ([], {})


def test_a_topic_that_went_before_it_was_opened_is_no_error(world: World) -> None:
    world.topics = {A: pulsar.exceptions.TopicNotFound, B: FakeCluster([0])}
    follower = world.follow(PATTERN)
    rows, end = follower.read({A: "1:0:-1"})
    assert [row.topic for row in rows] == [B]
    assert end == {A: "1:0:-1", B: "1:0:-1"}
    del world.topics[A]
    assert follower.read(end) == ([], {B: "1:0:-1"})
    # Made anew, it is read from its beginning, without a word of its earlier life.
    world.topics[A] = FakeCluster([0, 1])
    follower._found_s = float("-inf")
    rows, end = follower.read({B: "1:0:-1"})
    assert [row.value for row in rows] == [b"0", b"1"]
    assert not follower._patience.is_silent(A)


def test_a_silent_topic_is_not_opened_while_nobody_can_say_if_it_is_there(world: World) -> None:
    world.topics = {A: FakeCluster([0, DISCONNECTED, DISCONNECTED])}
    follower = world.follow(PATTERN)
    _, end = follower.read({A: EARLIEST})
    world.opened.clear()
    world.unlisted = "REST is silent"
    for _ in range(3):
        assert follower.read(end) == ([], end)
    assert (world.opened, follower._opening) == ([], {})
    assert world.listings == 2
    world.unlisted = None
    follower._found_s = float("-inf")
    world.topics[A] = FakeCluster([0, 1], is_there=True)
    follower.read(end)
    follower._opening[A].result(timeout=60)
    assert world.opened == [A]
    assert [row.value for row in follower.read(end)[0]] == [b"1"]


def test_what_a_listing_meets_is_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topics = {A: FakeCluster([])}
    follower = world.follow(NAMED, discovery_interval_s=0)
    follower.begin()
    for complaint in ("one", "one", "two", "two"):
        world.unlisted = complaint
        follower.read({A: EARLIEST})
    (line,) = caplog.messages
    assert line.startswith("list of topics: one;")


def test_nothing_outlives_a_topic_that_is_gone(world: World) -> None:
    world.topics = {A: FakeCluster([DISCONNECTED] * 9), B: FakeCluster([])}
    follower = world.follow(PATTERN, discovery_interval_s=0)
    follower.read({A: EARLIEST, B: EARLIEST})
    assert follower._patience.is_silent(A)
    del world.topics[A]
    follower.read({A: EARLIEST, B: EARLIEST})
    assert not follower._patience.is_silent(A)
    assert {A} & (follower._readers.keys() | follower._opening.keys()) == set()


def test_a_cluster_that_says_no_while_it_elects_an_owner_is_borne() -> None:
    options = parse_options({"service_url": "pulsar://127.0.0.1:1", "topics": "t"})
    told: list[str] = []
    patience = Patience(options)
    with patience.with_topic("t", told.append):
        raise pulsar.exceptions.AuthorizationError
    assert patience.is_silent("t")
    assert told == ["t"]
