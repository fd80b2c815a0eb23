"""From the job to those who read its limits, with forged messages in between."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.client.agent import BrokerClient
from quotaplane.enforce.agent.limits_listener import LimitsListener
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.model import Round
from quotaplane.quota.state import ShardState
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import Checkpoint
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.shard_program import Batch
from quotaplane.transport.base import Message, Polled, Portion
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from quotaplane.wire.signatures import SIGNATURE_BYTES, SigningKeys
from tests.job import write_round
from tests.unit.enforce.enforce_cluster import EPOCH, history_in
from tests.unit.history.history_cases import NOON_MS
from tests.unit.streams.shard_cases import group_changes, job_settings, packed, usage_report
from tests.unit.wire.wire_cases import limits_message

SECRET = "only-the-job-and-its-readers-know-this"
FORGER = SigningKeys({"a": "a-secret-that-somebody-else-invented"}, sign_with="a")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    history_in(tmp_path)
    limits = {"signing": {"keys": {"a": SECRET}, "sign_with": "a"}}
    return job_settings(tmp_path, reports={"interval_s": 1.0}, limits=limits)


def started(settings: Settings) -> QuotaSpec:
    """The job on a new checkpoint."""
    spec = QuotaSpec(settings)
    spec.accept(Checkpoint("x", EPOCH, 1, spec.checkpoint_note))
    return spec


def published(settings: Settings) -> list[Message]:
    """The messages of two rounds of the job: what its finisher has for the limits topic."""
    spec = started(settings)
    folder: Any = SimpleNamespace(positions=lambda seq: {"seq": seq}, reports_between=None)
    finisher, program = spec.finisher(folder), spec.program(EPOCH)
    state, messages = ShardState(), list[Message]()
    reports = packed(usage_report(), at_ms=NOON_MS)
    for seq, arrived in enumerate(({"groups": group_changes("g")}, {"reports": reports})):
        state, outputs = program.run(state, arrived, Batch(0, seq, NOON_MS))
        payloads = {output.kind: [output.payload] for output in outputs}
        finisher.begin()
        messages += finisher.finish(Round(EPOCH, seq, NOON_MS), payloads).messages
    assert messages
    return messages


def forged_from(message: Message) -> list[bytes]:
    """A message by a program without the secret: a limit of 1e9 for g, with a higher seq."""
    honest = decode_limits(message.value)
    same = {name: getattr(honest, name) for name in ("broker", "shard", "epoch", "lease_ms")}
    newer = {"seq": honest.seq + 1000, "issued_at_ms": honest.issued_at_ms}
    forged = limits_message(**same, **newer, groups=["g"], limits=np.array([[1e9]]))
    tail = message.value[-SIGNATURE_BYTES:]
    appended: Any = LimitsUpdate(seq=honest.seq + 1000, removed_groups=["g"])
    return [
        forged,
        forged + tail,
        FORGER.sign(forged),
        message.value + FORGER.sign(forged),
        message.value + appended.SerializeToString(),
        message.value[:-SIGNATURE_BYTES] + appended.SerializeToString() + tail,
    ]


class Topic:
    """The limits topic, as a link that has these messages."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._waiting = [Polled("b1", value, f"limits@{at}") for at, value in enumerate(values)]

    def poll_limits(self) -> Portion:
        now, self._waiting = self._waiting, []
        return Portion(now, more=False, caught_up=True)


def listener_of(values: Sequence[bytes], settings: Settings) -> tuple[LimitsListener, list[str]]:
    """The enforcer's listener, after it has read a topic."""
    write_round(settings.history, EPOCH)
    lines: list[str] = []
    link: Any = Topic(values)
    table = QuotaTable(settings.history, Conditions(lines.append))
    listener = LimitsListener(link, table, settings, Conditions(lines.append), lambda: NOON_MS)
    listener.received.expect(["b1"], ["g"])
    asyncio.run(listener.listen())
    return listener, lines


def limit_of(listener: LimitsListener) -> float:
    one = np.zeros(1, np.int64)
    return float(listener.received.in_force(("b1",), ("g",), one, one, NOON_MS)[0, 0])


def test_the_program_that_goes_to_executors_has_no_secret(settings: Settings) -> None:
    assert SECRET.encode() not in pickle.dumps(started(settings).program(EPOCH))


def test_the_enforcer_obeys_the_job_alone(settings: Settings) -> None:
    *_, honest = published(settings)
    limit = float(decode_limits(honest.value).limits[0, 0])
    forged = forged_from(honest)
    listener, lines = listener_of([*forged, honest.value, *forged], settings)
    assert limit_of(listener) == limit
    assert listener.refused == 2 * len(forged)
    assert [line for line in lines if "refused" in line] == [
        "limits topic: limits@0: message for 'b1' refused: not signed at its end: another program "
        "wrote it, or the job has no keys"
    ]
    assert SECRET not in str(lines)


def test_a_job_that_signs_is_obeyed_by_an_enforcer_without_keys(settings: Settings) -> None:
    messages = published(settings)
    limits = settings.limits.model_copy(update={"signing": None})
    without = settings.model_copy(update={"limits": limits})
    listener, lines = listener_of([message.value for message in messages], without)
    assert limit_of(listener) == float(decode_limits(messages[-1].value).limits[0, 0])
    assert "refused" not in str(lines)
    # But who forgot the keys of the enforcer gets to know it, once.
    says = "unverified limits: messages are signed, but signatures are not verified here"
    assert len([line for line in lines if line.startswith(says)]) == 1


def test_a_broker_applies_what_the_job_signed(settings: Settings) -> None:
    *_, honest = published(settings)
    forged = forged_from(honest)
    link: Any = Topic([*forged, honest.value, *forged])
    client = BrokerClient(
        link, "b1", now_ms=lambda: NOON_MS, groups=["g"], keys=SigningKeys({"a": SECRET})
    )
    client.poll()
    limit = float(decode_limits(honest.value).limits[0, 0])
    assert client.limit("g")["publish_messages"] == limit
    assert client.refused == 2 * len(forged)
    assert client.refused_because.startswith("its signature is not by the key a")
