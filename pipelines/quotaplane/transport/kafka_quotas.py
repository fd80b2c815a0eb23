"""Reads a Kafka cluster's own client quotas, and how many brokers it has.

kafka-python has the messages of ``DescribeClientQuotas`` (KIP-546), but no call of its admin client
for them; its connections send any message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, for_code
from kafka.protocol.admin import DescribeClientQuotasRequest

from quotaplane.errors import TransportError
from quotaplane.settings import KafkaTransport
from quotaplane.transport.kafka_client import as_transport_error, client_log, unreachable
from quotaplane.transport.kafka_options import client_options


class DescribedQuotas(NamedTuple):
    """A cluster's quotas."""

    entries: Sequence[tuple[Mapping[str, str | None], Mapping[str, float]]]
    """Names by type of entity (None: the default), and numbers by name."""
    brokers: int
    """Those that are up."""


def describe_quotas(settings: KafkaTransport) -> DescribedQuotas:
    """Ask the cluster; needs the right DescribeConfigs on it.

    Raises:
        ConfigError: a certificate or key file can't be read.
        TransportError: the cluster can't be reached, or refuses.
    """
    wait_ms = int(settings.timeout_s * 1000)
    with as_transport_error(settings, "its quotas can't be read"), client_log() as log:
        try:
            admin = KafkaAdminClient(
                **client_options(settings), bootstrap_timeout_ms=wait_ms, request_timeout_ms=wait_ms
            )
        except KafkaError as error:
            raise TransportError(unreachable(settings, log.reason or str(error))) from None
        try:
            # Without components, every entity matches.
            request = DescribeClientQuotasRequest(components=[], strict=False)
            answer = admin._manager.run(admin._manager.send, request)
            if answer.error_code:
                raise for_code(answer.error_code)(answer.error_message or "")
            brokers = len(admin.describe_cluster()["brokers"])
        finally:
            admin.close()
    entries = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {number.key: number.value for number in entry.values},
        )
        for entry in answer.entries or []
    ]
    return DescribedQuotas(entries, brokers)
