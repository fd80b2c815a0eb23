"""Makes tokens that a Pulsar on loopback accepts, and runs an OAuth2 issuer of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

ADMIN: Final = "quotaplane-admin"
STRANGER: Final = "quotaplane-stranger"
"""A role without permissions."""


class Tokens:
    """JSON web tokens signed with a new secret key (HS256)."""

    def __init__(self, folder: Path) -> None:
        self._key = secrets.token_bytes(32)
        folder.mkdir(parents=True, exist_ok=True)
        self.key_file = folder / "token.key"
        self.key_file.write_bytes(self._key)

    def sign(self, role: str) -> str:
        """A token for a role."""
        head, body = (_base64(json.dumps(part)) for part in ({"alg": "HS256"}, {"sub": role}))
        signed = hmac.new(self._key, f"{head}.{body}".encode(), hashlib.sha256).digest()
        return f"{head}.{body}.{_base64(signed)}"


class Issuer:
    """An OAuth2 issuer with one client; a context manager.

    Pulsar's clients make two requests: ``/.well-known/openid-configuration`` returns the token
    endpoint, and a POST there with the client's credentials returns a token.
    """

    client_id: Final = "quotaplane"
    client_secret: Final = "odd&secret=with+characters%"

    def __init__(self, token: str) -> None:
        self.issued = 0
        """Number of tokens issued."""
        self._token = token
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def write_key_file(self, path: Path) -> Path:
        """Write the credentials as the JSON file that Pulsar's clients read."""
        key = {"type": "client_credentials", "issuer_url": self.url}
        credentials = {"client_id": self.client_id, "client_secret": self.client_secret}
        path.write_text(json.dumps(key | credentials))
        return path

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/.well-known/openid-configuration":
                    return self._answer(404, {"error": "not_found"})
                return self._answer(200, {"token_endpoint": f"{issuer.url}/oauth/token"})

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
                is_json = "json" in self.headers.get("Content-Type", "")
                asked = {name: values[0] for name, values in parse_qs(raw).items()}
                if is_json:
                    asked = json.loads(raw)
                given = asked.get("client_id"), asked.get("client_secret")
                if given != (issuer.client_id, issuer.client_secret):
                    return self._answer(401, {"error": "access_denied"})
                issuer.issued += 1
                token = {"access_token": issuer._token, "token_type": "Bearer", "expires_in": 3600}
                return self._answer(200, token)

            def _answer(self, status: int, body: dict[str, object]) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing, to keep a test's output clean."""

        return Handler


def _base64(part: str | bytes) -> str:
    raw = part.encode() if isinstance(part, str) else part
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
