"""Fetches a token with OAuth2 client credentials, like Pulsar's own clients."""

from __future__ import annotations

import math
import ssl
from pathlib import Path
from typing import Any, Final

import httpx

from quotaplane.errors import ClusterError
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.http_answers import UNCOMPRESSED, HttpAnswer, read_answer
from quotaplane.settings.loopback import clear_to
from quotaplane.settings.transports import OAuth2, PulsarSecurity

_MOST_BYTES: Final = 1 << 20
"""Most bytes of an answer, and of the file of the key."""


async def fetch_token(security: PulsarSecurity, timeout_s: float) -> tuple[str, float]:
    """Fetch a token with ``security.oauth2``; returns it and its life time in seconds.

    The issuer's certificate may be signed by the system's authorities or those in ``ca_file``.

    Raises:
        ClusterError: the issuer gave no token.
    """
    oauth2 = security.oauth2
    assert oauth2 is not None
    context = ssl.create_default_context()
    if security.ca_file is not None:
        context.load_verify_locations(security.ca_file)
    issuer = oauth2.issuer_url.rstrip("/")
    where = f"transport.security.oauth2: {issuer}"
    form = _credentials(oauth2) | {"grant_type": "client_credentials", "audience": oauth2.audience}
    if oauth2.scope is not None:
        form["scope"] = oauth2.scope
    try:
        async with httpx.AsyncClient(
            timeout=timeout_s, verify=context, headers=UNCOMPRESSED, trust_env=False
        ) as client:
            url = f"{issuer}/.well-known/openid-configuration"
            found = await _successful(client, client.build_request("GET", url), where)
            endpoint = found.json()["token_endpoint"]
            if not isinstance(endpoint, str):
                raise TypeError
            if clear_to(endpoint) is not None and clear_to(issuer) is None:
                raise ClusterError(
                    f"{where}: names {endpoint} for tokens, to which the client's secret would go "
                    "in clear text; the issuer must name an https URL"
                )
            request = client.build_request("POST", endpoint, data=form)
            content = (await _successful(client, request, where)).json()
            token, lives_s = content["access_token"], float(content.get("expires_in", 3600))
            if not isinstance(token, str) or not 0 <= lives_s < math.inf:
                raise TypeError
            return token, lives_s
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(f"{where}: can't be reached: {why}") from None
    except MALFORMED:
        raise ClusterError(f"{where}: the answer has no token") from None


async def _successful(client: httpx.AsyncClient, request: httpx.Request, where: str) -> HttpAnswer:
    answer = await read_answer(client, request, _MOST_BYTES)
    if not 200 <= answer.status < 300:
        raise ClusterError(f"{where}: refused with {answer.status}")
    return answer


def _credentials(oauth2: OAuth2) -> dict[str, Any]:
    if oauth2.private_key_file is None:
        assert oauth2.client_secret is not None
        return {
            "client_id": oauth2.client_id,
            "client_secret": oauth2.client_secret.get_secret_value(),
        }
    try:
        with Path(oauth2.private_key_file).open("rb") as file:
            key = parse_bounded(file.read(_MOST_BYTES))
        return {name: key[name] for name in ("client_id", "client_secret")}
    except (OSError, *MALFORMED):
        raise ClusterError(
            f"transport.security.oauth2.private_key_file: {oauth2.private_key_file}: can't be "
            "read, or is not JSON with client_id and client_secret"
        ) from None
