"""Settings of ``quotaplane serve``: address, TLS, authentication."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, SecretStr, field_validator, model_validator

from quotaplane.parsing.addresses import clear_to
from quotaplane.settings.section import Section

GRANT: Final = r"(admin|operator|viewer)(:[^\s:/]+)?"
"""A role, and the tenant that it is for; without a tenant, it is for all."""

_LEAST_SECRET: Final = 32
"""Fewest bytes that RFC 7518 allows for HS256."""


class Tls(Section):
    """The server's certificate."""

    certificate_file: str
    """PEM file; intermediate certificates follow the server's own. Set it if the server itself ends
    TLS."""
    key_file: str
    """PEM file with the certificate's private key. Set it with ``certificate_file``."""


class Authentication(Section):
    """The accepted bearer tokens (JWT), and the roles of their bearers."""

    hs256_secret: SecretStr | None = None
    """Secret of tokens signed with HS256, at least 32 bytes. Set it, or the file, if your cluster's
    tokens are made with a secret."""
    hs256_secret_file: str | None = None
    """File with that secret's bytes, such as ``pulsar tokens create-secret-key`` writes."""
    rs256_public_key_file: str | None = None
    """PEM file with the public key of tokens signed with RS256. Set it if your cluster's tokens are
    made with a key pair."""
    jwks_url: str | None = Field(default=None, pattern=r"^https?://[^\s@]+$")
    """URL of an issuer's keys (JWKS), for RS256; https, or http on this host. Set it, ``issuer``
    and ``audience`` with an identity provider."""
    jwks_file: str | None = None
    """File with such keys, read again for a token with an unknown key. Set it if the server can't
    reach the issuer."""
    issuer: str | None = None
    """Required ``iss`` of a token; null: any. Set it with an identity provider."""
    audience: str | None = None
    """Required value in ``aud`` of a token; null: only tokens without ``aud``. Set it with an
    identity provider."""
    roles_claim: str = Field(default="roles", min_length=1)
    """The claim with the bearer's roles: a text or a list. Set it to what your issuer calls groups
    or roles; ``sub`` with Pulsar's tokens."""
    grants: dict[str, tuple[str, ...]] = Field(default={})
    """Roles by value of that claim (``team-a: [operator:acme, viewer]``); if empty, the values are
    roles. Set it if your issuer does not know our roles."""

    @field_validator("grants")
    @classmethod
    def _are_grants(cls, grants: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        for name, given in grants.items():
            for grant in given:
                if not re.fullmatch(GRANT, grant):
                    raise ValueError(
                        f"{name}: {grant!r} must be admin, operator or viewer, for one tenant with "
                        "its name: operator:acme"
                    )
        return grants

    @field_validator("hs256_secret")
    @classmethod
    def _long_enough(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None:
            check_secret(secret.get_secret_value().encode())
        return secret

    @field_validator("jwks_url")
    @classmethod
    def _encrypted(cls, url: str | None) -> str | None:
        if url is not None and clear_to(url) is not None:
            raise ValueError("must be https: over http anybody between could give keys of his own")
        return url

    @model_validator(mode="after")
    def _one_of_each(self) -> Authentication:
        if self.hs256_secret is not None and self.hs256_secret_file is not None:
            raise ValueError("hs256_secret and hs256_secret_file exclude each other")
        rs256 = (self.rs256_public_key_file, self.jwks_url, self.jwks_file)
        if sum(way is not None for way in rs256) > 1:
            raise ValueError("rs256_public_key_file, jwks_url and jwks_file exclude each other")
        if not any((*rs256, self.hs256_secret, self.hs256_secret_file)):
            raise ValueError(
                "needs a key: hs256_secret, hs256_secret_file, rs256_public_key_file, jwks_url or "
                "jwks_file"
            )
        if self.jwks_url is not None and (self.issuer is None or self.audience is None):
            raise ValueError(
                "jwks_url needs issuer and audience: the issuer signs tokens for others, too"
            )
        return self


class Server(Section):
    """``quotaplane serve``."""

    host: str = "127.0.0.1"
    """Address to listen at. Set it if other hosts use the server; it then needs ``tls``."""
    port: int = Field(default=8460, ge=0, le=65_535)
    """Port to listen at; 0: any free one, which the ready line names. Set it if 8460 is taken."""
    tls: Tls | Literal["ended-by-a-proxy"] | None = None
    """Certificate and key, or ``ended-by-a-proxy`` if a proxy in front has them. Set it if other
    hosts use the server."""
    auth: Authentication | None = None
    """Tokens that are accepted; null: none. Set it, or ``anonymous``."""
    anonymous: Literal["none", "viewer", "admin-without-authentication"] = "none"
    """Rights without a token: none, to read everything, or all. Set ``viewer`` for a try, or where
    everybody may see all groups."""
    request_timeout_s: float = Field(default=30.0, gt=0)
    """A request that takes longer is answered 503. Raise it if questions to a large history take
    longer."""

    @model_validator(mode="after")
    def _guarded(self) -> Server:
        if self.auth is None and self.anonymous == "none":
            raise ValueError(
                "nobody could do anything: set auth, or, for a try on this host, anonymous: viewer"
            )
        return self


def check_secret(secret: bytes) -> bytes:
    """A secret for HS256, if it can be one.

    Raises:
        ValueError: it is too short, or a public key, which is no secret.
    """
    if secret.lstrip().startswith((b"-----BEGIN", b"ssh-rsa")):
        raise ValueError("is a key pair's, and no secret of HS256: use rs256_public_key_file")
    if len(secret) < _LEAST_SECRET:
        raise ValueError(f"must have at least {_LEAST_SECRET} bytes, not {len(secret)}")
    return secret


Port: TypeAlias = Annotated[int, Field(ge=1, le=65535)]


class MetricsPorts(Section):
    """The ports at which Prometheus reads the metrics of each program; null: none."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address at which metrics are served. Set it if Prometheus is on another host; who reaches it
    can read names of groups."""
    job_port: Port | None = None
    """Port of the quota job's metrics; null: none. Set it if Prometheus watches the job."""
    enforcer_port: Port | None = None
    """Port of the enforcer's metrics; null: none. Set it if Prometheus watches the enforcer."""

    @model_validator(mode="after")
    def _ports_differ(self) -> MetricsPorts:
        given = [port for _, port in self if isinstance(port, int)]
        if len(set(given)) < len(given):
            raise ValueError("the ports of two programs are the same")
        return self


class Tracing(Section):
    """OpenTelemetry traces of rounds."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """URL of an OpenTelemetry collector (OTLP/HTTP), such as http://localhost:4318/v1/traces; null:
    no traces. Set it if you have one."""
