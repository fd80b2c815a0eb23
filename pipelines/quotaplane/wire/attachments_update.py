"""``AttachmentsUpdate`` messages, which say what is attached to which group: one part of it all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from quotaplane.errors import InputError
from quotaplane.groups.attachable import PARTS, part_of
from quotaplane.wire.pb.quotaplane_pb2 import AttachmentsUpdate
from quotaplane.wire.reasons import shown
from quotaplane.wire.report_own import FAMILY, SIGNED_LIMIT
from quotaplane.wire.signatures import SIGNATURE_BYTES, SigningKeys

ATTACHMENTS_HEAD: Final = FAMILY + b"A1"
MAX_ATTACHMENTS_BYTES: Final = 2 * 1024 * 1024
"""A longer message is refused unread, and not written; with its signature."""
MOST_NAMES: Final = 100_000
"""As ``limits.MOST_NAMES``."""
_MAGIC: Final = int.from_bytes(ATTACHMENTS_HEAD[1:], "little")
_NUMBERS: Final = ("epoch", "seq", "issued_at_ms")


class AttachmentsMessage(NamedTuple):
    """A decoded ``AttachmentsUpdate``: all attachments of a part, n of them."""

    part: int
    epoch: int
    seq: int
    issued_at_ms: int
    names: tuple[str, ...]
    """(n) what is attached, each once: see ``groups.attachable.wire_name``."""
    groups: tuple[str, ...]
    """(n) the group that each is attached to."""


def encode_attachments(message: AttachmentsMessage) -> bytes:
    """The bytes of a message, not signed.

    Raises:
        InputError: readers would refuse it, as it has too many names or bytes.
    """
    value = AttachmentsUpdate(magic=_MAGIC, **message._asdict()).SerializeToString()
    _check_size(value, SIGNATURE_BYTES)
    _check_count(len(message.names))
    return value


def decode_attachments(value: bytes, keys: SigningKeys | None = None) -> AttachmentsMessage:
    """Decode and check one message.

    With ``keys`` it must be signed with one of them, which is verified before it is parsed. None: a
    signature is not looked at.

    Raises:
        InputError: the bytes are not an ``AttachmentsUpdate``, a value is invalid, or the signature
            is missing or wrong.
    """
    _check_size(value)
    if not value.startswith(ATTACHMENTS_HEAD):
        raise InputError(f"not an AttachmentsUpdate: begins with {value[:5].hex(' ') or 'nothing'}")
    if keys is not None:
        value = keys.verify(value)
    try:
        message: Any = AttachmentsUpdate.FromString(value)
    except DecodeError:
        raise InputError(f"not an AttachmentsUpdate, or truncated: {len(value)} bytes") from None
    if keys is not None and message.signature:
        raise InputError("signed more than once")
    for name in _NUMBERS:
        if getattr(message, name) >= SIGNED_LIMIT:
            raise InputError(f"AttachmentsUpdate: {name} is {getattr(message, name)}")
    if message.part >= PARTS:
        raise InputError(f"AttachmentsUpdate: part {message.part} (at most {PARTS - 1})")
    _check_count(len(message.names))
    if len(message.groups) != len(message.names):
        raise InputError(
            f"AttachmentsUpdate: {len(message.groups)} groups for {len(message.names)} names"
        )
    names, groups = tuple(message.names), tuple(message.groups)
    _check_names(message.part, names, groups)
    return AttachmentsMessage(
        message.part, message.epoch, message.seq, message.issued_at_ms, names, groups
    )


def _check_size(value: bytes, more_bytes: int = 0) -> None:
    """``more_bytes``: are still to come."""
    most = MAX_ATTACHMENTS_BYTES - more_bytes
    if len(value) > most:
        raise InputError(f"AttachmentsUpdate of {len(value)} bytes (at most {most})")


def _check_count(names: int) -> None:
    if names > MOST_NAMES:
        raise InputError(f"AttachmentsUpdate: {names} names (at most {MOST_NAMES})")


def _check_names(part: int, names: Sequence[str], groups: Sequence[str]) -> None:
    """Names must be in one part only, and there once: else two messages could contradict."""
    if not (all(names) and all(groups)):
        raise InputError("AttachmentsUpdate: an empty name of what is attached, or of a group")
    if len(set(names)) < len(names):
        raise InputError("AttachmentsUpdate: a name is there twice")
    for name in names:
        if part_of(name) != part:
            raise InputError(
                f"AttachmentsUpdate: part {part} has {shown(name)}, which is in part "
                f"{part_of(name)}"
            )
