"""The input of Pulsar's strategies in a round, and how a strategy is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions
from quotaplane.model import BoolArray, FloatArray, IntArray


class BrokerLoads(NamedTuple):
    """Brokers' loads as they report them to the extensible manager. Shapes (B,)."""

    use: FloatArray
    """Moving average of the greatest weighted use; 1 = the whole limit."""
    smooth_throughput: FloatArray
    """Moving average of ``throughput``."""
    throughput: FloatArray
    """Bytes per second of its bundles when it reported."""


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
    samples: IntArray | None = None
    """Shape (N,): samples in ``long_term``, 1 to 1000; None = 1000 each."""
    report_age_s: FloatArray | None = None
    """Shape (B,): age of each broker's report; None = all new. Only TransferShedder looks."""
    since_unload_s: FloatArray | None = None
    """Shape (B,): how long before its report the broker last unloaded a bundle (infinite: never;
    below 0: after it); None = no broker did. Only TransferShedder looks."""
    missing: Sequence[str] = ()
    """Brokers that are in the cluster, but sent no report. Only TransferShedder looks."""
    broker_loads: BrokerLoads | None = None
    """Only for the extensible manager; None = each round is one measurement of every broker."""


class Shedder(Protocol):
    """One of Pulsar's shedding strategies; an instance keeps histories and hit counts."""

    def shed(self, round_: StockRound) -> Decisions:
        """Decide which bundles leave their brokers. Moves are ordered as Pulsar unloads them."""


@runtime_checkable
class ForgetsBrokers(Protocol):
    """A strategy with a history of each broker (``onActiveBrokersChange``)."""

    def active_brokers(self, brokers: Sequence[str]) -> None:
        """Forget all other brokers. The leader calls it before each round."""
