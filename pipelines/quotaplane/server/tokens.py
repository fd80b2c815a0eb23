"""Verifies bearer tokens (JWT), which give the caller of a request and its roles.

The issuer's public keys for RS256 come from a PEM file, or a key set (JWKS) that changes.

The algorithm is never taken from the token alone: HS256 is only tried with the secret, RS256 only
with public keys; a token that needs a key the settings do not have is refused. Tokens are never
printed.
"""

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
from quotaplane.server.access import Principal, roles_of
from quotaplane.settings.server import Authentication, check_secret

CLOCK_LEEWAY_S: Final = 30.0
"""Largest difference between the issuer's clock and ours that a token's times may have."""
_MOST_NAME: Final = 256
_REASONS: Final[tuple[tuple[type[jwt.PyJWTError], str], ...]] = (
    (jwt.ExpiredSignatureError, "it has expired"),
    (jwt.ImmatureSignatureError, "it is not valid yet (nbf, iat)"),
    (jwt.InvalidIssuerError, "it is from another issuer"),
    (jwt.InvalidAudienceError, "it is for another audience"),
    (jwt.InvalidSignatureError, "its signature is wrong"),
    (jwt.InvalidAlgorithmError, "its algorithm is not accepted"),
)


class TokenRefusedError(QuotaplaneError):
    """A token is not accepted; the message says why, without parts of the token."""


class Verifier:
    """Verifies tokens as ``server.auth`` says; for one event loop.

    Raises:
        ConfigError: a key can't be read.
    """

    def __init__(self, auth: Authentication, conditions: Conditions) -> None:
        self._auth = auth
        self._secret = _secret(auth)
        self._public_key: RSAPublicKey | None = None
        self.key_set: KeySet | None = None
        """The keys that can change, if the settings name a key set."""
        if auth.rs256_public_key_file is not None:
            self._public_key = read_public_key(auth.rs256_public_key_file)
        elif auth.jwks_url is not None:
            self.key_set = KeySet(from_url(auth.jwks_url), conditions)
        elif auth.jwks_file is not None:
            self.key_set = KeySet(from_file(auth.jwks_file), conditions)

    async def verify(self, token: str) -> Principal:
        """The token's bearer.

        Raises:
            TokenRefusedError: the token is not accepted.
            KeysUnavailableError: the keys can't be fetched.
        """
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise TokenRefusedError("the token is no JWT") from None
        algorithm = header.get("alg")
        key = await self._key(algorithm, header.get("kid"))
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
                audience=self._auth.audience,
                issuer=self._auth.issuer,
                leeway=CLOCK_LEEWAY_S,
                options={"require": ["exp", "sub"]},
            )
        except jwt.MissingRequiredClaimError as error:
            raise TokenRefusedError(f"the token is refused: it has no {error.claim}") from None
        except (jwt.PyJWTError, ValueError, OverflowError) as error:
            raise TokenRefusedError(f"the token is refused: {_reason(error)}") from None
        return self._principal(claims)

    async def _key(self, algorithm: object, kid: object) -> Any:
        if algorithm == "HS256" and self._secret is not None:
            return self._secret
        if algorithm == "RS256" and self._public_key is not None:
            return self._public_key
        if algorithm == "RS256" and self.key_set is not None:
            key = await self.key_set.find(kid if isinstance(kid, str) else None)
            if key is None:
                raise TokenRefusedError("the token is refused: its key (kid) is not known")
            return key
        # The caller chose this text, so messages do not repeat it.
        raise TokenRefusedError("the token is refused: its algorithm is not accepted")

    def _principal(self, claims: dict[str, Any]) -> Principal:
        name = claims["sub"]
        if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME or not name.isprintable():
            raise TokenRefusedError(
                f"the token is refused: its subject (sub) must be a printable text of 1 to "
                f"{_MOST_NAME} characters"
            )
        values = claims.get(self._auth.roles_claim)
        listed = values if isinstance(values, list) else [values]
        texts = [text for text in listed if isinstance(text, str)]
        return Principal(name, roles_of(texts, self._auth.grants))


def _secret(auth: Authentication) -> bytes | None:
    if auth.hs256_secret is not None:
        return auth.hs256_secret.get_secret_value().encode()
    if auth.hs256_secret_file is None:
        return None
    where = f"server.auth.hs256_secret_file: {auth.hs256_secret_file}"
    try:
        raw = Path(auth.hs256_secret_file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{where}: can't be read: {error.strerror}") from None
    if raw.isascii() and raw.decode("ascii").rstrip("\r\n").isprintable():
        raw = raw.rstrip(b"\r\n")  # added by an editor or by echo
    try:
        return check_secret(raw)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _reason(error: Exception) -> str:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    return "it is malformed"


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
