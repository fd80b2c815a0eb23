"""The quota job's attachments: which parts are published after a round, and which are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import ATTACHMENTS_TOPIC
from quotaplane.errors import DeposedError, MessageTooLargeError, TransportError
from quotaplane.groups.attachable import PARTS, part_of
from quotaplane.model import Round
from quotaplane.registry.attachments import attach
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from quotaplane.streams.quota.attachments_publisher import AttachmentsPublisher
from quotaplane.transport.base import Message
from quotaplane.wire.attachments_update import AttachmentsMessage, decode_attachments
from quotaplane.wire.signatures import SigningKeys
from tests.histories import make_history
from tests.unit.registry.groups_cases import quota

KEYS = SigningKeys({"a": "0123456789abcdef0123456789abcdef"}, sign_with="a")


class Job:
    """Rounds of a job, and what it publishes; with keys it signs."""

    def __init__(self, history: History, last_seq: int | None = None, **given: Any) -> None:
        self.sent: list[list[Message]] = []
        self.fails: Exception | None = None
        self.most_bytes = 1_000_000
        self.deposed = False
        self.said: list[str] = []
        self.now_s = 0.0
        self.conditions = Conditions(self.said.append, clock=lambda: self.now_s)
        writer: Any = self
        self._last_seq = last_seq
        self._publisher = AttachmentsPublisher(
            history,
            writer,
            writer,
            given.get("keys"),
            self._still_leads,
            clock=lambda: self.now_s,
        )

    def last_seq(self) -> int | None:
        return self._last_seq

    def publish_attachments(self, messages: Sequence[Message]) -> None:
        if self.fails is not None:
            raise self.fails
        if any(len(value) > self.most_bytes for _, value in messages):
            raise MessageTooLargeError("topic 'a': set its max.message.bytes")
        self.sent.append([*messages])

    def _still_leads(self) -> None:
        if self.deposed:
            raise DeposedError("quota job: deposed")

    def round(self, seq: int, keys: SigningKeys | None = None) -> dict[int, AttachmentsMessage]:
        """The messages of a round, by part."""
        self.sent.clear()
        self._publisher.publish(Round(5, seq, 1000 + seq), self.conditions)
        decoded = {}
        for key, value in (message for sent in self.sent for message in sent):
            decoded[int(key)] = decode_attachments(value, keys)
            assert decoded[int(key)].part == int(key)
        return decoded


@pytest.fixture
def attached(history: History) -> History:
    """A group of its own scope, and a tenant."""
    make_history(history)
    put_groups(history, ["user=alice", "acme"], quota(1.0).repeat(2, axis=0), "ann")
    attach(history, "tenant", "acme", "acme", "ann")
    return history


def test_all_parts_at_first_then_those_that_changed(attached: History) -> None:
    job = Job(attached, keys=KEYS)
    first = job.round(0, KEYS)
    assert [*first] == [*range(PARTS)]
    assert {(m.epoch, m.seq, m.issued_at_ms) for m in first.values()} == {(5, 0, 1000)}
    groups = {n: g for m in first.values() for n, g in zip(m.names, m.groups, strict=True)}
    assert groups == {"user=alice": "user=alice", "tenant=acme": "acme"}
    assert job.round(1) == {}
    attach(attached, "scope", "client=app", "acme", "ann")
    [(part, changed)] = job.round(2, KEYS).items()
    assert part == part_of("client=app")
    assert (changed.seq, changed.names, changed.groups) == (2, ("client=app",), ("acme",))
    attach(attached, "scope", "client=app", None, "ann")
    [(_, emptied)] = job.round(3, KEYS).items()
    assert (emptied.part, emptied.names) == (part, ())
    put_groups(attached, ["acme"], quota(2.0), "ann")
    assert job.round(4) == {}, "a quota is none of it"
    assert job.said == []


def test_all_parts_again_every_ten_minutes(attached: History) -> None:
    """So a topic that was deleted and made anew has them, and brokers that restart read them."""
    job = Job(attached)
    job.round(0)
    job.now_s = 599.0
    assert job.round(1) == {}
    job.now_s = 600.0
    assert len(job.round(2)) == PARTS
    assert job.round(3) == {}


def test_a_round_from_before_the_start_publishes_nothing(attached: History) -> None:
    """It may have published others by its numbers, which readers would keep."""
    job = Job(attached, last_seq=7)
    assert job.round(7) == {}
    assert len(job.round(8)) == PARTS


def test_a_failure_is_said_and_tried_again_later_with_all_that_was_not_sent(
    attached: History,
) -> None:
    job = Job(attached)
    job.fails = TransportError("topic 'a' did not accept it")
    assert job.round(0) == {}
    assert job.said == ["attachments topic: topic 'a' did not accept it; retrying"]
    job.fails = None
    assert job.round(1) == {}, "limits must not wait for another attempt"
    job.now_s = 60.0
    assert len(job.round(2)) == PARTS
    assert job.said[1:] == ["attachments topic: over after 60 s"]
    assert job.round(3) == {}


ALICE, ACME = part_of("user=alice"), part_of("tenant=acme")


def test_a_part_that_is_too_large_does_not_stop_the_others(
    attached: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quotaplane.wire.attachments_update.MOST_NAMES", 0)
    job = Job(attached)
    assert [*job.round(0)] == [part for part in range(PARTS) if part not in (ALICE, ACME)]
    assert job.conditions.items(ATTACHMENTS_TOPIC) == {f"part {ALICE}", f"part {ACME}"}
    (line,) = job.said
    assert f"part {ALICE} is too large" in line
    assert "AttachmentsUpdate: 1 names (at most 0)" in line
    assert "brokers go by the earlier one" in line
    assert job.round(1) == {}, "once is enough, until it changes"
    attach(attached, "tenant", "acme", None, "ann")
    assert [*job.round(2)] == [ACME]
    assert job.conditions.items(ATTACHMENTS_TOPIC) == {f"part {ALICE}"}
    monkeypatch.undo()
    job.now_s = 600.0
    assert len(job.round(3)) == PARTS
    assert job.said[1:] == ["attachments topic: over after 600 s"]


def test_a_part_that_the_topic_refuses_does_not_stop_the_others(attached: History) -> None:
    job = Job(attached)
    job.most_bytes = 30  # parts without names have 12
    sent = job.round(0)
    assert [*sent] == [part for part in range(PARTS) if part not in (ALICE, ACME)]
    assert job.conditions.items(ATTACHMENTS_TOPIC) == {f"part {ALICE}", f"part {ACME}"}
    assert "set its max.message.bytes" in job.said[0]
    assert job.round(1) == {}
    assert job.now_s == 0.0, "nothing waits for another attempt"


def test_a_deposed_job_publishes_nothing(attached: History) -> None:
    job = Job(attached)
    job.deposed = True
    with pytest.raises(DeposedError):
        job.round(0)
    assert job.sent == []
