"""The common part of the tests of access rules: a quick job, forged reports, limited brokers."""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np

from quotaplane.client.agent import BrokerClient
from quotaplane.settings import parse_settings
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from tests.job import RunningJob, history_table

PER_BROKER: Final = "A topic per broker"
"""Section of docs/operate/kafka.md and docs/operate/pulsar.md: commands for one more broker."""
NAMES_FROM_TOPICS: Final[dict[str, Any]] = {
    "reports": {"interval_s": 1.0, "broker_from": "topic"},
    "limits": {"lease_s": 20.0},
    "trigger": {"interval_s": 0.5},
    "shards": 1,
}
"""Settings of a quick job that takes the names of brokers from topics."""


def link_with(transport: dict[str, Any]) -> BrokerLink:
    """A broker's connection to the topics."""
    settings = parse_settings({"transport": transport, "history": {"path": "h"}, "checkpoint": "c"})
    return open_broker_link(settings.transport, limits_from="earliest")


def client_with(transport: dict[str, Any], broker: str) -> BrokerClient:
    """A broker that serves the group ``g``."""
    link = link_with(transport)
    return BrokerClient(link, broker, now_ms=lambda: int(time.time() * 1000), groups=["g"])


def is_limited(client: BrokerClient) -> bool:
    """Whether a broker that uses ``g``, and reports it, has a limit by now."""
    client.use("g", publish_messages=10.0)
    client.report()
    client.poll()
    time.sleep(0.5)
    return bool(np.isfinite(client.limit("g")["publish_messages"]))


def refused(job: RunningJob) -> list[str]:
    """The reasons of the job's dead letters."""
    return history_table(job.settings, "rejected_reports")["reason"].to_pylist()


def known_brokers(job: RunningJob) -> set[str]:
    """The brokers whose reports the job used."""
    return {*history_table(job.settings, "brokers")["broker"].to_pylist()}
