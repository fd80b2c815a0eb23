"""The issuer's public keys for RS256: from a PEM file, or a key set (JWKS) that changes."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import KEYS_OF_TOKENS
from quotaplane.errors import ClusterError, ConfigError, QuotaplaneError
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.http_answers import UNCOMPRESSED, read_answer

Fetch = Callable[[], Awaitable[bytes]]

REFRESH_S: Final = 300.0
"""A key set is fetched again when it is this old."""
LEAST_BETWEEN_S: Final = 10.0
"""Least seconds between two fetches that tokens with unknown keys cause, as any client can."""

_FETCH_WITHIN_S: Final = 5.0
_MOST_BYTES: Final = 1024 * 1024
_FAILURES: Final = (
    httpx.HTTPError,
    httpx.InvalidURL,
    ClusterError,  # an answer that is too large, or compressed
    OSError,
    ValueError,  # no JSON, or no keys
    asyncio.TimeoutError,  # before Python 3.11 no OSError
)


class KeysUnavailableError(QuotaplaneError):
    """No key set could be fetched yet."""


def read_public_key(path: str) -> RSAPublicKey:
    """The RSA public key in a PEM file.

    Raises:
        ConfigError: there is none; names the file.
    """
    where = f"server.auth.rs256_public_key_file: {path}"
    try:
        key = load_pem_public_key(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"{where}: can't be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{where}: is no public key in PEM form") from None
    if not isinstance(key, RSAPublicKey):
        raise ConfigError(f"{where}: is no RSA key, which RS256 needs")
    return key


def parse_key_set(raw: bytes) -> dict[str | None, RSAPublicKey]:
    """The RSA keys of a JWKS that sign tokens, by key id.

    Raises:
        ValueError: it is none, or has no such key.
    """
    parsed = parse_bounded(raw)
    entries = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        raise ValueError("is no JSON object with a list of keys")
    found: dict[str | None, RSAPublicKey] = {}
    for entry in entries:
        # Other keys are not for RS256. A symmetric key in a public set would let anybody sign.
        if _signs(entry):
            try:
                key = jwt.PyJWK.from_dict(entry, algorithm="RS256").key
            except (jwt.PyJWTError, *MALFORMED):
                continue
            if isinstance(key, RSAPublicKey):
                found[entry.get("kid")] = key
    if not found:
        raise ValueError("has no RSA key for signatures")
    return found


def _signs(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("kty") == "RSA"
        and isinstance(entry.get("kid"), str | None)
        and entry.get("use", "sig") == "sig"
        and entry.get("alg", "RS256") == "RS256"
    )


class KeySet:
    """A key set, fetched again every ``REFRESH_S``, and when a token names an unknown key.

    If it can't be fetched, the previous keys stay. For one event loop.
    """

    def __init__(
        self,
        fetch: Fetch,
        conditions: Conditions,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._clock = fetch, clock
        self._conditions = conditions
        self._keys: dict[str | None, RSAPublicKey] = {}
        self._tried_at = -float("inf")
        self._fetching: asyncio.Task[None] | None = None

    async def find(self, kid: str | None) -> RSAPublicKey | None:
        """The key of this id; without an id the only one. None: there is no such key.

        Raises:
            KeysUnavailableError: no keys were fetched yet.
        """
        age_s = self._clock() - self._tried_at
        if age_s >= REFRESH_S or (self._get(kid) is None and age_s >= LEAST_BETWEEN_S):
            await self.refresh()
        elif self._fetching is not None and self._get(kid) is None:
            await asyncio.shield(self._fetching)
        if not self._keys:
            raise KeysUnavailableError("the keys of tokens can't be fetched; try again later")
        return self._get(kid)

    def _get(self, kid: str | None) -> RSAPublicKey | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    async def refresh(self) -> None:
        """Fetch the keys; requests that need them at once wait for the same answer."""
        if self._fetching is None:
            self._tried_at = self._clock()
            self._fetching = asyncio.create_task(self._fetched())
        await asyncio.shield(self._fetching)

    async def _fetched(self) -> None:
        try:
            # Also where each part of an answer is in time.
            fetched = await asyncio.wait_for(self._fetch(), 2 * _FETCH_WITHIN_S)
            self._keys = parse_key_set(fetched)
            self._conditions.note(KEYS_OF_TOKENS, "", None)
        except _FAILURES as error:
            failure = QuotaplaneError(str(error) or type(error).__name__)
            self._conditions.note(KEYS_OF_TOKENS, "", failure)
        finally:
            self._fetching = None


def from_url(url: str) -> Fetch:
    """Fetches a key set from a URL, whose redirects are not followed."""
    context = ssl.create_default_context()

    async def fetch() -> bytes:
        # Proxies of the environment and .netrc are ignored: the settings decide.
        async with httpx.AsyncClient(
            timeout=_FETCH_WITHIN_S, verify=context, headers=UNCOMPRESSED, trust_env=False
        ) as client:
            answer = await read_answer(client, client.build_request("GET", url), _MOST_BYTES)
        if answer.status != httpx.codes.OK:
            raise ValueError(f"{url}: answers {answer.status}")
        return answer.content

    return fetch


def from_file(path: str) -> Fetch:
    """Reads a key set from a file."""

    async def fetch() -> bytes:
        return await asyncio.to_thread(Path(path).read_bytes)

    return fetch
