"""Settings of signatures on messages."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr, model_validator

from quotaplane.settings.section import Section
from quotaplane.signing_secrets import check_key_ids, check_secrets


class Signing(Section):
    """Secrets of the programs that may write messages."""

    keys: dict[str, SecretStr]
    """Secrets by id. An id has 1 to 16 characters: a to z, 0 to 9 and -. A secret is a text of 32
    visible ASCII characters or more, which are the key as they are."""
    sign_with: str
    """Id of the key that the job signs with; readers accept all keys."""

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
