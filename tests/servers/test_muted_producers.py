"""Producers that Pulsar's own limiter muted before the take-over are served soon after it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pulsar
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.pulsar.client import close_quietly
from quotaplane.registry.table import put_groups
from quotaplane.settings.transports import STOCK_REPORTS
from quotaplane.wire.report_stock import encode_stock_report
from tests.job import begin_history
from tests.servers.enforcer_process import EnforcerProcess, Limits, conf_for
from tests.servers.pulsar_clients import quiet_client
from tests.servers.pulsar_server import PulsarServer
from tests.waiting import wait_until

QUOTA = 100_000
SERVED_WITHIN_S = 10.0
"""On a quiet machine."""
REPORT_INTERVAL_S = 2.0
"""Report interval of the server in tests/servers/fixtures.py."""
STATS_INTERVAL_S = 5.0
"""Statistics interval of the same server."""
CLOSED = "held back by the brokers' own limiter"
"""In the line about closed connections."""


class Publisher:
    """Publishes 50 messages of 1 kB per second, over a connection of its own."""

    def __init__(self, server: PulsarServer, topic: str) -> None:
        self.acknowledged_s: list[float] = []
        self._client = quiet_client(server.service_url)
        self._producer = self._client.create_producer(
            topic, batching_enabled=False, send_timeout_millis=0, max_pending_messages=50
        )
        self._room = threading.Semaphore(40)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def begin(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        # The client of a producer that is still muted gets no answer: no second failure for that.
        close_quietly(self._client)

    def after(self, at_s: float) -> int:
        """Messages acknowledged after this time of the monotonic clock."""
        return sum(each > at_s for each in list(self.acknowledged_s))

    def _publish(self) -> None:
        while not self._over.wait(0.02):
            if self._room.acquire(timeout=0.1):
                self._producer.send_async(bytes(1000), self._acknowledged)

    def _acknowledged(self, result: pulsar.Result, _: object) -> None:
        self._room.release()
        if result == pulsar.Result.Ok:
            self.acknowledged_s.append(time.monotonic())


def report_of_a_busy_broker(server: PulsarServer, group: str) -> None:
    """Pretend that another broker uses the whole quota: then an idle one gets 1 byte per second."""
    bytes_per_period = QUOTA * REPORT_INTERVAL_S
    usage = np.array([[100, bytes_per_period, np.nan, np.nan]])
    client = quiet_client(server.service_url)
    client.create_producer(STOCK_REPORTS).send(encode_stock_report("other", [group], usage))
    client.close()


def forget_the_throttling(server: PulsarServer, topic: str) -> None:
    """Wait until the broker updates its statistics, and counts throttled producers anew."""
    times = lambda: server.rest.counter(topic, "publishRateLimitedTimes")  # noqa: E731
    wait_until(lambda: times() == 0, 4 * STATS_INTERVAL_S)


@pytest.fixture
def muted(pulsar_server: PulsarServer, tmp_path: Path) -> Iterator[tuple[Publisher, Path, Limits]]:
    """A muted producer, settings of an enforcer, and the limits that it will get."""
    rest, name = pulsar_server.rest, uuid.uuid4().hex[:8]
    namespace = rest.create_namespace(f"public/muted-{name}", bundles=4)
    group = rest.put_group(f"rg-{name}", publish_bytes_per_s=QUOTA)
    rest.attach(namespace, group)
    limits_topic = rest.create_topic(f"persistent://public/default/limits-{name}")
    conf = conf_for(pulsar_server, tmp_path, limits_topic, take_over=True)
    settings = begin_history(conf)
    quotas = np.full((1, len(DIMENSIONS)), np.nan)
    quotas[0, 1] = QUOTA
    put_groups(settings.history, [group], quotas, "test")
    limits = Limits(settings, pulsar_server.service_url, group)
    topic = rest.create_topic(f"persistent://{namespace}/woken")
    publisher = Publisher(pulsar_server, topic)
    try:
        report_of_a_busy_broker(pulsar_server, group)
        time.sleep(2.5 * REPORT_INTERVAL_S)
        publisher.begin()
        time.sleep(2.0)
        woken_s = time.monotonic()
        time.sleep(1.0)
        assert publisher.after(woken_s) == 0, "it is not muted"
        forget_the_throttling(pulsar_server, topic)
        yield publisher, conf, limits
    finally:
        publisher.stop()
        limits.close()


def taken_over(server: PulsarServer, limits: Limits) -> bool:
    group = server.rest.call("GET", f"resourcegroups/{limits.group}")
    return bool(group["publishRateInBytes"] == -1)


@pytest.mark.nightly
@pytest.mark.parametrize("killed", [False, True])
def test_a_producer_that_was_muted_before_the_take_over_is_served_after_it(
    pulsar_server: PulsarServer,
    muted: tuple[Publisher, Path, Limits],
    killed: bool,
) -> None:
    """Without the enforcer's check its client closes the connection, a minute after it connected.

    However long that takes: who closed it says whether the check works.
    """
    publisher, conf, limits = muted
    limits.send(publish_bytes=QUOTA)
    if killed:
        with EnforcerProcess(conf) as enforcer:
            enforcer.wait_until(lambda: taken_over(pulsar_server, limits))
            enforcer.kill()
    with EnforcerProcess(conf) as enforcer:
        if killed:
            enforcer.wait_until(lambda: enforcer.status().get("leads"))
        else:
            enforcer.wait_until(lambda: taken_over(pulsar_server, limits))
        begun_s = time.monotonic()
        enforcer.wait_until(lambda: publisher.after(begun_s) > 50, 2.0 + SERVED_WITHIN_S)
        first_s = min(at_s for at_s in publisher.acknowledged_s if at_s > begun_s)
        print(f"served after {first_s - begun_s:.1f} s")
        assert first_s - begun_s < SERVED_WITHIN_S
        enforcer.wait_until(lambda: CLOSED in enforcer.errors(), 10.0)
        figures = enforcer.stop()
        assert figures["closed_connections"] == 1
        assert figures["errors"] == 0
        (line,) = enforcer.errors().splitlines()[-1:]
        assert CLOSED in line
