"""Signatures on limits: only what a holder of a key wrote, and as he wrote it, is decoded."""

from __future__ import annotations

import doctest
import hashlib
import hmac
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import ConfigError, InputError
from quotaplane.wire.limits import MAX_LIMITS_BYTES, decode_limits
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from quotaplane.wire.signatures import SIGNATURE_BYTES, SigningKeys
from tests.unit.repo.pages import ROOT
from tests.unit.wire.wire_cases import limits_message

SECRET_A, SECRET_B = "0123456789abcdef" * 2, "fedcba9876543210" * 4
A = SigningKeys({"a": SECRET_A}, sign_with="a")
B = SigningKeys({"b": SECRET_B}, sign_with="b")
BOTH = SigningKeys({"a": SECRET_A, "b": SECRET_B}, sign_with="b")


def update(limit: float = 20.0, **changes: Any) -> bytes:
    return limits_message(**{"groups": ["g"], "limits": np.array([[limit]]), **changes})


PLAIN = update()
SIGNED = A.sign(PLAIN)


def by_hand(message: bytes, key_id: bytes, secret: str) -> bytes:
    """As docs/reference/wire.md has it, without our code."""
    head = message + b"\xe2\x01\x30" + key_id + bytes(16 - len(key_id))
    mac = hmac.new(secret.encode(), b"quotaplane message 1\0" + head, hashlib.sha256)
    return head + mac.digest()


def test_the_layout_is_that_of_the_page() -> None:
    assert by_hand(PLAIN, b"a", SECRET_A) == SIGNED
    assert len(SIGNED) == len(PLAIN) + SIGNATURE_BYTES
    message: Any = LimitsUpdate.FromString(SIGNED)
    assert message.signature == SIGNED[-48:]


@given(st.binary(max_size=300))
def test_what_was_signed_comes_back(message: bytes) -> None:
    assert A.verify(A.sign(message)) == BOTH.verify(A.sign(message)) == message
    longest_id = SigningKeys({"a" * 16: SECRET_A}, sign_with="a" * 16)
    assert longest_id.verify(longest_id.sign(message)) == message


@given(
    st.lists(st.floats(0, 1e18) | st.just(np.inf), max_size=6),
    st.text("ab/", min_size=1, max_size=9),
)
def test_a_signed_message_decodes_as_the_plain_one(rates: list[float], broker: str) -> None:
    groups = [f"g{number}" for number in range(len(rates))]
    plain = update(broker=broker, groups=groups, limits=np.array(rates).reshape(-1, 1))
    signed = A.sign(plain)
    expected = repr(decode_limits(plain))
    # Also by a reader without keys, for which it is one more field.
    assert repr(decode_limits(signed, A)) == repr(decode_limits(signed)) == expected


def test_every_bit_and_every_byte_counts() -> None:
    flipped = [
        SIGNED[:at] + bytes([SIGNED[at] ^ 1 << bit]) + SIGNED[at + 1 :]
        for at in range(len(SIGNED))
        for bit in range(8)
    ]
    ends = [SIGNED[:length] for length in range(len(SIGNED))]
    begins = [SIGNED[length:] for length in range(1, len(SIGNED))]
    for value in (*flipped, *ends, *begins):
        with pytest.raises(InputError):
            decode_limits(value, BOTH)


