"""Verifies bearer tokens (JWT), which give the caller of a request and its roles.

The algorithm is never taken from the token alone: HS256 is only tried with the secret, RS256 only
with public keys; a token that needs a key the settings do not have is refused. Tokens are never
printed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from quotaplane.errors import ConfigError, QuotaplaneError
from quotaplane.server.access import Principal, roles_of
from quotaplane.server.signing_keys import KeySet, from_file, from_url, read_public_key
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

    def __init__(self, auth: Authentication, say: Callable[[str], None]) -> None:
        self._auth = auth
        self._secret = _secret(auth)
        self._public_key: RSAPublicKey | None = None
        self.key_set: KeySet | None = None
        """The keys that can change, if the settings name a key set."""
        if auth.rs256_public_key_file is not None:
            self._public_key = read_public_key(auth.rs256_public_key_file)
        elif auth.jwks_url is not None:
            self.key_set = KeySet(from_url(auth.jwks_url), say)
        elif auth.jwks_file is not None:
            self.key_set = KeySet(from_file(auth.jwks_file), say)

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
