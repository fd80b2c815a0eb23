"""The client of Pulsar's REST API, against a server that answers what the tests want."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from quotaplane.errors import ClusterError, ConfigError
from quotaplane.pulsar_admin.rest import RefusedError, Rest, tls_context
from quotaplane.settings import PulsarSecurity, PulsarTransport
from tests.servers.certificates import make_certificates
from tests.servers.tools import free_ports
from tests.unit.pulsar_admin.cluster_cases import Answer, RestServer, transport_to

GROUP = "/admin/v2/resourcegroups/rg"
WELL_KNOWN = "GET /.well-known/openid-configuration"


@pytest.fixture
def server() -> Iterator[RestServer]:
    with RestServer({"GET resourcegroups/rg": Answer()}) as server:
        yield server


def ask(
    transport: PulsarTransport, *requests: tuple[str, str, object], timeout_s: float = 30.0
) -> list[Any]:
    """The answers to requests made one after the other."""

    async def all_of_them() -> list[Any]:
        async with Rest(transport.model_copy(update={"timeout_s": timeout_s})) as rest:
            return [await rest.ask(*request) for request in requests]

    return asyncio.run(all_of_them())


def get(transport: PulsarTransport, path: str = GROUP, timeout_s: float = 30.0) -> Any:
    return ask(transport, ("GET", path, None), timeout_s=timeout_s)[0]


def refused(transport: PulsarTransport) -> RefusedError:
    with pytest.raises(RefusedError) as raised:
        get(transport)
    assert "\n" not in str(raised.value)
    return raised.value


def unanswered(transport: PulsarTransport, timeout_s: float = 30.0) -> str:
    with pytest.raises(ClusterError) as raised:
        get(transport, timeout_s=timeout_s)
    assert not isinstance(raised.value, RefusedError)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_is_asked_and_what_is_answered(server: RestServer) -> None:
    server.answers = {
        "GET resourcegroups/rg": Answer(200, {"publishRateInMsgs": 5}),
        "PUT resourcegroups/rg": Answer(204),
        "GET plain": Answer(200, "rg1"),
        "GET empty": Answer(200, ""),
        "GET resourcegroups/a b?c#d%ü": Answer(200, ["odd"]),
    }
    body = {"publishRateInMsgs": -1}
    odd = Rest.path("resourcegroups", "a b?c#d%ü")
    found = ask(
        server.transport(),
        ("GET", GROUP, None),
        ("PUT", GROUP, body),
        ("GET", "/admin/v2/plain", None),
        ("GET", "/admin/v2/empty", None),
        ("GET", odd, None),
    )
    assert found == [{"publishRateInMsgs": 5}, None, "rg1", None, ["odd"]]
    assert json.loads(server.asked[1].body) == body
    assert server.asked[0].body == ""
    assert server.asked[0].authorization is None


@pytest.mark.parametrize(
    "name",
    [
        *("..", ".", "", "a/../../tenants/acme", "a/./b", "a//b", "/a", "a/", "../a", "a/..?b"),
        *("a\\..\\b", "a/.."),
    ],
)
def test_a_name_that_leads_elsewhere_is_no_request(server: RestServer, name: str) -> None:
    server.answers = {f"DELETE {path}": Answer(204) for path in ("tenants/acme", "", "x")}
    made = Rest.path("resourcegroups", name)
    if "?" in name or "\\" in name:  # encoded, so only parts of a raw path can have them
        made = f"/admin/v2/resourcegroups/{name}"
    with pytest.raises(ClusterError, match="no request was made"):
        ask(server.transport(), ("DELETE", made, None))
    assert server.asked == []


@pytest.mark.parametrize("part", ["a%2Fb", "a%2fb", "%2e%2e", ".%2E", "a%5Cb"])
def test_an_encoded_slash_is_none(server: RestServer, part: str) -> None:
    """Raw it is refused; a name that contains it reaches the cluster as that name."""
    with pytest.raises(ClusterError, match="no request was made"):
        ask(server.transport(), ("GET", f"/admin/v2/resourcegroups/{part}", None))
    server.answers[f"GET resourcegroups/{part}"] = Answer(200, "found")
    assert ask(server.transport(), ("GET", Rest.path("resourcegroups", part), None)) == ["found"]


@pytest.mark.parametrize("status", [401, 403, 404, 409, 412, 429, 500, 503])
def test_a_refusal_has_its_status_and_pulsars_words(server: RestServer, status: int) -> None:
    server.answers["GET resourcegroups/rg"] = Answer(status, {"reason": "not\ntoday"})
    error = refused(server.transport(token="very.secret"))
    assert error.status == status
    assert f"GET {GROUP}: {status} not today" in str(error)
    assert ("check transport.security" in str(error)) == (status in (401, 403))
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<html>gone</html>", "500 Internal Server Error"),
        ("[1]", "500 Internal Server Error"),
        ({"reason": None}, "500 Internal Server Error"),
        ({"reason": " --- Error ---\n\nStacktrace:\n\norg.apache"}, "500 --- Error ---"),
        ({"reason": "x" * 5000}, "x" * 300),
    ],
)
def test_a_refusal_is_one_short_line(server: RestServer, body: object, words: str) -> None:
    server.answers["GET resourcegroups/rg"] = Answer(500, body)
    error = refused(server.transport())
    assert str(error).endswith(words)
    assert len(str(error)) < 450


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert "check transport.admin_url" in unanswered(transport_to(f"http://127.0.0.1:{port}"))


@pytest.mark.parametrize("answer", [Answer(delay_s=30), Answer(body="x" * 1000, drip_s=0.05)])
def test_slow_answers_are_not_waited_for(server: RestServer, answer: Answer) -> None:
    server.answers["GET resourcegroups/rg"] = answer
    assert "no answer within 0.3 s" in unanswered(server.transport(), timeout_s=0.3)


class TestRedirects:
    """127.0.0.1 sends on to localhost, which is another host to any HTTP library."""

    @pytest.fixture
    def other(self) -> Iterator[RestServer]:
        with RestServer({"PUT resourcegroups/rg": Answer(204)}) as other:
            yield other

    def put(self, server: RestServer, times: int = 1) -> None:
        ask(server.transport(token="t"), *[("PUT", GROUP, {"a": 5})] * times)

    def test_to_a_broker_go_with_the_token(self, server: RestServer, other: RestServer) -> None:
        to = {"Location": f"http://localhost:{other.port}{GROUP}?authoritative=false"}
        other.answers["PUT resourcegroups/rg?authoritative=false"] = Answer(204)
        server.answers = {
            "PUT resourcegroups/rg": Answer(307, headers=to),
            "GET brokers": Answer(200, ["127.0.0.1:8080", "localhost:1"]),
        }
        self.put(server, times=2)
        assert [(a.authorization, a.body) for a in other.asked] == [("Bearer t", '{"a":5}')] * 2
        assert server.paths() == ["brokers"], "brokers are learnt once"

    @pytest.mark.parametrize(
        "brokers",
        [
            Answer(200, ["127.0.0.1:8080", "localhost.evil:80"]),
            Answer(200, "garbage"),
            Answer(200, {"no": "list"}),
            Answer(500),
        ],
    )
    def test_elsewhere_are_not_followed(
        self, server: RestServer, other: RestServer, brokers: Answer
    ) -> None:
        to = {"Location": f"http://localhost:{other.port}{GROUP}"}
        server.answers = {"PUT resourcegroups/rg": Answer(307, headers=to), "GET brokers": brokers}
        with pytest.raises(ClusterError, match="redirects to localhost, which is not one"):
            self.put(server)
        assert other.asked == []

    @pytest.mark.parametrize(
        ("admin", "security", "refused"),
        [
            ("https://broker-1:8443", {"token": "t"}, "broker-2 without TLS"),
            # a tunnel to a broker
            ("http://localhost:8080", {"token": "t"}, "broker-2, where the token would"),
            ("http://localhost:8080", {}, None),
            # allowed when the settings were loaded
            ("http://broker-1:8080", {"token": "t"}, None),
        ],
    )
    async def test_take_no_token_into_the_clear(
        self, admin: str, security: dict[str, str], refused: str | None
    ) -> None:
        asked = []

        def answer(request: httpx.Request) -> httpx.Response:
            asked.append(request.url.host)
            if request.url.path.endswith("/brokers"):
                return httpx.Response(200, json=["broker-2:8080"])
            if request.url.host == "broker-2":
                return httpx.Response(204)
            return httpx.Response(307, headers={"Location": f"http://broker-2:8080{GROUP}"})

        wire = httpx.MockTransport(answer)
        async with Rest(transport_to(admin, **security), wire=wire) as rest:
            if refused is None:
                await rest.ask("PUT", GROUP, {})
            else:
                with pytest.raises(ClusterError, match=f"redirects to {refused}"):
                    await rest.ask("PUT", GROUP, {})
        assert ("broker-2" in asked) == (refused is None)

    def test_to_a_broker_that_does_not_answer_name_it(self, server: RestServer) -> None:
        (gone,) = free_ports(1)
        to = {"Location": f"http://127.0.0.1:{gone}{GROUP}"}
        server.answers["PUT resourcegroups/rg"] = Answer(307, headers=to)
        with pytest.raises(ClusterError, match=f"redirects to 127.0.0.1:{gone}, which does not"):
            self.put(server)

    def test_without_a_place_or_in_circles_end(self, server: RestServer) -> None:
        server.answers["PUT resourcegroups/rg"] = Answer(307)
        with pytest.raises(ClusterError, match="redirects to None"):
            self.put(server)
        to = {"Location": server.url + GROUP}
        server.answers["PUT resourcegroups/rg"] = Answer(307, headers=to)
        with pytest.raises(ClusterError, match="too many redirects"):
            self.put(server)


class TestTokens:
    def test_a_file_is_read_for_each_request(self, server: RestServer, tmp_path: Path) -> None:
        file = tmp_path / "token"

        async def twice() -> None:
            async with Rest(server.transport(token_file=str(file))) as rest:
                for token in ("one\n", "two\n"):
                    file.write_text(token)
                    await rest.get(GROUP)

        asyncio.run(twice())
        assert [asked.authorization for asked in server.asked] == ["Bearer one", "Bearer two"]

    def test_a_file_that_is_not_there(self, server: RestServer, tmp_path: Path) -> None:
        said = unanswered(server.transport(token_file=str(tmp_path / "none")))
        assert said.startswith("transport.security.token_file: ")
        assert said.endswith("No such file or directory")
        (tmp_path / "bytes").write_bytes(b"\xff\xfe")
        assert unanswered(server.transport(token_file=str(tmp_path / "bytes"))).endswith("not text")

    @pytest.mark.parametrize("token", ["sec\nret", "secrét", "sec ret", "\x00secret"])
    def test_what_can_be_no_token_is_not_shown(self, server: RestServer, token: str) -> None:
        said = unanswered(server.transport(token=token))
        assert "characters that are not allowed" in said
        assert "sec" not in said.removeprefix("transport.security")
        assert server.asked == []


class TestOAuth2:
    @pytest.fixture
    def issuer(self) -> Iterator[RestServer]:
        with RestServer() as issuer:
            found = {"token_endpoint": f"{issuer.url}/oauth/token"}
            issuer.answers = {
                WELL_KNOWN: Answer(200, found),
                "POST /oauth/token": Answer(200, {"access_token": "one", "expires_in": 3600}),
            }
            yield issuer

    def settings(self, server: RestServer, issuer: RestServer, **more: str) -> PulsarTransport:
        way = more or {"client_id": "me", "client_secret": "very secret"}
        oauth2 = {"issuer_url": issuer.url + "/", "audience": "urn:pulsar", **way}
        return server.transport(oauth2=oauth2)

    def test_a_token_is_fetched_once(self, server: RestServer, issuer: RestServer) -> None:
        ask(self.settings(server, issuer), *[("GET", GROUP, None)] * 3)
        assert [asked.authorization for asked in server.asked] == ["Bearer one"] * 3
        form = "client_id=me&client_secret=very+secret"
        more = "&grant_type=client_credentials&audience=urn%3Apulsar"
        assert [asked.body for asked in issuer.asked] == ["", form + more]
        assert issuer.asked[1].authorization is None

    def test_a_token_that_ran_out(self, server: RestServer, issuer: RestServer) -> None:
        issuer.answers["POST /oauth/token"] = Answer(200, {"access_token": "x", "expires_in": 0})
        ask(self.settings(server, issuer), *[("GET", GROUP, None)] * 2)
        assert len(issuer.paths("POST")) == 2

    def test_credentials_file(self, server: RestServer, issuer: RestServer, tmp_path: Path) -> None:
        file = tmp_path / "key.json"
        file.write_text('{"client_id": "file", "client_secret": "s", "type": "x"}')
        get(self.settings(server, issuer, private_key_file=str(file), scope="all"))
        assert issuer.asked[1].body.startswith("client_id=file&client_secret=s&")
        assert issuer.asked[1].body.endswith("&scope=all")
        for text in ("no JSON", '{"client_id": "file"}', "[]"):
            file.write_text(text)
            said = unanswered(self.settings(server, issuer, private_key_file=str(file)))
            assert said.startswith(f"transport.security.oauth2.private_key_file: {file}: ")

    @pytest.mark.parametrize(
        ("where", "answer", "says"),
        [
            (WELL_KNOWN, Answer(404), "refused with 404"),
            (WELL_KNOWN, Answer(200, "x"), "the answer has no token"),
            (WELL_KNOWN, Answer(200, {"token_endpoint": "https://[odd"}), "can't be reached"),
            (
                WELL_KNOWN,
                Answer(200, {"token_endpoint": "http://issuer.example/token"}),
                "would go in clear text; the issuer must name an https URL",
            ),
            (WELL_KNOWN, Answer(200, {"token_endpoint": 3}), "the answer has no token"),
            ("POST /oauth/token", Answer(401), "refused with 401"),
            ("POST /oauth/token", Answer(200, {"access_token": None}), "the answer has no token"),
            ("POST /oauth/token", Answer(200, []), "the answer has no token"),
            ("POST /oauth/token", Answer(delay_s=30), "no answer within 0.5 s"),
        ],
    )
    def test_an_issuer_that_gives_none(
        self, server: RestServer, issuer: RestServer, where: str, answer: Answer, says: str
    ) -> None:
        issuer.answers[where] = answer
        timeout_s = 0.5 if answer.delay_s else 30.0
        said = unanswered(self.settings(server, issuer), timeout_s)
        assert says in said
        assert "very secret" not in said
        assert server.asked == []


class TestTls:
    def test_files_that_are_wrong_are_named(self, tmp_path: Path) -> None:
        files = make_certificates(tmp_path)
        none = tmp_path / "none.pem"
        with pytest.raises(ConfigError, match=r"ca_file: .*none.pem: No such file"):
            tls_context(PulsarSecurity(ca_file=str(none)))
        pair = {"certificate_file": str(files.client_certificate)}
        with pytest.raises(ConfigError, match=r"certificate_file: .*none.pem: No such file"):
            tls_context(PulsarSecurity(**pair, key_file=str(none)))
        tls_context(PulsarSecurity(**pair, key_file=str(files.client_key)))

    def test_host_names_are_checked_unless_told_otherwise(self, tmp_path: Path) -> None:
        authority = str(make_certificates(tmp_path).authority)
        assert tls_context(PulsarSecurity(ca_file=authority)).check_hostname
        lax = tls_context(PulsarSecurity(ca_file=authority, verify_hostname=False))
        assert not lax.check_hostname
        assert lax.verify_mode.name == "CERT_REQUIRED"


def test_without_an_address_there_is_no_client() -> None:
    with pytest.raises(ConfigError, match=r"transport\.admin_url"):
        Rest(transport_to(None))
