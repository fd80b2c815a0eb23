"""The real process on loopback: start, stop, limits, hangs, TLS, concurrent writers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from quotaplane.cli.main import main
from tests.servers.certificates import make_certificates
from tests.unit.server.server_cases import TOKENS, Served, settings_with, token
from tests.unit.server.server_process import OPEN, Process, conf, running
from tests.waiting import wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_line_when_ready_one_at_the_end_and_code_0(tmp_path: Path, number: int) -> None:
    path = conf(tmp_path, OPEN)
    with running(path) as server:
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ quotaplane: ready: serves http://127\.0\.0\.1:\d+; "
            rf"history {tmp_path}/history; settings {path}; WITHOUT AUTHENTICATION: everybody may "
            r"be admin-without-authentication\n",
            server.lines[0],
        )
        assert httpx.get(f"{server.url}/healthz", timeout=60).json() == {"alive": True}
        assert server.end(number) == 0
        (end,) = server.lines[1:]
        assert end.endswith("quotaplane: ended: stopped by a signal\n")


def test_what_is_wrong_at_the_start_is_one_line_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failed(path: Path) -> str:
        assert main(["serve", "--conf", str(path)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), err
        return err

    path = conf(tmp_path, None, history=False)
    assert failed(path) == (
        f"quotaplane: error: there is no history at {tmp_path}/history (no table "
        "resource_groups): check --conf or --history; use --init to create it\n"
    )
    assert [*tmp_path.iterdir()] == [path]
    files = {"certificate_file": str(path), "key_file": str(path)}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for server, problem in (
            (None, "server: is missing"),
            ({"anonymous": "none"}, "nobody could do anything"),
            ({"host": "0.0.0.0", **TOKENS}, "set tls"),
            (
                {"host": "192.0.2.1", "tls": "ended-by-a-proxy", **TOKENS},
                "can't listen on 192.0.2.1:8460",
            ),
            ({**OPEN, "tls": files}, f"server.tls: {path}"),
            ({**OPEN, "port": port}, f"server.port: port {port} of 127.0.0.1 is in use by another"),
        ):
            assert problem in failed(conf(tmp_path, server))


HANGS = """
import os, time, quotaplane.history.store as store, quotaplane.registry.current_groups as current
real, flag = store.find_fault, {flag!r}
def hangs(uri):
    while os.path.exists(flag): time.sleep(0.05)
    return real(uri)
store.find_fault = hangs
current.stamp = lambda *_: None
"""


def test_health_answers_while_the_disk_hangs(tmp_path: Path) -> None:
    flag = tmp_path / "hangs"
    path = conf(tmp_path, {**OPEN, "request_timeout_s": 1.0})
    code = HANGS.format(flag=str(flag))
    code += "import quotaplane.server.readiness as r\nr.HANGS_AFTER_S = 0.5; r.EVERY_S = 0.1\n"
    with running(path, code) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        assert client.put("/api/v1/groups/a", json={}).status_code == 201
        wait_until(lambda: client.get("/readyz").json()["checks"][0]["ok"])
        flag.touch()
        threads = [
            threading.Thread(target=client.get, args=(f"/api/v1/groups/{n}",)) for n in range(6)
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: not client.get("/readyz").json()["checks"][0]["ok"])
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"][0]["state"] == "the disk does not answer"
        assert client.get("/healthz").status_code == 200
        for thread in threads:
            thread.join()
        late = client.put("/api/v1/groups/b", json={})
        assert late.status_code == 503
        assert "it may still be done" in late.json()["reason"]
        flag.unlink()
        wait_until(lambda: client.get("/api/v1/groups/b").status_code == 200)
        # Once more, and the process ends all the same.
        flag.touch()
        time.sleep(0.05)  # FRESH_S
        assert client.get("/api/v1/groups/a").status_code == 503
        assert server.end() == 0
    assert "the disk does not answer" in server.lines[-1]


def test_a_stop_waits_for_a_slow_disk(tmp_path: Path) -> None:
    flag = tmp_path / "hangs"
    flag.touch()
    with running(conf(tmp_path, OPEN), HANGS.format(flag=str(flag))) as server:
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(2.0)
        flag.unlink()
        assert server.ended() == 0
    assert len(server.lines) == 2, server.lines


def receive(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    data = b""
    while True:
        with contextlib.suppress(ConnectionResetError):
            part = connection.recv(65536)
            if part:
                data += part
                continue
        return data


HEAD = b"PUT /api/v1/groups/a HTTP/1.1\r\nHost: localhost\r\n"
JSON_TYPE = b"Content-Type: application/json\r\n"


def sent(server: Process, data: bytes) -> bytes:
    """Everything that the server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        return receive(connection)


