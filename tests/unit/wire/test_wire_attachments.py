"""Attachments on the wire: exact, bounded, and refused by readers when they make no sense."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import InputError
from quotaplane.groups.attachable import part_of
from quotaplane.wire.attachments_update import (
    MAX_ATTACHMENTS_BYTES,
    MOST_NAMES,
    AttachmentsMessage,
    decode_attachments,
    encode_attachments,
)
from quotaplane.wire.pb.quotaplane_pb2 import AttachmentsUpdate
from quotaplane.wire.signatures import SIGNATURE_BYTES, SigningKeys
from tests.unit.wire.wire_cases import limits_message, names

MAGIC = 0x31415051
ALICE, PART = "user=alice", part_of("user=alice")
KEYS = SigningKeys({"a": "0123456789abcdef0123456789abcdef"}, sign_with="a")


def message(**fields: Any) -> AttachmentsMessage:
    usual = AttachmentsMessage(PART, 1_700_000_000, 7, 1_700_000_000_000, (ALICE,), ("batch",))
    return usual._replace(**fields)


def test_a_message_byte_for_byte() -> None:
    """The one in docs/reference/wire.md."""
    value = encode_attachments(message(epoch=5, seq=7, issued_at_ms=1000))
    head = bytes.fromhex("0d51504131 1038 2005 2807 30e807")
    assert value == head + b"\x42\x0a" + ALICE.encode() + b"\x4a\x05batch"
    signed = KEYS.sign(value)
    assert len(signed) == len(value) + SIGNATURE_BYTES
    for keys in (None, KEYS):
        assert decode_attachments(signed, keys) == decode_attachments(value)


@given(st.lists(names, unique=True, max_size=30), names, st.integers(0, 2**63 - 1))
def test_round_trip(found: list[str], group: str, number: int) -> None:
    part = part_of(found[0]) if found else 63
    there = tuple(name for name in found if part_of(name) == part)
    sent = AttachmentsMessage(part, number, number, number, there, (group,) * len(there))
    assert decode_attachments(encode_attachments(sent)) == sent


def _raw(**fields: Any) -> bytes:
    usual = {"magic": MAGIC, "part": PART, "names": [ALICE], "groups": ["batch"]}
    return AttachmentsUpdate(**{**usual, **fields}).SerializeToString()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "begins with nothing"),
        (limits_message(), "begins with 0d 51 50 4c 31"),
        (_raw()[:-1], "or truncated"),
        (_raw(part=64), "part 64 .at most 63"),
        (_raw(groups=[]), "0 groups for 1 names"),
        (_raw(groups=["a", "b"]), "2 groups for 1 names"),
        (_raw(names=[ALICE, ALICE], groups=["a", "b"]), "a name is there twice"),
        (_raw(names=[""]), "an empty name"),
        (_raw(groups=[""]), "an empty name"),
        (_raw(part=PART + 1), f"part {PART + 1} has 'user=alice', which is in part {PART}"),
        (b"\0" * (MAX_ATTACHMENTS_BYTES + 1), f"of {MAX_ATTACHMENTS_BYTES + 1} bytes"),
        (_raw(names=["x"] * (MOST_NAMES + 1)), "100001 names .at most 100000"),
        (_raw(names=[], groups=["x"] * (MOST_NAMES + 1)), "100001 groups for 0 names"),
        *((_raw(**{name: 2**63}), f"{name} is") for name in ("epoch", "seq", "issued_at_ms")),
    ],
)
def test_decode_refuses_what_is_none(value: bytes, text: str) -> None:
    with pytest.raises(InputError, match=text):
        decode_attachments(value)


def test_with_keys_a_signature_is_needed_once_and_must_fit() -> None:
    value = encode_attachments(message())
    forger = SigningKeys({"a": "another-secret-of-32-characters-"}, sign_with="a")
    for wrong, text in (
        (value, "not signed"),
        (forger.sign(value), "its signature is not by the key a"),
        (KEYS.sign(value)[:-1] + b"\0", "its signature is not"),
        (KEYS.sign(KEYS.sign(value)), "signed more than once"),
    ):
        with pytest.raises(InputError, match=text):
            decode_attachments(wrong, KEYS)


def test_what_readers_would_refuse_is_not_written() -> None:
    many = tuple(f"user={number}" for number in range(MOST_NAMES + 1))
    for sent, text in (
        (message(names=many, groups=("g",) * len(many)), "100001 names"),
        (message(groups=("g" * MAX_ATTACHMENTS_BYTES,)), "at most 2097101"),
    ):
        with pytest.raises(InputError, match=text):
            encode_attachments(sent)


def test_the_largest_message_has_room_for_a_signature() -> None:
    more = MAX_ATTACHMENTS_BYTES - SIGNATURE_BYTES - len(encode_attachments(message(groups=("",))))
    largest = message(groups=("g" * (more - 2),))  # two more bytes of its length
    signed = KEYS.sign(encode_attachments(largest))
    assert len(signed) == MAX_ATTACHMENTS_BYTES
    assert decode_attachments(signed, KEYS) == largest
