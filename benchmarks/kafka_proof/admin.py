"""Requests to a Kafka cluster that no client's public interface has, and its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import for_code
from kafka.protocol.admin import AlterClientQuotasRequest

FIRST_NODE: Final = 1
_TIMEOUT_S: Final = 1.0
_PREFERRED: Final = 0
_KEYS: Final = {
    "publish_bytes_per_s": "producer_byte_rate",
    "dispatch_bytes_per_s": "consumer_byte_rate",
}
"""Kafka's names of dimensions."""


def set_client_quotas(bootstrap: str, dimension: str, rates: Mapping[str, float]) -> None:
    """Set what ``kafka-configs.sh --entity-type clients`` sets: for client ids, bytes a second on
    each broker.

    Raises:
        KafkaError: the cluster refused one.
    """
    entry, key = AlterClientQuotasRequest.EntryData, _KEYS[dimension]
    entries = [
        entry(
            entity=[entry.EntityData(entity_type="client-id", entity_name=client)],
            ops=[entry.OpData(key=key, value=rate, remove=False)],
        )
        for client, rate in rates.items()
    ]
    request = AlterClientQuotasRequest(entries=entries, validate_only=False)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        answer = admin._manager.run(admin._send_request_to_controller, request)
    finally:
        admin.close()
    for each in answer.entries:
        if each.error_code:
            raise for_code(each.error_code)(each.error_message)


def elect_preferred_leaders(bootstrap: str, topic: str, partitions: int) -> None:
    """Let partitions return to their preferred leaders, as ``kafka-leader-election.sh`` does."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.elect_leaders(_PREFERRED, {topic: list(range(partitions))})
    finally:
        admin.close()


@dataclass(frozen=True)
class Layout:
    """A topic's partitions and the brokers, as a cluster's metadata shows them."""

    leaders: tuple[int | None, ...]
    """A broker for each partition; they are numbered from 0."""
    in_sync: tuple[int, ...]
    """Replicas of each partition that are in sync."""
    brokers: frozenset[int]
    """Those that are there."""


class Metadata:
    """Asks a cluster for its metadata; any broker that lives answers."""

    def __init__(self, bootstrap: str) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._admin = AdminClient(options)

    def layout(self, topic: str) -> Layout:
        """Layout of a topic.

        Raises:
            KafkaException: nobody answered.
        """
        found = self._admin.list_topics(topic, timeout=_TIMEOUT_S)
        partitions = [each for _, each in sorted(found.topics[topic].partitions.items())]
        brokers = frozenset(node - FIRST_NODE for node in found.brokers)
        leaders = (each.leader - FIRST_NODE for each in partitions)
        return Layout(
            tuple(leader if leader in brokers else None for leader in leaders),
            tuple(len(each.isrs) for each in partitions),
            brokers,
        )
