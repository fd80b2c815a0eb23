"""One set of rules for limits, whoever receives them: a broker, simulated brokers, the enforcer.

Each receiver goes through the same cases; they differ only in what they give where no message said
anything, and in what docs/reference/wire.md leaves to them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pytest

from quotaplane.client.agent import BrokerClient
from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.model import BASIC, DIMENSIONS, group_id
from quotaplane.sim.broker_fleet import BrokerFleet, BrokerSpec
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.limits import decode_limits
from tests.unit.wire.wire_cases import limits_message

T0 = 1_700_000_000_000
LEASE_MS = 10_000
STARTED_MS = T0 - 60_000
OWN_SAFE = 7.0
"""The safe limit of a broker's own setting."""
HARD = '{"*": {"mode": "hard"}}'


def update(limit: float = 100.0, *, group: str = "g", **other: Any) -> bytes:
    """Limits of broker b1 for one group."""
    if "group_ids" not in other:
        other.setdefault("groups", [group])
    usual = {"seq": 1, "issued_at_ms": T0, "lease_ms": LEASE_MS}
    if (safe := other.pop("safe", None)) is not None:
        usual["safe_limits"] = np.full((1, BASIC), safe)
    groups = other.pop("groups", None)
    limits = np.full((1, BASIC), limit)
    return limits_message(**{**usual, "groups": groups, "limits": limits, **other})


def removal(*, seq: int = 2, by_id: bool = False, **other: Any) -> bytes:
    """Group g was deleted."""
    gone = {"removed_group_ids": [group_id("g")]} if by_id else {"removed_groups": ["g"]}
    return update(seq=seq, groups=[], limits=np.empty((0, BASIC)), **gone, **other)


class Receiver(Protocol):
    unset: float
    """The limit of a group that no message named."""
    unset_safe: float
    """The safe limit that holds until a message has one."""
    removed: float
    """The limit of a removed group."""
    is_incarnation: bool
    """It started at ``STARTED_MS``, and its reports say so."""

    def receive(self, value: bytes, now_ms: int = T0) -> int: ...

    def limits(self, group: str, now_ms: int) -> Sequence[float]:
        """In force at b1, the first four dimensions."""


class FakeLink:
    """A link whose topic is a list; it hands out two messages a poll."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, bytes]] = []
        self.sent: list[tuple[str, bytes, int]] = []
        self.fails: Exception | None = None

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        if self.fails is not None:
            raise self.fails
        self.sent += reports

    def poll_limits(self) -> Portion:
        now, self.waiting = self.waiting[:2], self.waiting[2:]
        messages = [Polled(key, value, str(at)) for at, (key, value) in enumerate(now)]
        return Portion(messages, more=bool(self.waiting), caught_up=not self.waiting)

    def close(self) -> None:
        pass


class Agent:
    """``BrokerClient`` over a link."""

    is_incarnation = True

    def __init__(self, unset: float, unset_safe: float) -> None:
        self.unset = self.removed = unset
        self.unset_safe = unset_safe
        self.now_ms, self.link = STARTED_MS, FakeLink()
        self.client = BrokerClient(
            self.link, "b1", now_ms=lambda: self.now_ms, strict=unset == 0.0, safe_limit=unset_safe
        )

    def receive(self, value: bytes, now_ms: int = T0) -> int:
        self.now_ms = now_ms
        self.link.waiting.append((decode_limits(value).broker, value))
        return self.client.poll()

    def limits(self, group: str, now_ms: int) -> Sequence[float]:
        self.now_ms = now_ms
        by_dimension = self.client.limit(group)
        return [by_dimension[name] for name in DIMENSIONS[:BASIC]]

    def terms(self, group: str) -> str:
        return self.client.throttle(group)


class Simulated:
    """A broker of the simulator's fleet."""

    is_incarnation = True

    def __init__(self, unset: float, unset_safe: float) -> None:
        self.unset = self.removed = unset
        self.unset_safe = unset_safe
        specs = (BrokerSpec("b0"), BrokerSpec("b1"))
        self.fleet = BrokerFleet(
            specs,
            ("other", "g", "h"),
            started_at_ms=STARTED_MS,
            strict=unset == 0.0,
            safe_limit=unset_safe,
        )

    def receive(self, value: bytes, now_ms: int = T0) -> int:
        return self.fleet.receive([value])

    def limits(self, group: str, now_ms: int) -> Sequence[float]:
        return self.fleet.limits(now_ms)[1, self.fleet.groups.index(group), :BASIC].tolist()

    def terms(self, group: str) -> str:
        columns = np.array([self.fleet.groups.index(group)])
        return self.fleet.received.throttles(1, columns)[0]


