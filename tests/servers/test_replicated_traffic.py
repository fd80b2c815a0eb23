"""How stock brokers count messages replicated from another cluster (docs/operate/pulsar-groups.md).

Two clusters of one broker each, with a configuration store of their own.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_usage import Counters
from quotaplane.settings.transports import STOCK_REPORTS
from tests.servers.pulsar_clients import publishing, quiet_client
from tests.servers.pulsar_rest import publish_rate
from tests.servers.pulsar_server import PulsarServer
from tests.servers.test_enforce_observed import decoded, rates_of, read_for
from tests.servers.test_enforce_pulsar import HELD
from tests.servers.test_quota_pulsar import REPORTS_EVERY_S
from tests.unit.pulsar_admin.cluster_cases import transport_to
from tests.waiting import wait_until

WATCHED_S = 13.0
LIMIT = 50
PATIENCE_S = 60.0


class Pair(NamedTuple):
    """A namespace of two clusters, attached to a group in both; ``here`` receives."""

    here: PulsarServer
    there: PulsarServer
    group: str
    topic: str


@pytest.fixture
def pair(pulsar_server: PulsarServer, tmp_path: Path) -> Iterator[Pair]:
    name = uuid.uuid4().hex[:8]
    with PulsarServer(tmp_path, cluster="elsewhere") as there:
        both = (pulsar_server, there)
        namespace, group = f"geo-{name}/orders", f"rg-{name}"
        for server in both:
            for other in both:
                urls = {"serviceUrl": other.admin_url, "brokerServiceUrl": other.service_url}
                method = "POST" if server is other else "PUT"
                server.rest.call(method, f"clusters/{other.cluster}", urls)
            server.rest.create_tenant(f"geo-{name}")
            server.rest.create_namespace(namespace)
            clusters = [server.cluster for server in both]
            server.rest.call("POST", f"namespaces/{namespace}/replication", clusters)
            server.rest.attach(namespace, server.rest.put_group(group))
        topic = f"persistent://{namespace}/events"
        for server in both:
            server.rest.create_topic(topic)
        yield Pair(pulsar_server, there, group, topic)
        # Others use this server after us.
        alone = [pulsar_server.cluster]
        pulsar_server.rest.call("POST", f"namespaces/{namespace}/replication", alone)
        pulsar_server.rest.call("DELETE", f"clusters/{there.cluster}")


async def observed(servers: tuple[PulsarServer, ...], topic: str) -> list[list[float]]:
    """The topic's rates at each server, from the counters that the enforcer reads."""
    found = []
    for server in servers:
        counters = Counters()
        async with Rest(transport_to(server.admin_url)) as rest:
            assert await counters.read(rest, server.admin_url, time.monotonic()) is None
            await asyncio.sleep(4.0)
            sample = await counters.read(rest, server.admin_url, time.monotonic())
        assert sample is not None
        assert sample.usage is not None
        found.append(sample.usage[sample.topics.index(topic)].tolist())
    return found


@pytest.mark.nightly  # starts a second cluster
def test_what_counts(pair: Pair) -> None:
    clients = [quiet_client(server.service_url) for server in (pair.here, pair.there)]
    reports = [client.subscribe(STOCK_REPORTS, "test") for client in clients]
    with publishing(pair.there.service_url, pair.topic):
        wait_until(lambda: pair.here.rest.counter(pair.topic), PATIENCE_S)
        time.sleep(2 * REPORTS_EVERY_S)
        for consumer in reports:
            read_for(consumer, 0.5)
        messages = read_for(reports[0], WATCHED_S), read_for(reports[1], 0.5)
        seen = asyncio.run(observed((pair.here, pair.there), pair.topic))
        own = [
            np.nanmedian(rates_of(decoded(read, REPORTS_EVERY_S), pair.group), axis=0)
            for read in messages
        ]
        # Incoming replication is publishing, and outgoing replication is nothing.
        for rates in (*seen, *own):
            assert rates[0] > 100
            assert rates[2] == 0
        # A rate on the topic, as the enforcer writes it, holds the other cluster's producer.
        pair.here.rest.call("POST", f"{pair.topic}/publishRate", publish_rate(LIMIT))
        time.sleep(4.0)
        assert pair.here.rest.per_s(pair.topic, 6.0) == pytest.approx(LIMIT, rel=HELD)
    for client in clients:
        client.close()