@pytest.mark.nightly
def test_slow_huge_and_ambiguous_requests_end(tmp_path: Path) -> None:
    code = (
        "import quotaplane.server.listen as l, quotaplane.server.guard as g\n"
        "l._HEADERS_WITHIN_S, g._BODY_WITHIN_S = 1.0, 3.0\n"
    )
    with running(conf(tmp_path, OPEN), code) as server:
        # Nothing, half a request line, half of the headers, the same after a whole request.
        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        for slow in (b"", b"GE", HEAD, whole + HEAD):
            assert (b"200 OK" in sent(server, slow)) == slow.startswith(whole)
        late = sent(server, HEAD + JSON_TYPE + b"Content-Length: 9\r\n\r\n{")
        assert b"408" in late.splitlines()[0]
        large = sent(server, HEAD + JSON_TYPE + b"Content-Length: 9999999\r\n\r\n")
        assert b"413" in large.splitlines()[0]
        chunks = b"%x\r\n%b\r\n" % (600_000, b" " * 600_000)
        chunked = HEAD + JSON_TYPE + b"Transfer-Encoding: chunked\r\n\r\n" + 2 * chunks
        assert b"413" in sent(server, chunked).splitlines()[0]
        lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX"
        both = sent(server, HEAD + JSON_TYPE + lengths)
        assert b"400" in both.splitlines()[0]
        assert both.count(b"HTTP/1.1") == 1
        long_header = sent(server, HEAD + b"X: " + b"x" * 70_000 + b"\r\n\r\n")
        assert b"400" in long_header.splitlines()[0]
        assert httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
        assert server.end() == 0
        assert "Traceback" not in "".join(server.lines)


@pytest.mark.nightly
def test_idle_connections_are_bounded_and_said_once(tmp_path: Path) -> None:
    limited = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))\n"
    with running(conf(tmp_path, OPEN), limited) as server, contextlib.ExitStack() as stack:
        idle = []
        for _ in range(1100):
            address = ("127.0.0.1", server.port)
            idle.append(stack.enter_context(socket.create_connection(address, timeout=10)))
        assert b"503" in receive(idle[-1]).splitlines()[0]
        for connection in idle[:20]:
            connection.close()

        def is_served() -> bool:  # once the server has seen it
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{server.url}/healthz", timeout=60).status_code == 200
            return False

        wait_until(is_served)
        assert server.end() == 0
    said = server.lines[1:]
    assert "are open: more are refused (503)" in said[0]
    assert [line.split()[1] for line in said[1:-1]] in ([], ["connections:"]), said


def test_pages_of_other_sites_are_kept_out(tmp_path: Path) -> None:
    """Without authentication the browser of a visitor is all that such a page needs."""
    served = Served(settings_with(tmp_path, OPEN))
    own = "localhost:8460"

    def answer(method: str, path: str, host: str, **more: str) -> httpx.Response:
        return served.request(method, path, None, {"Host": host, **more}.items())

    assert answer("GET", "/api/v1/groups", "evil.example:8460").status_code == 400
    for good in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST:1"):
        assert answer("GET", "/healthz", good).status_code == 200
    path = "/admin/v2/tenants/acme/resourcegroup/g"
    cross = answer("POST", path, own, Origin="https://evil.example")
    assert (cross.status_code, "another site" in cross.text) == (403, True)
    for strange in ("null", "http://[", "http://[::1", "//", "\x7f"):
        assert answer("POST", path, own, Origin=strange).status_code == 403
    assert answer("POST", path, own, Origin=f"http://{own}").status_code == 412


def test_tls_and_tokens(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    tls = {
        "certificate_file": str(certificates.server_certificate),
        "key_file": str(certificates.server_key),
    }
    path = conf(tmp_path, {"port": 0, "tls": tls, **TOKENS})
    with running(path) as server:
        assert "serves https://" in server.lines[0]
        assert "tokens only" in server.lines[0]
        trusted = ssl.create_default_context(cafile=str(certificates.authority))
        headers = {"Authorization": f"Bearer {token('operator:acme')}"}
        with httpx.Client(
            base_url=server.url, verify=trusted, headers=headers, timeout=60
        ) as client:
            assert client.put("/api/v1/groups/acme", json={}).status_code == 201
            assert client.put("/api/v1/groups/globex", json={}).status_code == 403
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url.replace("https:", "http:") + "/healthz", timeout=60)
        assert server.end() == 0


@pytest.mark.nightly
def test_init_creates_the_history_and_says_so(tmp_path: Path) -> None:
    path = conf(tmp_path, OPEN, history=False)
    done = subprocess.Popen(
        [sys.executable, "-m", "quotaplane", "serve", "--conf", str(path), "--init"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert done.stderr is not None
    assert "history: created the tables resource_groups" in done.stderr.readline()
    assert "ready" in done.stderr.readline()
    done.terminate()
    done.communicate(timeout=30)
    assert (tmp_path / "history" / "resource_groups" / "_delta_log").is_dir()
