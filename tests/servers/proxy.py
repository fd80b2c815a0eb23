"""A TCP proxy that makes a connection slow, silent or broken; one for each client of a server.

    with Proxies() as proxies:
        proxy = proxies.open(listen_port, server_port)
        proxy.set(NetFault("half-open", to_client=False))
        proxy.set(None)

Bytes that a fault held back go on when it is over, as after a network outage that TCP survives.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = ("delay", "cut", "half-open", "trickle")
"""delay: each portion waits; cut: connections are reset, new ones too; half-open: connections are
accepted and nothing is forwarded; trickle: one byte a second."""

_PORTION_BYTES: Final = 64 * 1024
_TRICKLE_S: Final = 1.0
_PATIENCE_S: Final = 120.0
"""The loop answers at once, but for a machine that has no time for it."""


@dataclass(frozen=True)
class NetFault:
    """One of ``KINDS``, in one direction or both; ``cut`` is always both."""

    kind: str
    to_server: bool = True
    to_client: bool = True
    delay_s: float = 0.0


class Proxy:
    """Forwards connections from one port to another one, both on loopback."""

    def __init__(self, listen_port: int, server_port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.port = listen_port
        self._server_port = server_port
        self._loop = loop
        self._fault: NetFault | None = None
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._begun: dict[str, NetFault] = {}
        """Faults that have not ended, by lane, in the order of their beginning."""
        self.connections = 0
        """Accepted so far."""
        self.answers = 0
        """Portions that reached clients: at least one for each answer of a REST API."""

    def set(self, fault: NetFault | None, by: str = "") -> None:
        """Begin or end (None) a fault of a lane; of those of several lanes the newest one holds."""
        self._begun.pop(by, None)
        if fault is not None:
            self._begun[by] = fault
        newest = next(reversed(self._begun.values()), None)
        asyncio.run_coroutine_threadsafe(self._set(newest), self._loop).result(_PATIENCE_S)

    def clear(self) -> None:
        """End all faults."""
        self._begun.clear()
        self.set(None)

    async def _set(self, fault: NetFault | None) -> None:
        self._fault = fault
        self._changed.set()
        self._changed = asyncio.Event()
        if fault is not None and fault.kind == "cut":
            for writer in self._writers:
                writer.transport.abort()

    async def serve(self) -> asyncio.Server:
        """Begin to listen."""
        return await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        server: asyncio.StreamWriter | None = None
        try:
            if self._fault is not None and self._fault.kind == "cut":
                return
            opened = asyncio.open_connection("127.0.0.1", self._server_port)
            from_server, server = await opened
            self._writers.add(server)
            pumps = [
                asyncio.ensure_future(self._pump(reader, server, to_server=True)),
                asyncio.ensure_future(self._pump(from_server, writer, to_server=False)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
        except (OSError, asyncio.CancelledError):
            pass  # the server does not listen, or all proxies end: so does the connection
        finally:
            for each in (writer, server):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_server: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(_PORTION_BYTES):
                while data:
                    data = await self._pass_on(data, writer, to_server)
                self.answers += not to_server

    async def _pass_on(self, data: bytes, writer: asyncio.StreamWriter, to_server: bool) -> bytes:
        """Write what may pass now; returns what remains."""
        fault, changed = self._fault, self._changed
        if fault is None or not (fault.to_server if to_server else fault.to_client):
            writer.write(data)
            await writer.drain()
            return b""
        if fault.kind == "half-open":
            await changed.wait()
            return data
        if fault.kind == "trickle":
            writer.write(data[:1])
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), _TRICKLE_S)
            return data[1:]
        await asyncio.sleep(fault.delay_s)
        writer.write(data)
        await writer.drain()
        return b""


class Proxies:
    """Some proxies in a thread of their own; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._servers: list[asyncio.Server] = []

    def open(self, listen_port: int, server_port: int) -> Proxy:
        """Listen at a port, and forward to another one."""
        proxy = Proxy(listen_port, server_port, self._loop)
        self._servers.append(self._run(proxy.serve()))
        return proxy

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        mine = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)

    def __enter__(self) -> Proxies:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
