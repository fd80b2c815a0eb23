"""How others divide one limit, written afresh from what their sources do, as controllers.

A round stands for 5 s: stock Pulsar's report interval, Doorman's refresh interval, the period for
which TiKV's clients ask for tokens. Requests are served one after the other, in the order in which
the loop delivers them, as the originals do; who asks later finds the earlier ones' grants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from benchmarks.arena.bare import LawController
from quotaplane.laws import get_law
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.sim.loop import ArrivedReports

DOORMAN_LEASE_ROUNDS: Final = 60
"""Doorman's own defaults: leases of 300 s, a refresh every 5 s. Longer than most of the arena's
phases: who dies keeps its capacity from the others until then."""

TIKV_EXPIRY_ROUNDS: Final = 120
"""PD's ``slotExpireTimeout`` of 10 min."""

TIKV_HALF_LIFE_ROUNDS: Final = 1.0
"""Half-life of PD's moving average of demand: 5 s."""

TIKV_LEAST: Final = 1.0
"""Below one unit per second PD's average is taken to be 0."""

STOCK_OLDEST_ROUNDS: Final = 2
"""A stock broker drops a report that is older than two intervals when it arrives."""

PIP82_FORGET_ROUNDS: Final = 6
"""PIP-82 clears a broker whose ZooKeeper registration is gone: Pulsar's session timeout, 30 s."""


class Leases:
    """Doorman's lease store: what each client has and wants; zeros = it holds no lease."""

    def __init__(self, clients: int) -> None:
        self.has, self.wants, self.subclients = np.zeros((3, clients))
        self.until: IntArray = np.zeros(clients, dtype=np.int64)

    def assign(self, client: int, grant: float, wants: float, subclients: float) -> float:
        """Write a lease down; its grant."""
        self.has[client], self.wants[client] = grant, wants
        self.subclients[client] = subclients
        return grant

    def drop(self, clients: BoolArray) -> None:
        """End leases."""
        self.has[clients] = self.wants[clients] = self.subclients[clients] = 0.0


Share = Callable[[Leases, float, int, float, float], float]
"""(leases, capacity, client, wants, subclients) -> the grant, not yet written down."""


def proportional_share(
    leases: Leases, capacity: float, client: int, wants: float, subclients: float = 1.0
) -> float:
    """Doorman's PROPORTIONAL_SHARE for one request.

    Everybody may have an equal share. In an overload, what those who want less leave goes to those
    who want more, in proportion to the excess of their wants; never more than is unassigned.

    Source: github.com/youtube/doorman, go/server/doorman/algorithm.go.

    >>> leases = Leases(3)
    >>> for client, wants in enumerate((1000, 50, 10)):
    ...     _ = leases.assign(client, 0, wants, 1)
    >>> [round(leases.assign(c, proportional_share(leases, 120, c, w), w, 1), 2)
    ...     for c, w in enumerate((1000, 50, 10))]
    [69.69, 40.31, 10.0]
    """
    known = leases.subclients[client] > 0
    count = leases.subclients.sum() + (0.0 if known else subclients)
    unused = max(capacity - leases.has.sum() + leases.has[client], 0.0)
    equal = capacity / count
    own = equal * subclients
    # What is wanted in total is as it was before this request, also in the original.
    if leases.wants.sum() <= capacity or wants <= own:
        return float(min(wants, unused))
    everyone, shares = leases.wants.copy(), equal * leases.subclients
    if known:
        everyone[client], shares[client] = wants, own
    extra = np.maximum(shares - everyone, 0.0).sum()
    need = np.maximum(everyone - shares, 0.0).sum()
    if need <= 0.0:  # only a client that is new, in a store where all is wanted already
        return float(min(own, unused))
    return float(min(own + (wants - own) * extra / need, unused))


def fair_share(
    leases: Leases, capacity: float, client: int, wants: float, subclients: float = 1.0
) -> float:
    """Doorman's FAIR_SHARE for one request.

    An equal share each; what is left goes in equal parts to those who want more; what is left of
    that once more. Then it stops, so the result is not always max-min fair.

    Source: as for ``proportional_share``.

    >>> leases = Leases(4)
    >>> for client, wants in enumerate((8, 32, 38, 44)):
    ...     _ = leases.assign(client, 0, wants, 1)
    >>> [round(fair_share(leases, 120, c, w), 2) for c, w in enumerate((8, 32, 38, 44))]
    [8.0, 32.0, 40.0, 40.0]
    """
    others = leases.subclients > 0
    others[client] = False
    count = leases.subclients[others].sum() + subclients
    available = max(capacity - leases.has.sum() + leases.has[client], 0.0)
    equal = capacity / count
    share = equal * subclients
    if wants <= share:
        return float(min(wants, available))
    want, number = leases.wants[others], leases.subclients[others]
    deserved = equal * number
    more = want > deserved
    extra = np.maximum(deserved - want, 0.0).sum()
    share += extra / (subclients + number[more].sum()) * subclients
    if wants < share:
        return float(min(wants, available))
    # The original holds the others' wants against this client's share, whatever their size.
    left = np.maximum(share - want[more], 0.0).sum()
    still = subclients + number[more][want[more] > share].sum()
    return float(min(share + left / still * subclients, available))


