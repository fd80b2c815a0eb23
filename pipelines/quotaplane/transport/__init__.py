"""Transports of reports and limits; ``base`` has their interfaces and guarantees."""

from __future__ import annotations

from typing import TypeVar

from quotaplane.errors import ConfigError
from quotaplane.extras import missing_packages_named
from quotaplane.settings import DeltaTransport, KafkaTransport, PulsarTransport, TransportSettings
from quotaplane.transport.base import REPORTS_AND_LIMITS, BrokerLink, Starting, Topics, Transport


@missing_packages_named()
def open_transport(
    settings: TransportSettings, topics: Topics | None = None, *, spool_folder: str | None = None
) -> Transport:
    """Open the control plane's interface; it connects on first use.

    ``spool_folder`` keeps reports of non-persistent Pulsar topics until their batch is committed.

    Raises:
        ConfigError: a package that this transport needs is not installed.
    """
    if isinstance(settings, DeltaTransport):
        from quotaplane.transport.delta import DeltaTopics

        return DeltaTopics(settings, topics or REPORTS_AND_LIMITS)
    if isinstance(settings, PulsarTransport):
        from quotaplane.transport.pulsar import PulsarTopics

        return PulsarTopics(_of_topics(settings, topics), spool_folder)
    from quotaplane.transport.kafka import KafkaTopics

    return KafkaTopics(_of_topics(settings, topics))


@missing_packages_named()
def open_broker_link(
    settings: TransportSettings,
    *,
    limits_from: Starting = "latest",
    topics: Topics | None = None,
) -> BrokerLink:
    """Open a broker's interface.

    With ``limits_from="latest"`` it returns limits published after this call; that is enough for a
    broker, because every limit is sent again within ``limits.refresh_rounds`` rounds.
    ``"earliest"`` begins with the oldest that the topic has.

    Raises:
        ConfigError: a package that this transport needs is not installed.
        TransportError: the limits topic can't be reached.
    """
    if isinstance(settings, DeltaTransport):
        from quotaplane.transport.delta import DeltaLink

        return DeltaLink(settings, limits_from, topics or REPORTS_AND_LIMITS)
    if isinstance(settings, PulsarTransport):
        from quotaplane.transport.pulsar import PulsarLink

        return PulsarLink(_of_topics(settings, topics), limits_from)
    from quotaplane.transport.kafka import KafkaLink

    return KafkaLink(_of_topics(settings, topics), limits_from)


@missing_packages_named()
def open_attachments_link(settings: TransportSettings) -> BrokerLink:
    """Open an interface whose ``poll_limits`` returns attachments, from the topic's beginning.

    It returns at least the newest message of each key, in the topic's order.

    Raises:
        ConfigError: ``transport.attachments_topic`` is not set, or a package is not installed.
        TransportError: the topic can't be reached.
    """
    topic = settings.attachments_topic
    if topic is None:
        raise ConfigError("transport.attachments_topic is not set, so there are no attachments")
    if isinstance(settings, DeltaTransport):
        from quotaplane.transport.delta import DeltaAttachmentsLink

        return DeltaAttachmentsLink(settings)
    if isinstance(settings, PulsarTransport):
        from quotaplane.transport.pulsar import PulsarLink

        of_topic = settings.model_copy(update={"limits_topic": settings.full_name(topic)})
        return PulsarLink(of_topic, "earliest", compacted=True)
    from quotaplane.transport.kafka import KafkaLink

    return KafkaLink(settings.model_copy(update={"limits_topic": topic}), "earliest")


_Broker = TypeVar("_Broker", KafkaTransport, PulsarTransport)


def _of_topics(settings: _Broker, topics: Topics | None) -> _Broker:
    if topics is None:
        return settings
    incoming, outgoing = topics
    if isinstance(settings, PulsarTransport):
        incoming, outgoing = map(settings.full_name, topics)
    update = {"report_topics": (incoming,), "limits_topic": outgoing, "attachments_topic": None}
    return settings.model_copy(update=update)