TRAILING = LimitsUpdate(removed_groups=["g"]).SerializeToString()
HIGHER = update(1e9, seq=8)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (PLAIN, "not signed at its end: another program"),
        (SIGNED + TRAILING, "not signed"),  # protobuf would merge it into the message
        (PLAIN + TRAILING + SIGNED[len(PLAIN) :], "its signature is not by the key a: that id has"),
        (HIGHER + SIGNED[len(PLAIN) :], "its signature is not by the key a"),
        (B.sign(PLAIN), "signed with the key 'b', and known here are: a"),
        (by_hand(PLAIN, b"a", SECRET_B), "its signature is not by the key a"),
        (by_hand(PLAIN, b"", SECRET_A), "signed with the key '', and"),
        (by_hand(PLAIN, b"\0a", SECRET_A), r"signed with the key '\x00a', and"),
        (by_hand(PLAIN, b"\xff\n", SECRET_A), r"signed with the key '\\xff\n', and"),
        (A.sign(SIGNED), "signed more than once"),
        (SIGNED[:-32] + bytes(32), "its signature is not by the key a"),
        (SIGNED[:-33], "not signed"),
        # The HMAC of the message alone, without our prefix.
        (
            SIGNED[:-32] + hmac.digest(SECRET_A.encode(), SIGNED[:-32], "sha256"),
            "is not by the key a",
        ),
    ],
)
def test_refused(value: bytes, says: str) -> None:
    with pytest.raises(InputError) as raised:
        decode_limits(value, A)
    assert says in str(raised.value)
    assert SECRET_A not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_huge_message_is_refused_before_anything_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quotaplane.wire.signatures._mac", None)
    with pytest.raises(InputError, match="bytes"):
        decode_limits(PLAIN + bytes(MAX_LIMITS_BYTES), A)


def test_nothing_is_parsed_that_is_not_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quotaplane.wire.limits._UPDATE", None)
    for value in (PLAIN, B.sign(PLAIN), HIGHER + SIGNED[len(PLAIN) :]):
        with pytest.raises(InputError, match="sign"):
            decode_limits(value, A)


def test_rotation_loses_no_message() -> None:
    """Verifiers get the new key, then the job signs with it, then the old key goes."""
    added = SigningKeys({"a": SECRET_A, "b": SECRET_B}, sign_with="a")
    # Each step beside the one before it: some programs have restarted, others not yet.
    for one, next_one in pairwise((A, added, BOTH, B)):
        assert decode_limits(one.sign(PLAIN), next_one).seq == 7
        assert decode_limits(next_one.sign(PLAIN), one).seq == 7
    with pytest.raises(InputError, match="the key 'a', and known here are: b"):
        decode_limits(SIGNED, B)


@pytest.mark.parametrize(
    ("secrets", "sign_with", "says"),
    [
        ({"A": SECRET_A}, None, "the id of key 1 must be a text of 1 to 16 characters"),
        ({"a": SECRET_A, "a" * 17: SECRET_B}, None, "the id of key 2 must be"),
        ({"": SECRET_A}, None, "the id of key 1"),
        ({"a\n": SECRET_A}, None, "the id of key 1"),
        ({"a": SECRET_A[1:]}, None, "keys.a: must have at least 32 characters, not 31"),
        ({"a": SECRET_A + "\n"}, None, "keys.a: has a character"),
        ({"a": SECRET_A + "é"}, None, "keys.a: has a character"),
        ({"a": SECRET_A}, SECRET_A, "sign_with: must be the id of one of keys: a"),
    ],
)
def test_keys_that_are_none(secrets: dict[str, str], sign_with: str | None, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SigningKeys(secrets, sign_with)
    assert says in str(raised.value)
    assert SECRET_A[1:] not in str(raised.value)


def test_keys_that_only_verify() -> None:
    verifying = SigningKeys({"a": SECRET_A})
    assert verifying.verify(SIGNED) == PLAIN
    with pytest.raises(ValueError, match="sign_with"):
        verifying.sign(PLAIN)


def test_no_secret_is_printed() -> None:
    assert repr(BOTH) == str(BOTH) == "SigningKeys of a, b"


def test_the_signed_message_of_the_documentation() -> None:
    file = ROOT / "docs/reference/wire.md"
    done = doctest.testfile(str(file), module_relative=False)
    assert (done.failed, done.attempted > 3) == (0, True)
    page = file.read_text(encoding="utf-8")
    section = page[page.index("## Signatures") :]
    block = section[section.index("    0d 51 50 4c 31") :]
    lines = block[: block.index("\n\n")].splitlines()
    shown = "".join(re.split(r"\s{2,}", line.strip())[0] for line in lines)
    keys = SigningKeys({"2026-11": SECRET_A}, sign_with="2026-11")
    signed = keys.sign(update())
    assert bytes.fromhex(shown) == signed
    assert SECRET_A in section
    assert decode_limits(signed, keys).limits[0, 0] == 20.0
