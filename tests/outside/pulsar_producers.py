"""Producers of topics: what each got through, and from when on the topic had a rate."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any, Final

import httpx
import pulsar

from tests.servers.pulsar_clients import quiet_client

SLOT_MS: Final = 100
_PENDING: Final = 20
_TICK_S: Final = 0.05
_LOOK_S: Final = 0.05
"""Until a topic has a rate."""
_LATER_LOOK_S: Final = 3.0
_FOREVER_MS: Final = 3_600_000


class Topic:
    """A topic with one producer on a connection of its own; throttling would stop all on one."""

    def __init__(self, name: str, service_url: str, admin_url: str, rate: float) -> None:
        self.name, self.rate = name, rate
        self.acked: Counter[int] = Counter()
        """Acknowledged messages by slot: ms since 1970 // 100."""
        self.first_ms: int | None = None
        """When the first message was acknowledged."""
        self.limited_ms: int | None = None
        """When the topic, or its namespace, was first seen with a publish rate."""
        self.unlimited_looks: list[int] = []
        """When it was seen without a rate after it had had one."""
        self._service_url = service_url
        self._rest = httpx.Client(base_url=admin_url, follow_redirects=True, timeout=10)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._waiting = 0
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._look)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        client = quiet_client(self._service_url)
        while not self._ended.is_set():
            try:
                producer = client.create_producer(
                    self.name, send_timeout_millis=_FOREVER_MS, max_pending_messages=_PENDING
                )
                break
            except pulsar.PulsarException:
                time.sleep(0.5)
        due, last_s = 0.0, time.monotonic()
        while not self._ended.wait(_TICK_S):
            now_s = time.monotonic()
            due, last_s = min(due + self.rate * (now_s - last_s), self.rate), now_s
            while due >= 1.0:
                due -= 1.0
                with self._lock:
                    full = self._waiting >= _PENDING
                    self._waiting += not full
                if not full:
                    producer.send_async(bytes(100), self._acknowledged)
        client.shutdown()  # ``close`` would wait for messages that nobody lets through

    def _acknowledged(self, result: Any, _: Any) -> None:
        now_ms = time.time_ns() // 1_000_000
        with self._lock:
            self._waiting -= 1
            if result == pulsar.Result.Ok:
                self.acked[now_ms // SLOT_MS] += 1
                self.first_ms = self.first_ms or now_ms

    def _look(self) -> None:
        own = f"{self.name.replace('://', '/')}/publishRate"
        default = f"namespaces/{'/'.join(self.name.split('/')[2:4])}/publishRate"
        places, every_s = [default, own], _LOOK_S
        while not self._ended.wait(every_s):
            if self.first_ms is None:
                continue
            now_ms = time.time_ns() // 1_000_000
            try:
                limited = any(map(self._rate, places))
            except (httpx.HTTPError, ValueError):
                continue
            if limited:
                self.limited_ms = self.limited_ms or now_ms
                places, every_s = [own, default], _LATER_LOOK_S
            elif self.limited_ms is not None:
                self.unlimited_looks.append(now_ms)

    def _rate(self, path: str) -> bool:
        answer = self._rest.get(f"/admin/v2/{path}")
        if answer.is_error:
            raise ValueError(answer.text)
        policy = answer.json() if answer.content else None
        return bool(policy) and policy["publishThrottlingRateInMsg"] > 0

    @property
    def unlimited_ms(self) -> int | None:
        """For how long its messages were without a rate; None: it has none yet, or no message."""
        if self.first_ms is None or self.limited_ms is None:
            return None
        # The first look begins when the first message has been acknowledged.
        return max(self.limited_ms - self.first_ms - round(_LOOK_S * 1000), 0)

    def leave(self) -> None:
        """End the producer and the looks, in the background; the topic stays in the cluster."""
        self._ended.set()

    def stop(self) -> None:
        """End it."""
        self.leave()
        for thread in self._threads:
            thread.join(20)
        self._rest.close()
