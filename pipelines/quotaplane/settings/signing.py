"""Settings of signatures on messages: the secrets, and the rules for them and their ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import SecretStr, model_validator

from quotaplane.settings.section import Section

MAX_KEY_ID: Final = 16
"""Characters."""
LEAST_SECRET: Final = 32
"""Characters, and bytes: as many as an HMAC-SHA256 has."""
_KEY_ID: Final = re.compile(f"[a-z0-9-]{{1,{MAX_KEY_ID}}}")
_SECRET: Final = re.compile("[!-~]*")


def check_key_ids(ids: Iterable[object]) -> None:
    """Check the ids of secrets; an error does not repeat them, as one may be a secret.

    >>> check_key_ids(["2026-11", "b"])

    Raises:
        ValueError: one of them can't be an id, or there are none.
    """
    ids = list(ids)
    if not ids:
        raise ValueError("keys: there must be at least one")
    for number, key_id in enumerate(ids, 1):
        if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
            raise ValueError(
                f"keys: the id of key {number} must be a text of 1 to {MAX_KEY_ID} characters: "
                "a to z, 0 to 9 and -"
            )


def check_secrets(secrets: Mapping[str, str], sign_with: str | None) -> None:
    """Check secrets by id, and the id of the one that signs.

    Raises:
        ValueError: a secret is too short, has other characters than visible ones of ASCII, or
            has two ids; or none has the id ``sign_with``.
    """
    check_key_ids(secrets)
    id_of: dict[str, str] = {}
    for key_id, secret in secrets.items():
        if not _SECRET.fullmatch(secret):
            raise ValueError(
                f"keys.{key_id}: has a character that is not a visible one of ASCII, such as a "
                "space or the end of a line"
            )
        if len(secret) < LEAST_SECRET:
            raise ValueError(
                f"keys.{key_id}: must have at least {LEAST_SECRET} characters, not {len(secret)}; "
                "openssl rand -hex 32 makes one"
            )
        if id_of.setdefault(secret, key_id) != key_id:
            raise ValueError(f"keys.{key_id}: is the same secret as keys.{id_of[secret]}")
    if sign_with is not None and sign_with not in secrets:
        raise ValueError(f"sign_with: must be the id of one of keys: {', '.join(secrets)}")


class Signing(Section):
    """Secrets of the programs that may write messages."""

    keys: dict[str, SecretStr]
    """Secrets by id (1 to 16 of a to z, 0 to 9, -), each 32 visible ASCII characters or more. Add
    one to rotate a key (docs/operate/signed-limits.md)."""
    sign_with: str
    """Id of the key that the job signs with; readers accept all keys. Change it once all readers
    have the new key."""

    @model_validator(mode="before")
    @classmethod
    def _ids(cls, raw: Any) -> Any:
        # Before the values: pydantic's own errors would print an id, which may be a secret.
        if isinstance(raw, dict) and isinstance(raw.get("keys"), dict):
            check_key_ids(raw["keys"])
        return raw

    @model_validator(mode="after")
    def _secrets(self) -> Signing:
        check_secrets(self.secrets(), self.sign_with)
        return self

    def secrets(self) -> dict[str, str]:
        """The secrets themselves, by id."""
        return {key_id: secret.get_secret_value() for key_id, secret in self.keys.items()}
