"""How tests read a Pulsar topic as a streaming query does, and write to one."""

from __future__ import annotations

from typing import Any

import pulsar

from quotaplane.pulsar.options import parse_options
from quotaplane.pulsar.position import Offset
from quotaplane.pulsar.replay import read_between
from quotaplane.pulsar.topic_pool import TopicPool
from tests.contract.rigs import PulsarRig
from tests.waiting import wait_until


def source(rig: PulsarRig, topic: str = "", **options: Any) -> dict[str, str]:
    given = {
        "service_url": rig.server.service_url,
        "admin_url": rig.server.admin_url,
        "starting": "earliest",
        "discovery_interval_s": 0,
        **({"topics": topic} if topic else {}),
        **options,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def everything(follower: TopicPool, start: Offset) -> tuple[list[bytes | None], Offset]:
    """Read until nothing more comes; return the values and the end."""
    values: list[bytes | None] = []
    while True:
        rows, end = follower.read(start)
        if not rows:
            return values, end
        values += [row.value for row in rows]
        start = end


def again(options: dict[str, str], start: Offset, end: Offset) -> list[bytes]:
    """Values that a restarted query reads of a batch that was not committed."""
    batches = list(read_between(parse_options(options), start, end))
    return [value for batch in batches for value in batch["value"].to_pylist()]


def send(client: pulsar.Client, topic: str, *values: bytes, **options: Any) -> list[Any]:
    producer = client.create_producer(topic, **options)
    ids = [producer.send(value) for value in values]
    producer.close()
    return ids


def send_batch(client: pulsar.Client, topic: str, *values: bytes) -> None:
    """All of them in one entry."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000
    )
    for value in values:
        producer.send_async(value, lambda *_: None)
    producer.flush()
    producer.close()


def forget(rig: PulsarRig, topic: str) -> None:
    """Let retention delete what is there: the topic begins a new ledger, and drops the others."""
    rest, none = rig.server.rest, {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    rest.call("POST", f"namespaces/{rig.namespace}/retention", none)
    before = rest.call("GET", f"{topic}/internalStats")["ledgers"][0]["ledgerId"]
    rest.call("PUT", f"{topic}/unload")

    def is_gone() -> bool:
        rest.call("POST", f"{topic}/trim")
        ledgers = rest.call("GET", f"{topic}/internalStats")["ledgers"]
        return all(ledger["ledgerId"] > before for ledger in ledgers)

    wait_until(is_gone)