class Doorman:
    """Doorman's server: a lease store and one of its laws, on reported wants (use plus refused).

    A client has nothing before its first answer (its rate limiter starts blocked). A client that
    dies keeps its lease for ``DOORMAN_LEASE_ROUNDS``. Learning mode, trees of servers and clients
    that have lost their server are left out.
    """

    initial_limit = 0.0

    def __init__(self, share: Share, brokers: int) -> None:
        self._share, self._leases = share, Leases(brokers)

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        """See ``quotaplane.sim.loop.Controller``."""
        leases = self._leases
        leases.drop(leases.until <= round_)
        limits = np.full(len(leases.has), np.nan)
        wants = arrived.usage + arrived.throttled
        for client, want in zip(arrived.broker.tolist(), wants.tolist(), strict=True):
            grant = self._share(leases, quota, client, want, 1.0)
            limits[client] = leases.assign(client, grant, want, 1.0)
            leases.until[client] = round_ + DOORMAN_LEASE_ROUNDS
        return limits


def slot_rates(fill_rate: float, demand: FloatArray, known: BoolArray) -> FloatArray:
    """How TiKV's PD divides a fill rate among the slots of a token bucket.

    Everybody has its demand up to an even share; what is left goes to those who want more, in
    proportion to what they want beyond it, or evenly to all if nobody does. A slot of which no
    demand is known has an even share.

    Source: github.com/tikv/pd, pkg/mcs/resourcemanager/server/token_buckets.go
    (``balanceSlotTokens``).

    >>> slot_rates(120.0, np.array([100.0, 60.0, 55.0, 5.0]), np.ones(4, dtype=bool))
    array([44., 36., 35.,  5.])
    """
    if len(demand) == 1:
        return np.array([fill_rate])
    even = fill_rate / len(demand)
    beyond = np.maximum(demand - even, 0.0)
    rates = np.where(known, np.minimum(demand, even), even)
    left = fill_rate - rates.sum()
    if left > 0.0:
        total = beyond.sum()
        rates = rates + (left * beyond / total if total > 0.0 else left / len(demand))
    return rates


class TikvSlots:
    """TiKV's resource manager: one slot a client, its fill rate taken as the client's limit.

    A request asks for what the client wants (here use plus refused), and is averaged before it is
    answered. The first request of a client only starts its clock. Who asks for nothing loses its
    slot and gets nothing; who dies loses it after ``TIKV_EXPIRY_ROUNDS``. Saved tokens and loans,
    which let a client go beyond its rate for a while, priorities and service limits are left out.
    """

    initial_limit = np.inf

    def __init__(self, brokers: int) -> None:
        self._average = np.zeros(brokers)
        self._known, self._slot = np.zeros((2, brokers), dtype=np.bool_)
        self._sampled_in = np.full(brokers, -1)
        self._asked_in = np.full(brokers, -1)

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        """See ``quotaplane.sim.loop.Controller``."""
        limits = np.full(len(self._slot), np.nan)
        required = arrived.usage + arrived.throttled
        for client, tokens in zip(arrived.broker.tolist(), required.tolist(), strict=True):
            self._sample(client, round_, tokens)
            self._slot[client] = tokens > 0.0
            self._asked_in[client] = round_
            self._slot &= round_ - self._asked_in < TIKV_EXPIRY_ROUNDS
            limits[client] = 0.0
            if self._slot[client]:
                slots = np.flatnonzero(self._slot)
                rates = slot_rates(quota, self._average[slots], self._known[slots])
                limits[client] = rates[np.searchsorted(slots, client)]
        return limits

    def _sample(self, client: int, round_: int, demand: float) -> None:
        before, self._sampled_in[client] = int(self._sampled_in[client]), round_
        if before in (-1, round_):
            return
        if not self._known[client]:
            self._known[client], self._average[client] = True, demand
            return
        kept = 0.5 ** ((round_ - before) / TIKV_HALF_LIFE_ROUNDS)
        average = kept * self._average[client] + (1.0 - kept) * demand
        self._average[client] = average if average >= TIKV_LEAST else 0.0


class StockProportional(LawController):
    """Stock Pulsar's law on stock reports: never forgets a broker, drops reports that are too old.

    Every broker reports every round here; real ones leave out what moved by less than 5 %.
    """

    def __init__(self, brokers: int) -> None:
        super().__init__(get_law("proportional"), brokers)

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        """See ``quotaplane.sim.loop.Controller``."""
        fresh = round_ - arrived.about_round <= STOCK_OLDEST_ROUNDS
        kept = ArrivedReports._make(column[fresh] for column in arrived)
        return super().decide(round_, kept, quota)
