"""What Pulsar's strategies get in a round, and how a strategy is called."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from quotaplane.balance.cluster_load import ClusterLoad
from quotaplane.balance.decisions import Decisions
from quotaplane.model import BoolArray, FloatArray


class StockRound(NamedTuple):
    """The leader's view of the cluster when it calls a strategy. N bundles."""

    load: ClusterLoad
    short_term: FloatArray
    """Shape (N, 4): each bundle's average of at most 10 samples (``shortTermData``)."""
    long_term: FloatArray
    """Shape (N, 4): of at most 1000 samples (``longTermData``)."""
    recent: BoolArray
    """Shape (N,): unloaded less than the grace period ago."""
    now_s: float
    """Seconds of a clock; only differences count."""


class Shedder(Protocol):
    """One of Pulsar's shedding strategies; an instance keeps histories and hit counts."""

    def shed(self, round_: StockRound) -> Decisions:
        """Decide which bundles leave their brokers. Moves are ordered as Pulsar unloads them."""
