"""Limits on their topic, as any client reads them."""

from __future__ import annotations

from contextlib import closing

from kafka import KafkaConsumer, TopicPartition

from quotaplane.model import DIMENSIONS
from quotaplane.wire.limits import decode_limits
from tests.outside.journal import Published


def read_published(servers: str, topic: str, dimension: str) -> list[Published]:
    """All limits of a dimension on a topic of one partition, from its beginning on.

    Args:
        servers: of the cluster, past the proxies.
        topic: of limits; the server stamps its messages.
        dimension: a name in ``DIMENSIONS``.
    """
    part, column = TopicPartition(topic, 0), DIMENSIONS.index(dimension)
    with closing(KafkaConsumer(bootstrap_servers=servers, group_id=None)) as consumer:
        consumer.assign([part])
        consumer.seek_to_beginning(part)
        last = consumer.end_offsets([part])[part]
        found: list[Published] = []
        while consumer.position(part) < last:
            for record in consumer.poll(timeout_ms=500).get(part, []):
                found += _limits_of(record.offset, record.timestamp, record.value, column)
        return found


def _limits_of(place: int, t_ms: int, value: bytes, column: int) -> list[Published]:
    message = decode_limits(value)
    head = (message.epoch, message.seq, message.issued_at_ms, message.lease_ms)
    safe = message.safe_limits
    found = [
        Published(
            place,
            t_ms,
            message.broker,
            group,
            *head,
            message.broker_started_at_ms,
            float(message.limits[at, column]),
            None if safe is None else float(safe[at, column]),
        )
        for at, group in enumerate(message.groups)
    ]
    for group in message.removed_groups:
        started = message.broker_started_at_ms
        found.append(Published(place, t_ms, message.broker, group, *head, started, -1.0, None))
    return found
