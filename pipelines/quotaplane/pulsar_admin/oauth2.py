"""Fetches a token with OAuth2 client credentials, like Pulsar's own clients."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import httpx

from quotaplane.errors import ClusterError
from quotaplane.settings.loopback import clear_to
from quotaplane.settings.transports import OAuth2, PulsarSecurity


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
        async with httpx.AsyncClient(timeout=timeout_s, verify=context, trust_env=False) as client:
            configuration = await client.get(f"{issuer}/.well-known/openid-configuration")
            configuration.raise_for_status()
            endpoint = configuration.json()["token_endpoint"]
            if clear_to(endpoint) is not None and clear_to(issuer) is None:
                raise ClusterError(
                    f"{where}: names {endpoint} for tokens, to which the client's secret would go "
                    "in clear text; the issuer must name an https URL"
                )
            answer = await client.post(endpoint, data=form)
            answer.raise_for_status()
            content = answer.json()
            token, lives_s = content["access_token"], float(content.get("expires_in", 3600))
            if not isinstance(token, str):
                raise TypeError
            return token, lives_s
    except httpx.HTTPStatusError as error:
        raise ClusterError(f"{where}: refused with {error.response.status_code}") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(f"{where}: can't be reached: {why}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ClusterError(f"{where}: the answer has no token") from None


def _credentials(oauth2: OAuth2) -> dict[str, Any]:
    if oauth2.private_key_file is None:
        assert oauth2.client_secret is not None
        return {
            "client_id": oauth2.client_id,
            "client_secret": oauth2.client_secret.get_secret_value(),
        }
    try:
        key = json.loads(Path(oauth2.private_key_file).read_text(encoding="utf-8"))
        return {name: key[name] for name in ("client_id", "client_secret")}
    except (OSError, ValueError, KeyError, TypeError):
        raise ClusterError(
            f"transport.security.oauth2.private_key_file: {oauth2.private_key_file}: can't be "
            "read, or is not JSON with client_id and client_secret"
        ) from None
