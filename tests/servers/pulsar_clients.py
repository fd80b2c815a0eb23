"""Settings, quiet clients and a steady load of messages for a Pulsar on loopback."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pulsar

from tests.waiting import meanwhile


def quiet_client(service_url: str, **options: Any) -> pulsar.Client:
    """A client whose log goes nowhere."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    return pulsar.Client(service_url, logger=logger, **options)


def pulsar_transport(
    service_url: str, admin_url: str, limits_topic: str, **more: Any
) -> dict[str, Any]:
    """The section ``transport`` of a settings file."""
    urls = {"service_url": service_url, "admin_url": admin_url}
    return {"kind": "pulsar", **urls, "limits_topic": limits_topic, **more}


def publishing(
    service_url: str, *topics: str, per_s: int = 400, in_flight: int = 20
) -> AbstractContextManager[None]:
    """Publish so many messages a second to each topic, as far as the broker takes them.

    Each has a connection of its own, as topics that share one would be throttled together.
    ``in_flight``: most messages of a topic that are not acknowledged yet.
    """

    def publish(topic: str, over: threading.Event) -> None:
        client = quiet_client(service_url)
        producer = client.create_producer(
            topic, batching_enabled=False, send_timeout_millis=0, max_pending_messages=2 * in_flight
        )
        room = threading.Semaphore(in_flight)
        while not over.wait(1 / per_s):
            if room.acquire(timeout=0.1):
                producer.send_async(b"x" * 100, lambda *_: room.release())
        client.close()

    return meanwhile(*(partial(publish, topic) for topic in topics))
