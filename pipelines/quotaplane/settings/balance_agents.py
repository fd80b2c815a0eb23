"""Settings of the balancer's collector and executor."""

from __future__ import annotations

from pydantic import Field

from quotaplane.errors import ConfigError
from quotaplane.settings.section import Section
from quotaplane.settings.transports import DeltaTransport, KafkaTransport, PulsarTransport


class Collect(Section):
    """How ``quotaplane balance collect`` reads the brokers' load."""

    interval_s: float = Field(default=10.0, ge=1)
    """How often every broker is read; each read is published as its load report."""
    concurrency: int = Field(default=8, ge=1, le=256)
    """Most brokers that are read at once."""
    draining: tuple[str, ...] = ()
    """Brokers (host:port, as in Pulsar's list) to be taken out: their reports say so."""


class Execute(Section):
    """How ``quotaplane balance execute`` moves and splits bundles."""

    max_moves_at_once: int = Field(default=8, ge=1, le=256)
    """Most bundles on the move at once; it begins with one, and adapts to what is measured."""
    max_bytes_at_once_per_s: float = Field(default=200e6, gt=0)
    """Most traffic of the bundles on the move at once; one bundle always may."""
    slow_move_s: float = Field(default=2.0, gt=0)
    """A move that takes longer halves the number of moves at once."""
    unload_timeout_s: float = Field(default=60.0, gt=0)
    """Pulsar's own limit is ``namespaceBundleUnloadingTimeoutMs``."""
    attempts: int = Field(default=3, ge=1, le=20)
    """How often a move is tried before it counts as missed."""
    retry_after_s: float = Field(default=1.0, ge=0)
    """Pause before the second attempt; it doubles with each one."""
    max_failures_in_a_row: int = Field(default=3, ge=1)
    """After so many missed or failed moves one after the other nothing more is begun."""
    changed_share: float = Field(default=0.5, ge=0)
    """A plan is refused if its bundles' traffic differs from the plan's by more than this part."""
    receiver_share: float = Field(default=1.25, ge=1)
    """A plan is refused if a receiver would carry more than this many times the mean."""
    max_plan_age_s: float = Field(default=1800.0, gt=0)
    """Older plans are refused."""


def pulsar_cluster(transport: DeltaTransport | KafkaTransport | PulsarTransport) -> PulsarTransport:
    """The cluster that is balanced.

    Raises:
        ConfigError: the settings don't say how to reach it.
    """
    if not isinstance(transport, PulsarTransport) or transport.admin_url is None:
        raise ConfigError(
            "balance collect and execute need transport.kind: pulsar and transport.admin_url"
        )
    return transport
