"""Parses the options of ``format("pulsar")``, which Spark passes as strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, ValidationError, field_validator, model_validator

from quotaplane.errors import ConfigError
from quotaplane.parsing.strict_json import check_expressions, explain
from quotaplane.settings import PulsarConnection, PulsarSecurity
from quotaplane.settings.cleartext import pulsar_flaws
from quotaplane.settings.transports import OAuth2

_SECURITY: Final = set(PulsarSecurity.model_fields) - {"oauth2"}
_OAUTH2: Final = {f"oauth2_{name}": name for name in OAuth2.model_fields}
_SPARKS_OWN: Final = {"checkpointlocation", "queryname", "path", "outputmode"}

REDACTED: Final = "(?i)token|secret"
"""Options that Spark must not print in plans, errors and its web page."""


class Options(PulsarConnection):
    """The topics that a query reads or writes, and the connection."""

    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    starting: str | None = Field(default=None, pattern=r"^(earliest|latest|\d{1,15})$")
    """None: a stream starts at the end, a batch at the beginning."""
    max_messages_per_trigger: int | None = Field(default=None, ge=1)
    max_bytes_per_trigger: int = Field(default=128 * 1024 * 1024, ge=1)
    fail_on_data_loss: bool = True
    discovery_interval_s: float = Field(default=30.0, ge=0)
    receiver_queue_size: int = Field(default=256, ge=1)
    spool_folder: str | None = Field(default=None, min_length=1)
    """Local folder in which messages of non-persistent topics are kept until their batch is
    committed; None: a batch that runs again after a crash lacks them."""
    allow_cleartext_secrets: bool = False
    """Send a token without TLS to other hosts."""

    @field_validator("topics_pattern")
    @classmethod
    def _is_pattern(cls, text: str | None) -> str | None:
        if text is not None:
            parts = re.match(r"^(non-persistent|persistent)://[^/]+/[^/]+/(.+)$", text)
            if parts is None:
                raise ValueError("write persistent://tenant/namespace/regular-expression")
            check_expressions([parts[2]])
        return text

    @model_validator(mode="after")
    def _one_way(self) -> Options:
        if self.topics and self.topics_pattern is not None:
            raise ValueError("topic, topics and topics_pattern exclude each other")
        if self.topics_pattern is not None and self.admin_url is None:
            raise ValueError("topics_pattern needs admin_url: topics are listed over the REST API")
        return self

    @model_validator(mode="after")
    def _secrets_encrypted(self) -> Options:
        flaw = next(pulsar_flaws(self), None)
        if flaw is not None and not self.allow_cleartext_secrets:
            raise ValueError(f"{flaw}, or set option allow_cleartext_secrets to true")
        return self


def parse_options(given: Mapping[str, str]) -> Options:
    """Parse and check the options.

    Raises:
        ConfigError: an option is unknown, missing or wrong.

    >>> parse_options({"service_url": "pulsar://host:6650", "topics": "a, t/n/b"}).topics
    ('persistent://public/default/a', 'persistent://t/n/b')
    """
    options: dict[str, Any] = {}
    security: dict[str, Any] = {}
    topics: list[str] = []
    for key, value in given.items():
        name = key.lower()
        if name in _SPARKS_OWN:
            continue
        if name in ("topic", "topics"):
            topics += [full_name(part.strip()) for part in value.split(",") if part.strip()]
        elif name in _OAUTH2:
            security.setdefault("oauth2", {})[_OAUTH2[name]] = value
        elif name in _SECURITY:
            security[name] = value
        else:
            options[name] = value
    if len(set(topics)) != len(topics):
        raise ConfigError('format("pulsar"): option topics: names a topic twice')
    try:
        return Options.model_validate({**options, "topics": topics, "security": security})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = [str(part) for part in first["loc"] if part != "security"]
        message = "is not known" if first["type"] == "extra_forbidden" else explain(first, options)
        option = f"option {'_'.join(where)}: " if where else ""
        raise ConfigError(f'format("pulsar"): {option}{message}') from None


def full_name(topic: str) -> str:
    """A topic's full name, from the short forms that Pulsar's own tools accept.

    Raises:
        ConfigError: it is not a topic name.

    >>> full_name("t"), full_name("acme/orders/t")
    ('persistent://public/default/t', 'persistent://acme/orders/t')
    """
    if "://" not in topic:
        topic = f"persistent://{'public/default/' if '/' not in topic else ''}{topic}"
    if not re.match(r"^(non-persistent|persistent)://[^/\s]+/[^/\s]+/[^/\s]+$", topic):
        raise ConfigError(
            f'format("pulsar"): {topic!r} is not a topic: write persistent://tenant/namespace/topic'
        )
    return topic


def must_read(options: Options) -> None:
    """Check that the options name topics to read.

    Raises:
        ConfigError: they don't.
    """
    if not options.topics and options.topics_pattern is None:
        raise ConfigError('format("pulsar"): needs option topic, topics or topics_pattern')