class Enforcer:
    """The enforcer, for stock brokers: NaN leaves a rate alone, and no start was reported."""

    unset = unset_safe = np.nan
    removed = np.inf
    is_incarnation = False

    def __init__(self) -> None:
        self.received = ClusterLimits()

    def receive(self, value: bytes, now_ms: int = T0) -> int:
        return self.received.receive(decode_limits(value), now_ms)

    def limits(self, group: str, now_ms: int) -> Sequence[float]:
        one = np.zeros(1, np.int64)
        return self.received.in_force(["b1"], [group], one, one, now_ms)[0].tolist()


RECEIVERS: dict[str, Callable[[], Receiver]] = {
    "agent": lambda: Agent(np.inf, OWN_SAFE),
    "agent, strict": lambda: Agent(0.0, 0.0),
    "simulated": lambda: Simulated(np.inf, OWN_SAFE),
    "simulated, strict": lambda: Simulated(0.0, 0.0),
    "enforcer": Enforcer,
}
KEEP_TERMS = [name for name in RECEIVERS if name != "enforcer"]
"""Stock brokers have no throttle terms."""


@pytest.fixture(params=RECEIVERS)
def receiver(request: pytest.FixtureRequest) -> Receiver:
    return RECEIVERS[request.param]()


def holds(receiver: Receiver, group: str = "g", now_ms: int = T0) -> float:
    """The limit in force; all dimensions have the same here."""
    found = receiver.limits(group, now_ms)
    np.testing.assert_equal(found, [found[0]] * BASIC)
    return found[0]


def test_before_any_message_a_broker_has_its_own_limit(receiver: Receiver) -> None:
    receiver.receive(update(group="h"))
    np.testing.assert_equal(holds(receiver), receiver.unset)
    np.testing.assert_equal(holds(receiver, now_ms=T0 + 10**9), receiver.unset)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_newest_version_holds_in_whatever_order(
    receiver: Receiver, order: Sequence[int]
) -> None:
    versions = [(1, 7, 10.0), (1, 9, 20.0), (2, 1, 30.0), (2, 0, 40.0)]
    for at in order:
        epoch, seq, limit = versions[at]
        receiver.receive(update(limit, epoch=epoch, seq=seq, issued_at_ms=T0 + seq))
    assert holds(receiver) == 30.0


def test_a_duplicate_changes_nothing(receiver: Receiver) -> None:
    assert receiver.receive(update(20.0)) == 1
    assert receiver.receive(update(20.0)) == 0
    assert receiver.receive(update(30.0)) == 0  # of one version there is one limit
    assert holds(receiver) == 20.0


def test_versions_are_compared_group_by_group(receiver: Receiver) -> None:
    """Shards decide for themselves: of their messages none is newer for the other's groups."""
    receiver.receive(update(20.0, seq=9, shard=0))
    receiver.receive(update(30.0, seq=3, shard=1, group="h"))
    assert (holds(receiver), holds(receiver, "h")) == (20.0, 30.0)


def test_messages_for_other_brokers_change_nothing(receiver: Receiver) -> None:
    receiver.receive(update(20.0))
    receiver.receive(update(90.0, broker="b0", seq=5))
    receiver.receive(update(90.0, broker="nobody", seq=5))
    assert holds(receiver) == 20.0


