"""Signatures on messages: who wrote a message, and that nobody changed it since.

A signed message is the serialized message with one more field behind it, so that a reader without
keys can parse it. docs/reference/wire.md has the layout.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from quotaplane.errors import ConfigError, InputError
from quotaplane.settings.signing import MAX_KEY_ID, check_secrets
from quotaplane.wire.reasons import shown

if TYPE_CHECKING:
    from quotaplane.settings.signing import Signing

PREFIX: Final = b"quotaplane message 1\0"
"""In front of what is signed, so that the HMAC is none of another protocol with the same secret.
The kind of message is in its own first five bytes."""
_MAC_BYTES: Final = 32
_FIELD: Final = b"\xe2\x01\x30"
"""The tag of field 28 (bytes), and its length: an id and an HMAC."""
SIGNATURE_BYTES: Final = len(_FIELD) + MAX_KEY_ID + _MAC_BYTES
"""By so many bytes a signed message is longer."""


class SigningKeys:
    r"""Secrets by id: one signs messages, all of them verify messages. Its repr has no secret.

    >>> keys = SigningKeys({"2026-11": "0123456789abcdef0123456789abcdef"}, sign_with="2026-11")
    >>> signed = keys.sign(b"message")
    >>> signed[7:26]
    b'\xe2\x0102026-11\x00\x00\x00\x00\x00\x00\x00\x00\x00'
    >>> keys.verify(signed)
    b'message'
    """

    def __init__(self, secrets: Mapping[str, str], sign_with: str | None = None) -> None:
        """Check the secrets.

        Args:
            secrets: by id, as in the setting ``limits.signing.keys``.
            sign_with: the id of the secret that signs; None: messages are verified only.

        Raises:
            ConfigError: an id or a secret is wrong.
        """
        try:
            check_secrets(secrets, sign_with)
        except ValueError as error:
            raise ConfigError(f"signing: {error}") from None
        self.ids = tuple(secrets)
        self._secret = {_padded(key_id): secret.encode() for key_id, secret in secrets.items()}
        self._sign_with = None if sign_with is None else _padded(sign_with)

    def __repr__(self) -> str:
        return f"SigningKeys of {', '.join(self.ids)}"

    @classmethod
    def of(cls, settings: Signing | None) -> SigningKeys | None:
        """The keys of a section of the settings; None without one."""
        return None if settings is None else cls(settings.secrets(), settings.sign_with)

    def sign(self, message: bytes) -> bytes:
        """The message with its signature behind it.

        Raises:
            ValueError: there is no key to sign with.
        """
        if self._sign_with is None:
            raise ValueError("sign_with was not given")
        signed = b"".join((message, _FIELD, self._sign_with))
        return signed + _mac(self._secret[self._sign_with], signed)

    def verify(self, value: bytes) -> bytes:
        """The message in front of a signature by one of the keys.

        Raises:
            InputError: there is no signature, it is not by one of the keys, or the message was
                changed; the text says which.
        """
        if not seems_signed(value):
            raise InputError(
                "not signed at its end: another program wrote it, or the job has no keys"
            )
        key_id = value[-MAX_KEY_ID - _MAC_BYTES : -_MAC_BYTES]
        secret = self._secret.get(key_id)
        if secret is None:
            name = key_id.rstrip(b"\0").decode("ascii", "backslashreplace")
            raise InputError(
                f"signed with the key {shown(name)}, and known here are: {', '.join(self.ids)}"
            )
        mac = _mac(secret, memoryview(value)[:-_MAC_BYTES])
        if not hmac.compare_digest(mac, value[-_MAC_BYTES:]):
            name = key_id.rstrip(b"\0").decode("ascii")
            raise InputError(
                f"its signature is not by the key {name}: that id has another secret where it was "
                "signed, or somebody changed the message"
            )
        return value[:-SIGNATURE_BYTES]


def seems_signed(value: bytes) -> bool:
    """Whether a message ends with what has the form of a signature."""
    end = len(value) - SIGNATURE_BYTES
    return end >= 0 and value.startswith(_FIELD, end)


def _mac(secret: bytes, signed: bytes | memoryview) -> bytes:
    mac = hmac.new(secret, PREFIX, "sha256")
    mac.update(signed)
    return mac.digest()


def _padded(key_id: str) -> bytes:
    return key_id.encode("ascii").ljust(MAX_KEY_ID, b"\0")
