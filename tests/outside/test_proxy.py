"""Effects of the proxy on connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.servers.proxy import NetFault, Proxies, Proxy
from tests.servers.tools import free_ports


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy of a server that sends back what it gets."""
    listen_port, server_port = free_ports(2)
    listening = socket.create_server(("127.0.0.1", server_port))

    def answer(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1000):
                connection.sendall(data)

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with Proxies() as proxies:
        yield proxies.open(listen_port, server_port)
    listening.close()


def _connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def _echo(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return connection.recv(1000)


def _is_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_without_a_fault_everything_passes(proxy: Proxy) -> None:
    with _connect(proxy) as one, _connect(proxy) as other:
        assert _echo(one, b"hello") == b"hello"
        assert _echo(other, b"there") == b"there"
    assert proxy.connections == 2


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_half_open_holds_bytes_back_until_it_is_over(proxy: Proxy, way: str) -> None:
    with _connect(proxy) as connection:
        assert _echo(connection, b"1") == b"1"
        ways = {"to_server": False, "to_client": False, way: True}
        proxy.set(NetFault("half-open", **ways))
        connection.sendall(b"2")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(5)
        proxy.set(None)
        assert connection.recv(1) == b"2"


def test_cut_ends_connections_and_new_ones(proxy: Proxy) -> None:
    with _connect(proxy) as connection:
        assert _echo(connection, b"1") == b"1"
        proxy.set(NetFault("cut"))
        assert _is_ended(connection)
    with _connect(proxy) as connection:
        assert _is_ended(connection)
    proxy.set(None)
    with _connect(proxy) as connection:
        assert _echo(connection, b"1") == b"1"


def test_trickle_passes_a_byte_a_second(proxy: Proxy) -> None:
    with _connect(proxy) as connection:
        proxy.set(NetFault("trickle", to_client=False))
        assert _echo(connection, b"123456789") == b"1"
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(5)
        proxy.set(None)
        rest = b""
        while len(rest) < 8:
            rest += connection.recv(1000)
        assert rest == b"23456789"


def test_the_end_of_one_fault_does_not_end_another(proxy: Proxy) -> None:
    with _connect(proxy) as connection:
        assert _echo(connection, b"1") == b"1"
        proxy.set(NetFault("half-open"), by="silence")
        proxy.set(NetFault("delay", delay_s=0.1), by="network")
        proxy.set(None, by="network")
        connection.sendall(b"2")
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(5)
        proxy.set(None, by="silence")
        assert connection.recv(1) == b"2"


def test_delay_keeps_the_order(proxy: Proxy) -> None:
    with _connect(proxy) as connection:
        proxy.set(NetFault("delay", delay_s=0.1))
        begun_s = time.monotonic()
        assert _echo(connection, b"1") == b"1"
        assert time.monotonic() - begun_s >= 0.2
        assert _echo(connection, b"2") == b"2"


def test_a_server_that_does_not_listen() -> None:
    listen_port, server_port = free_ports(2)
    with Proxies() as proxies, _connect(proxies.open(listen_port, server_port)) as connection:
        assert _is_ended(connection)
