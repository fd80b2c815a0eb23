"""Converts the settings of a Pulsar transport for our readers and for our Spark Data Source."""

from __future__ import annotations

from typing import Final

from pydantic import SecretStr

from quotaplane.pulsar.options import Options
from quotaplane.settings import PulsarConnection, PulsarTransport
from quotaplane.settings.transports import is_per_broker, pattern_of

PREFETCHED: Final = 64
"""Messages that the client fetches ahead, per topic partition. It knows no bound in bytes, so this
is one: 64 messages of at most 5 MB, unless the broker's ``maxMessageSize`` was changed."""


def reading_options(settings: PulsarTransport) -> Options:
    """Options of our readers, from the settings."""
    connection = {name: getattr(settings, name) for name in PulsarConnection.model_fields}
    # The settings were checked as a whole when they were loaded.
    return Options.model_validate(
        {**connection, "allow_cleartext_secrets": True, "receiver_queue_size": PREFETCHED}
    )


def topics_pattern(name: str) -> dict[str, str]:
    """The option of the Data Source for a name with ``{broker}``."""
    namespace, _, topic = name.rpartition("/")
    return {"topics_pattern": f"{namespace}/{pattern_of([topic])}"}


def source_options(settings: PulsarTransport) -> dict[str, str]:
    """Options of our Data Source, from the settings."""
    security = settings.security.model_dump(exclude_none=True, exclude={"oauth2"})
    oauth2 = settings.security.oauth2
    if oauth2 is not None:
        values = oauth2.model_dump(exclude_none=True)
        security |= {f"oauth2_{name}": value for name, value in values.items()}
    names = settings.report_topics
    topics = topics_pattern(names[0]) if is_per_broker(names[0]) else {"topics": ",".join(names)}
    options = {
        "service_url": settings.service_url,
        "admin_url": settings.admin_url,
        **topics,
        "starting": settings.starting,
        "max_messages_per_trigger": settings.max_reports_per_trigger,
        "fail_on_data_loss": settings.fail_on_data_loss,
        "timeout_s": settings.timeout_s,
        "allow_cleartext_secrets": True,  # as in ``reading_options``
        "receiver_queue_size": PREFETCHED,
        **security,
    }
    return {name: _text(value) for name, value in options.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value).lower() if isinstance(value, bool) else str(value)
