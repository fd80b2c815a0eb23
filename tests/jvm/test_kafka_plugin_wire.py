"""The plugin's classes and our Python on the same messages: the same answers to the last bit."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.client.attached_groups import ReceivedAttachments
from quotaplane.client.receiver import ReceivedLimits
from quotaplane.errors import InputError
from quotaplane.groups.attachable import part_of
from quotaplane.groups.ids import ids_of
from quotaplane.groups.resolve import resolve, scopes_of
from quotaplane.groups.scope import parse_scope
from quotaplane.model import DIMENSIONS, UNLIMITED
from quotaplane.wire.attachments_update import (
    AttachmentsMessage,
    decode_attachments,
    encode_attachments,
)
from quotaplane.wire.limits import LimitsMessage, decode_limits, encode_limits
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.signatures import SigningKeys
from tests.fuzz.mutators import changed_text, damaged, protobuf
from tests.jvm.kafka_plugin import ask_plugin, assert_answers, bits, hexed
from tests.jvm.test_kafka_scopes import REQUESTS, SCOPES
from tests.unit.wire.wire_cases import NOW_MS, decode_now

REFUSED = "refused"
SECRETS = {"a": "0123456789abcdef0123456789abcdef", "b": "x" * 40}
KEYS = SigningKeys(SECRETS, sign_with="a")
OTHERS = (
    SigningKeys({"a": "y" * 32}, sign_with="a"),
    SigningKeys({"c": "0123456789abcdef0123456789abcdef"}, sign_with="c"),
)
NO_END = 2**63 - 1
NAMES = ["g", "h", "acme::orders", "acme", "user=alice", "jürgen 😀", "a\tb", ""]
IDS = ids_of(NAMES)
STARTED_MS = NOW_MS - 60_000


@pytest.mark.nightly
def test_ids_are_the_same() -> None:
    """Names of one character that every version of Unicode knows, and random names."""
    known = [
        character
        for character in map(chr, range(0x110000))
        if unicodedata.ucd_3_2_0.category(character) not in ("Cn", "Cs", "Co")
    ]
    random = Random(0)
    names = [*known[:5000], *random.sample(known, 5000), "\ue000", "\U00100000", "", "::", "::a"]
    names += ["".join(random.choices(known, k=random.randint(1, 9))) for _ in range(1000)]
    names += ["::".join(random.choices(["a", "", "b::c", "ü"], k=3)) for _ in range(100)]
    names += [letter * n for n in (1024, 1025) for letter in "a😀"]
    expected = [str(number) for number in ids_of(names).tolist()]
    assert_answers([f"id\t{hexed(name)}" for name in names], expected)
    assert 50 < expected.count("-1") < len(expected) / 2


def test_limits_are_decoded_alike() -> None:
    random = Random(1)
    valid = [_limits(random) for _ in range(1000)]
    hostile = [protobuf(random, valid) for _ in range(4000)]
    hostile += [valid[0] + b"\xa3\x01" * n + b"\xa4\x01" * n for n in (1, 99, 100, 101)]
    cut = [value[: random.randrange(len(value))] for value in valid]
    signed = [KEYS.sign(value) for value in (*valid[:300], *hostile[:300])]
    signed += [key.sign(value) for key in OTHERS for value in valid[:50]]
    signed += [KEYS.sign(KEYS.sign(value)) for value in valid[:20]]
    signed += [damaged(random, value, valid) for value in signed]
    _compare_decoded("limits", [*valid, *hostile, *cut, *signed], [*signed, *valid[:50]])


@pytest.mark.nightly
def test_attachments_are_decoded_alike() -> None:
    random = Random(2)
    valid = [_attachments(random, _all_scopes(random)) for _ in range(1000)]
    hostile = [protobuf(random, valid) for _ in range(3000)]
    cut = [value[: random.randrange(len(value))] for value in valid[:300]]
    signed = [KEYS.sign(value) for value in (*valid[:200], *hostile[:200])]
    signed += [key.sign(value) for key in OTHERS for value in valid[:50]]
    signed += [KEYS.sign(KEYS.sign(value)) for value in valid[:20]]
    signed += [damaged(random, value, valid) for value in signed]
    _compare_decoded("attachments", [*valid, *hostile, *cut, *signed], [*signed, *valid[:50]])


@pytest.mark.nightly
@pytest.mark.parametrize("unset", [UNLIMITED, 0.0])
def test_limits_hold_alike(unset: float) -> None:
    """Late, doubled and for others, with leases that end, and clocks that jump."""
    random = Random(3)
    lines, expected = [], []
    changes = 0
    for _ in range(150):
        lines.append(f"received\t{hexed('b1')}\t{STARTED_MS}\t{bits([unset])}\t{bits([7.0])}")
        expected.append("ok")
        received = ReceivedLimits(
            ["b1"],
            started_at_ms=STARTED_MS,
            unset=unset,
            unset_safe=7.0,
            removed=unset,
            admits=lambda ids: np.ones(len(ids), np.bool_),
        )
        wall_ms, steady_ms, sent = NOW_MS, 5000, []
        for _ in range(40):
            sent.append(_limits(random, issued_at_ms=wall_ms + random.randint(-300, 300)))
            value = sent[-1] if random.random() < 0.6 else random.choice(sent)
            lines.append(f"apply\t{value.hex()}\t{wall_ms}\t{steady_ms}")
            message = decode_limits(value)
            issued_ms = message.issued_on(wall_ms=wall_ms, steady_ms=steady_ms)
            changed = received.apply(message, steady_ms, issued_ms=issued_ms).changed
            changes += changed
            expected.append(str(changed))
            if random.random() < 0.1:
                ended_ms, kept = steady_ms - random.randint(0, 900), random.sample([*IDS[:6]], 2)
                lines.append(f"forget\t{ended_ms}\t{_list(kept)}")
                received.forget(ended_ms, ["b1"], np.array(kept))
                expected.append("ok")
            lines.append(f"state\t{steady_ms}\t{_list(IDS[:6])}")
            expected.append(_state(received, steady_ms))
            passed_ms = random.choice((0, 1, 50, 200, 1500))
            steady_ms += passed_ms
            wall_ms += passed_ms + random.choice((0,) * 8 + (-400, 400))
    assert_answers(lines, expected)
    assert changes > 5000


@pytest.mark.nightly
def test_scopes_are_parsed_alike() -> None:
    random = Random(4)
    samples = [*map(str, SCOPES), "tenant=acme", "user=j%C3%BCrgen,client=%F0%9F%98%80", "user=a"]
    tokens = [*"=,:%+~*. aü😀", "%2C", "%ff", "%C3%BC", "<default>", "user=", ",client=", "::"]
    names = [changed_text(random, samples, tokens) for _ in range(5000)] + samples
    expected = [_scope(name) for name in names]
    assert_answers([f"scope\t{hexed(name)}" for name in names], expected)
    assert 300 < len(expected) - expected.count(REFUSED) < len(expected) / 2


@pytest.mark.nightly
def test_scopes_are_resolved_alike() -> None:
    """As resolve.py does it, which test_kafka_scopes.py compares with Kafka."""
    random = Random(5)
    lines, expected = [], []
    for _ in range(200):
        scopes = random.sample(SCOPES, random.randint(1, len(SCOPES)))
        lines.append("attached")
        expected.append("ok")
        attached = {str(scope): str(scope) for scope in scopes}
        for value in _parts_of(attached, 1):
            lines.append(f"attach\t{value.hex()}")
            expected.append("ok")
        lines += [f"group\t{hexed(user)}\t{hexed(client)}" for user, client in REQUESTS]
        users, clients = zip(*REQUESTS, strict=True)
        groups = pa.array([*attached])
        every = np.ones(len(groups), np.bool_)
        found = resolve(scopes_of(groups), every, pa.array(users), pa.array(clients))
        expected += [
            "-" if at < 0 else hexed(groups[at].as_py()) for at in found.definition.tolist()
        ]
    assert_answers(lines, expected)
    assert 0.1 < expected.count("-") / len(expected) < 0.8


@pytest.mark.nightly
def test_attachments_hold_alike() -> None:
    """Late and doubled messages, and those of parts that lost names; requests have a user."""
    random = Random(6)
    requests = [(user, client) for user, client in REQUESTS if user]
    lines, expected = [], []
    for _ in range(30):
        lines.append("attached")
        expected.append("ok")
        received, sent = ReceivedAttachments(), list[bytes]()
        for seq in range(20):
            attached = dict.fromkeys(_all_scopes(random), f"g{seq % 5}")
            sent += random.sample(_parts_of(attached, seq), 3)
            for value in random.sample(sent, 3):
                lines.append(f"attach\t{value.hex()}")
                expected.append("ok")
                received.apply(decode_attachments(value))
            for user, client in random.sample(requests, 5):
                lines.append(f"group\t{hexed(user)}\t{hexed(client)}")
                group = received.group_of(user=user, client=client or None)
                expected.append("-" if group is None else hexed(group))
    assert_answers(lines, expected)
    assert 0.1 < expected.count("-") / len(expected) < 0.8


def test_reports_are_as_python_writes_them() -> None:
    random = Random(7)
    cases = [_report(random) for _ in range(1000)]
    said = [bytes.fromhex(value) for value in ask_plugin([line for line, _ in cases])]
    for value, (_, expected) in zip(said, cases, strict=True):
        assert _canonical(value) == _canonical(expected)
    ours, theirs = decode_now(*(expected for _, expected in cases)), decode_now(*said)
    assert theirs.rejected.num_rows == 0
    assert theirs.headers.equals(ours.headers)
    assert theirs.entries.num_rows > 1000
    for column in theirs.entries.column_names:
        np.testing.assert_array_equal(theirs.entries[column], ours.entries[column])


def _compare_decoded(kind: str, values: Sequence[bytes], with_keys: Sequence[bytes]) -> None:
    secrets = "\t".join(f"{name}\t{secret}" for name, secret in SECRETS.items())
    lines = [f"{kind}\t{value.hex()}" for value in values]
    lines.append(f"keys\t{secrets}")
    lines += [f"{kind}\t{value.hex()}" for value in with_keys]
    open_ = [_decoded(kind, value, None) for value in values]
    keyed = [_decoded(kind, value, KEYS) for value in with_keys]
    assert_answers(lines, [*open_, "ok", *keyed])
    for answers in (open_, keyed):
        assert 0.2 < answers.count(REFUSED) / len(answers) < 0.8


def _decoded(kind: str, value: bytes, keys: SigningKeys | None) -> str:
    try:
        if kind == "limits":
            return _shown(decode_limits(value, keys))
        message = decode_attachments(value, keys)
    except InputError:
        return REFUSED
    *numbers, names, groups = message
    return "\t".join(
        [*map(str, numbers), *(",".join(map(hexed, each)) for each in (names, groups))]
    )


def _shown(message: LimitsMessage) -> str:
    ids = ids_of(message.groups) if message.groups else message.group_ids
    removed = [*ids_of(message.removed_groups), *message.removed_group_ids]
    head = (message.shard, message.epoch, message.seq, message.issued_at_ms, message.lease_ms)
    safe = message.safe_limits
    return "\t".join(
        [
            hexed(message.broker),
            *map(str, head),
            str(message.broker_started_at_ms),
            _list(ids),
            bits(message.limits.ravel()),
            "-" if safe is None else bits(safe.ravel()),
            _list(removed),
        ]
    )


def _state(received: ReceivedLimits, steady_ms: int) -> str:
    columns = received.columns(IDS[:6])
    newest, seqs = received.acknowledged(0, columns)
    known, limits = received.is_known(columns), received.of(0, columns, steady_ms)
    groups = ["-" if newest is None else f"{newest[0]},{newest[1]}"]
    for at in range(6):
        ends = received.lease_ends_ms(np.array([0]), columns[[at]]).tolist()
        end = ends[0] if ends else NO_END
        head = f"{int(known[at])},{int(end < steady_ms)},{end},{seqs[at]}"
        groups.append(f"{head},{bits(limits[at])}")
    return "\t".join(groups)


def _scope(name: str) -> str:
    try:
        scope = parse_scope(name)
    except InputError:
        return REFUSED
    return "\t".join("-" if part is None else part for part in scope)


def _limits(random: Random, **given: Any) -> bytes:
    """A valid message with few versions, brokers and groups; now and then a group twice."""
    which = random.choices(range(len(NAMES) if not given else 6), k=random.randint(0, 4))
    gone = random.choices(range(6), k=random.choice((0, 0, 0, 1, 2)))
    dimensions = sorted(random.sample(range(len(DIMENSIONS)), random.randint(1, 4)))
    by_name = random.random() < 0.5
    fields: dict[str, Any] = {
        "broker": random.choice(("b1",) * 9 + ("b2",)),
        "shard": random.randrange(3),
        "epoch": random.choice((1, 1, 1, 2)),
        "seq": random.randrange(30),
        "issued_at_ms": NOW_MS,
        "lease_ms": random.choice((0, 200, 1000, 3000)),
        "broker_started_at_ms": random.choice((0, 0, 0, STARTED_MS, 5)),
        "dimensions": [DIMENSIONS[at] for at in dimensions],
        "limits": _rates(random, len(which), len(dimensions)),
    }
    if by_name:
        fields["groups"] = [NAMES[at] for at in which]
        fields["removed_groups"] = [NAMES[at] for at in gone]
    else:
        fields["group_ids"] = np.maximum(IDS[which], 0)
        fields["removed_group_ids"] = IDS[gone]
    if random.random() < 0.4:
        fields["safe_limits"] = _rates(random, len(which), len(dimensions))
    if random.random() < 0.2:
        fields["throttles"] = random.choices(["", "{}"], k=len(which))
    return encode_limits(**{**fields, **given})


def _rates(random: Random, count: int, dimensions: int) -> np.ndarray:
    values = random.choices([0.0, 20.0, 1 / 3, 1e18, np.inf], k=count * dimensions)
    return np.array(values).reshape(count, dimensions)


def _all_scopes(random: Random) -> list[str]:
    scopes = [str(scope) for scope in random.sample(SCOPES, random.randint(1, 12))]
    return [*scopes, "tenant=acme", "namespace=acme/orders", "user=not encoded"]


def _attachments(random: Random, names: Iterable[str]) -> bytes:
    """A part of what is attached; not one without names."""
    values = _parts_of({name: random.choice(NAMES[:6]) for name in names}, random.randrange(9))
    return random.choice([value for value in values if decode_attachments(value).names])


def _parts_of(attached: dict[str, str], seq: int) -> list[bytes]:
    """The messages of the parts that these names, or any scopes, are in."""
    parts = {part_of(str(scope)) for scope in SCOPES} | {*map(part_of, attached)}
    messages = []
    for part in sorted(parts):
        names = tuple(name for name in attached if part_of(name) == part)
        groups = tuple(attached[name] for name in names)
        messages.append(encode_attachments(AttachmentsMessage(part, 1, seq, 77, names, groups)))
    return messages


def _report(random: Random) -> tuple[str, bytes]:
    """A line that asks for a report, and the report."""
    groups = random.sample(NAMES[:6], random.randint(0, 6))
    count = len(groups)
    shape = count, len(DIMENSIONS)
    usage = np.array(random.choices([0.0, 3.5, 1e9, np.nan], k=count * len(DIMENSIONS)))
    columns = {"usage": usage.reshape(shape)}
    if random.random() < 0.6:
        columns["throttled"] = np.where(np.isnan(columns["usage"]), np.nan, random.random())
    if random.random() < 0.5:
        columns["limits"] = _rates(random, count, len(DIMENSIONS))
    applied = random.choice((None, (3, 2**40)))
    seqs = random.choices([-1, 5, 2**40], k=count)
    every = random.choice((0, 12))
    words = [hexed("b1"), str(STARTED_MS), str(random.randrange(2**40)), "5000"]
    words += ["", ""] if applied is None else map(str, applied)
    words += [str(every), _list(seqs), ",".join(map(hexed, groups))]
    words += [
        f"{kind}:{name}:{bits(values)}"
        for kind, column in columns.items()
        for name, values in zip(DIMENSIONS, column.T, strict=True)
    ]
    value = encode_report(
        broker="b1",
        started_at_ms=STARTED_MS,
        sequence=int(words[2]),
        window_ms=5000,
        groups=groups,
        applied=applied,
        applied_seqs=None if applied is None else np.array(seqs, np.int64),
        **columns,
    )
    return "\t".join(["report", *words]), value + UsageReport(named_every=every).SerializeToString()


def _canonical(report: bytes) -> bytes:
    parsed: bytes = UsageReport.FromString(report).SerializeToString(deterministic=True)
    return parsed


def _list(numbers: Iterable[int]) -> str:
    return ",".join(str(int(number)) for number in numbers)