def test_a_lease_ends_in_the_safe_limit(receiver: Receiver) -> None:
    receiver.receive(update(20.0, safe=4.0))
    assert holds(receiver, now_ms=T0 + LEASE_MS) == 20.0
    assert holds(receiver, now_ms=T0 + LEASE_MS + 1) == 4.0


def test_a_renewal_without_safe_limits_keeps_those_told_before(receiver: Receiver) -> None:
    receiver.receive(update(20.0, safe=4.0))
    late = T0 + LEASE_MS + 1
    receiver.receive(update(30.0, seq=2, issued_at_ms=late), late)
    assert holds(receiver, now_ms=late) == 30.0
    assert holds(receiver, now_ms=late + LEASE_MS + 1) == 4.0


def test_of_a_message_whose_lease_is_over_the_safe_limit_holds(receiver: Receiver) -> None:
    late = T0 + LEASE_MS + 1
    receiver.receive(update(20.0, safe=4.0), late)
    assert holds(receiver, now_ms=late) == 4.0


@pytest.mark.parametrize("by_id", [False, True])
def test_a_removed_group_is_forgotten_but_for_the_version(receiver: Receiver, by_id: bool) -> None:
    receiver.receive(update(20.0, seq=5, safe=4.0))
    assert receiver.receive(removal(seq=4, by_id=by_id)) == 0  # older than the limit
    assert holds(receiver) == 20.0
    assert receiver.receive(removal(seq=6, by_id=by_id)) == 1
    for now_ms in (T0, T0 + LEASE_MS + 1, T0 + 10**9):
        assert holds(receiver, now_ms=now_ms) == receiver.removed
    receiver.receive(update(20.0, seq=5, safe=4.0))  # a delayed copy
    assert holds(receiver) == receiver.removed
    receiver.receive(update(30.0, seq=7))
    assert holds(receiver) == 30.0
    # Nothing is as told before the removal.
    np.testing.assert_equal(holds(receiver, now_ms=T0 + LEASE_MS + 1), receiver.unset_safe)


def test_a_removal_may_come_before_the_limit_it_removes(receiver: Receiver) -> None:
    receiver.receive(removal(seq=2))
    receiver.receive(update(20.0, seq=1))
    assert holds(receiver) == receiver.removed


def test_names_and_ids_are_the_same_groups(receiver: Receiver) -> None:
    receiver.receive(update(10.0, group_ids=[group_id("g")]))
    assert holds(receiver) == 10.0
    receiver.receive(update(20.0, seq=2))
    assert holds(receiver) == 20.0
    receiver.receive(update(30.0, seq=3, group_ids=[group_id("g")]))
    assert holds(receiver) == 30.0


def test_a_message_is_for_one_incarnation(receiver: Receiver) -> None:
    receiver.receive(update(20.0))
    receiver.receive(update(90.0, seq=2, broker_started_at_ms=STARTED_MS - 1))
    receiver.receive(removal(seq=3, broker_started_at_ms=STARTED_MS + 1))
    assert holds(receiver) == 20.0
    receiver.receive(update(30.0, seq=4, broker_started_at_ms=STARTED_MS))
    assert holds(receiver) == (30.0 if receiver.is_incarnation else 20.0)


@pytest.mark.parametrize("receiver", KEEP_TERMS, indirect=True)
def test_throttle_terms(receiver: Agent | Simulated) -> None:
    assert receiver.terms("g") == ""
    receiver.receive(update(throttles=[HARD]))
    assert receiver.terms("g") == HARD
    receiver.receive(update(seq=2))  # says nothing of terms
    assert receiver.terms("g") == HARD
    receiver.receive(update(seq=1, safe=1.0))  # came too late
    assert receiver.terms("g") == HARD
    receiver.receive(update(seq=3, safe=1.0))  # safe limits alone: the defaults
    assert receiver.terms("g") == ""
    receiver.receive(update(seq=4, safe=1.0, throttles=[HARD]))
    assert receiver.terms("g") == HARD
    receiver.receive(removal(seq=5))
    assert receiver.terms("g") == ""
    assert receiver.terms("h") == ""
