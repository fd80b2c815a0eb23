"""Which tokens are accepted; attacks on them; keys that change."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from quotaplane.agents.conditions import Conditions
from quotaplane.errors import ClusterError, ConfigError
from quotaplane.server.access import Role
from quotaplane.server.tokens import (
    LEAST_BETWEEN_S,
    KeySet,
    KeysUnavailableError,
    TokenRefusedError,
    Verifier,
    from_url,
    parse_key_set,
)
from quotaplane.settings.server import Authentication
from tests.unit.pulsar_admin.cluster_cases import Answer, RestServer
from tests.unit.server.server_cases import CONF, SECRET, Served, settings_with, token

ISSUER, AUDIENCE = "https://issuer.example", "quotaplane"


@cache
def private_key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def pem(key: Any) -> bytes:
    return bytes(
        key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def jwk(name: str, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(private_key(name).public_key()))
    return {"kid": name, "use": "sig", **made, **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def rs256(name: str, *, kid: str | None = None, **claims: Any) -> str:
    given = {
        "sub": "ann",
        "exp": 2**33,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "roles": ["operator:acme"],
        **claims,
    }
    headers = None if kid is None else {"kid": kid}
    given = {claim: value for claim, value in given.items() if value is not None}
    return jwt.encode(given, private_key(name), "RS256", headers=headers)


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "public.pem").write_bytes(pem(private_key("a").public_key()))
    (tmp_path / "keys.json").write_bytes(key_set(jwk("a"), jwk("b")))
    return tmp_path


def verify(auth: dict[str, Any], given: str, said: list[str] | None = None) -> Any:
    async def verified() -> Any:
        conditions = Conditions([].append if said is None else said.append)
        verifier = Verifier(Authentication(**auth), conditions)
        return await verifier.verify(given)

    return asyncio.run(verified())


def refusal(auth: dict[str, Any], given: str) -> str:
    with pytest.raises(TokenRefusedError) as caught:
        verify(auth, given)
    reason = str(caught.value)
    # Nothing of the token is repeated.
    assert "\n" not in reason
    assert not any(part and part in reason for part in given.split("."))
    return reason


HS256: Final = {"hs256_secret": SECRET}


def test_a_token_says_who_and_what_for() -> None:
    found = verify(HS256, token("operator:acme", "viewer", sub="jürgen"))
    assert (found.name, found.roles) == ("jürgen", {"acme": Role.OPERATOR, "*": Role.VIEWER})


CLAIMS = {"sub": "ann", "exp": 2**33, "roles": ["admin"]}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (token("admin", exp=2**30), "it has expired"),
        (token("admin", exp=None), "it has no exp"),
        (token("admin", nbf=2**33), "it is not valid yet"),
        (token("admin", key="another secret of thirty-two bytes!!"), "its signature is wrong"),
        (token("admin", aud="quotaplane"), "it is for another audience"),
        (token("admin", sub=None), "it has no sub"),
        (token("admin", sub=""), "its subject"),
        (token("admin", sub="x" * 257), "its subject"),
        (token("admin", exp="tomorrow"), "it is malformed"),
        ("x", "no JWT"),
        (jwt.encode(CLAIMS, "", "none"), "its algorithm is not accepted"),
        (jwt.encode(CLAIMS, SECRET, "HS384"), "its algorithm is not accepted"),
        (rs256("a"), "its algorithm is not accepted"),
    ],
)
def test_other_tokens_are_refused_with_one_reason(given: str, reason: str) -> None:
    assert reason in refusal(HS256, given)


def test_clocks_may_differ_a_little() -> None:
    late = token("admin", exp=time.time() - 1, nbf=time.time() + 29)
    assert verify(HS256, late).name == "ann"
    later = token("admin", nbf=time.time() + 600)
    assert "not valid yet" in refusal(HS256, later)


@pytest.mark.parametrize("way", ["rs256_public_key_file", "jwks_file"])
def test_rs256_with_the_issuers_key(files: Path, way: str) -> None:
    path = files / ("public.pem" if way == "rs256_public_key_file" else "keys.json")
    auth = {way: str(path), "issuer": ISSUER, "audience": AUDIENCE}
    assert verify(auth, rs256("a", kid="a")).roles == {"acme": Role.OPERATOR}
    assert "another issuer" in refusal(auth, rs256("a", kid="a", iss="https://evil.example"))
    assert "another audience" in refusal(auth, rs256("a", kid="a", aud="billing"))
    assert "has no aud" in refusal(auth, rs256("a", kid="a", aud=None))
    assert "has no iss" in refusal(auth, rs256("a", kid="a", iss=None))
    assert "signature is wrong" in refusal(auth, rs256("c", kid="a"))
    assert "algorithm" in refusal(auth, token("admin"))


def test_a_public_key_is_no_secret(files: Path) -> None:
    """The attacker signs with HS256 and the public key, which everybody knows."""
    public = (files / "public.pem").read_bytes()
    signed = ".".join(b64(json.dumps(part).encode()) for part in ({"alg": "HS256"}, CLAIMS))
    fake = f"{signed}.{b64(hmac.new(public, signed.encode(), hashlib.sha256).digest())}"
    rs = {"rs256_public_key_file": str(files / "public.pem")}
    assert "its algorithm is not accepted" in refusal(rs, fake)
    # Also where both kinds are accepted.
    assert "its signature is wrong" in refusal({**rs, **HS256}, fake)
    assert verify({**rs, **HS256}, rs256("a", aud=None)).name == "ann"
    with pytest.raises(ConfigError, match=r"hs256_secret_file.*no secret of HS256"):
        Verifier(Authentication(hs256_secret_file=str(files / "public.pem")), Conditions(print))


def test_keys_by_id(files: Path) -> None:
    auth = {"jwks_file": str(files / "keys.json"), "audience": AUDIENCE}
    assert verify(auth, rs256("b", kid="b")).name == "ann"
    assert "its key (kid) is not known" in refusal(auth, rs256("c", kid="c"))
    assert "its key (kid) is not known" in refusal(auth, rs256("a"))  # of two keys
    assert "signature is wrong" in refusal(auth, rs256("b", kid="a"))
    # A key that the token brings along counts for nothing.
    own = jwt.encode(
        {**CLAIMS, "aud": AUDIENCE}, private_key("c"), "RS256", {"kid": "a", "jwk": jwk("c")}
    )
    assert "signature is wrong" in refusal(auth, own)


def test_only_rsa_keys_for_signatures_count() -> None:
    secret = {"kty": "oct", "k": b64(SECRET.encode()), "kid": "s", "alg": "HS256"}
    encrypting = jwk("b", use="enc")
    other = jwk("c", alg="RS512")
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    elliptic = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(curve)), "kid": "e"}
    found = parse_key_set(key_set(secret, encrypting, other, elliptic, {"kty": "RSA"}, jwk("a")))
    assert list(found) == ["a"]
    for bad in (b"", b"[]", b"{}", b'{"keys": 3}', key_set(secret)):
        with pytest.raises(ValueError, match=r".+"):
            parse_key_set(bad)


class Issuer:
    """A key set that changes, and a clock."""

    def __init__(self) -> None:
        self.now, self.fetched, self.said = 0.0, 0, list[str]()
        self.keys: bytes | Exception = key_set(jwk("a"))
        conditions = Conditions(self.said.append, clock=lambda: self.now)
        self.set = KeySet(self.fetch, conditions, lambda: self.now)

    async def fetch(self) -> bytes:
        self.fetched += 1
        await asyncio.sleep(0)
        if isinstance(self.keys, Exception):
            raise self.keys
        return self.keys


def test_keys_are_kept_and_fetched_again_for_an_unknown_id() -> None:
    async def story() -> None:
        issuer = Issuer()
        assert await issuer.set.find("a") is not None
        assert await issuer.set.find(None) is not None  # the only one
        assert issuer.fetched == 1
        issuer.keys = key_set(jwk("a"), jwk("b"))
        # Too soon: or tokens with made-up ids would fetch keys all the time.
        assert await issuer.set.find("b") is None
        assert issuer.fetched == 1
        issuer.now = LEAST_BETWEEN_S
        found = await asyncio.gather(*(issuer.set.find("b") for _ in range(5)))
        assert all(found)
        assert issuer.fetched == 2
        # A key that was withdrawn is gone after the next regular fetch.
        issuer.keys = key_set(jwk("b"))
        issuer.now += 299
        assert await issuer.set.find("a") is not None
        issuer.now += 1
        assert await issuer.set.find("a") is None
        assert issuer.said == []

    asyncio.run(story())


def test_keys_stay_while_they_can_not_be_fetched() -> None:
    async def story() -> None:
        issuer = Issuer()
        issuer.keys = OSError("no route")
        with pytest.raises(KeysUnavailableError):
            await issuer.set.find("a")
        issuer.now, issuer.keys = 10.0, key_set(jwk("a"))
        assert await issuer.set.find("a") is not None
        issuer.now, issuer.keys = 310.0, b"<html>"
        assert await issuer.set.find("a") is not None
        assert issuer.said[0] == "keys of tokens: no route; retrying"
        assert issuer.said[1] == "keys of tokens: over after 10 s"
        assert len(issuer.said) == 3

    asyncio.run(story())


def test_keys_from_a_url() -> None:
    auth = {"issuer": ISSUER, "audience": AUDIENCE}
    with RestServer({"GET /keys": Answer(200, key_set(jwk("a")).decode())}) as server:
        url = f"{server.url}/keys"
        assert verify({**auth, "jwks_url": url}, rs256("a", kid="a")).name == "ann"
        server.answers["GET /keys"] = Answer(302, "", {"Location": f"{server.url}/other"})
        with pytest.raises(ValueError, match="answers 302"):
            asyncio.run(from_url(url)())
        server.answers["GET /keys"] = Answer(200, "x" * 1024 * 1025)
        with pytest.raises(ClusterError, match="has more than 1048576 bytes"):
            asyncio.run(from_url(url)())
        said: list[str] = []
        with pytest.raises(KeysUnavailableError):
            verify({**auth, "jwks_url": url}, rs256("a", kid="a"), said)
        (line,) = said
        assert line.startswith(f"keys of tokens: GET {url}: the answer has more than 1048576 bytes")


def test_roles_of_other_claims_and_names(tmp_path: Path) -> None:
    grants = {"team-a": ["operator:acme", "viewer"], "root": ["admin"]}
    auth = {**HS256, "roles_claim": "groups", "grants": grants}
    assert verify(auth, token(groups=["team-a", "x"])).roles["acme"] == Role.OPERATOR
    assert verify(auth, token(groups="root")).roles == {"*": Role.ADMIN}
    # With grants, nobody is what they call themselves.
    assert verify(auth, token("admin", groups=["admin", "viewer:*"])).roles == {}
    by_name = {**HS256, "roles_claim": "sub", "grants": {"ann": ["viewer:acme"]}}
    assert verify(by_name, token()).roles == {"acme": Role.VIEWER}
    assert verify(by_name, token(sub="admin")).roles == {}
    for odd in (None, 3, {"admin": 1}, [["admin"]], [None]):
        assert verify(HS256, token(roles=odd)).roles == {}


def test_no_token_is_printed_or_answered(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(settings_with(tmp_path, {"auth": HS256}))
    good, bad = token("admin"), token("admin", key="x" * 40)
    texts = []
    for one in (good, bad):
        served.token = one
        for path in ("/api/v1/me", "/api/v1/config", "/api/v1/groups/none"):
            texts.append(served.ask("GET", path).text)
    out, err = capfd.readouterr()
    printed = "".join([*texts, out, err, caplog.text, *served.said])
    assert SECRET not in printed
    assert not any(part in printed for one in (good, bad) for part in one.split("."))
    served.token = good
    shown = served.ok("GET", "/api/v1/config")
    assert shown["file"] == CONF
    assert shown["settings"]["server"]["auth"]["hs256_secret"] == "**********"
