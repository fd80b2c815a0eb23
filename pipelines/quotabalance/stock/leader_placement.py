"""Where the leader of Pulsar's modular manager places bundles (``selectBroker``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.isolation import IsolatedBrokers
from quotabalance.planning.policies import Policies, apart, domain_codes
from quotabalance.stock.averages import DEFAULT_RATES
from quotabalance.stock.broker_versions import newest
from quotabalance.stock.bundle_ranking import max_usage, traffic_of
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import HashArray, HashMapOrder, spread, string_hashes
from quotabalance.stock.leader_maps import NamespaceBundles, Preallocated
from quotabalance.stock.placements import BundleAsked, MessageRates, PlacementStrategy
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.topics.bundle_names import SYSTEM_NAMESPACE, namespace_of


class CandidateSet:
    """A ``HashSet`` of brokers that is used again and again; its table never shrinks.

    >>> from quotabalance.stock.java import spread, string_hashes
    >>> found = CandidateSet()
    >>> found.spreads = spread(string_hashes(["b2", "b1", "b3"]))
    >>> found.add(np.arange(3))
    >>> found.brokers.tolist()
    [0, 2, 1]
    """

    def __init__(self) -> None:
        self.spreads: HashArray = np.zeros(0, np.uint32)
        """Mixed hashes of all brokers there are."""
        self.brokers: IntArray = np.zeros(0, np.int64)
        """The members, as Java lists them."""
        self._order = HashMapOrder()

    def clear(self) -> None:
        """Remove all."""
        self.brokers = np.zeros(0, np.int64)

    def add(self, brokers: IntArray) -> None:
        """Insert brokers in this order."""
        if len(self.brokers):
            new = brokers[~self.mask()[brokers]]
            brokers = np.concatenate((self.brokers, new))
        self.brokers = brokers[self._order.order(self.spreads[brokers])]

    def keep(self, wanted: BoolArray) -> None:
        """Remove the brokers that are not wanted; shape (B,)."""
        self.brokers = self.brokers[wanted[self.brokers]]

    def mask(self) -> BoolArray:
        """Whether each broker is in; shape (B,)."""
        found = np.zeros(len(self.spreads), np.bool_)
        found[self.brokers] = True
        return found


def copied_order(brokers: IntArray, spreads: HashArray) -> IntArray:
    """The order of ``new HashSet<>(brokers)``, whose table is made large enough at once."""
    capacity = 16
    while capacity < int(len(brokers) / 0.75) + 1:
        capacity *= 2
    return brokers[np.argsort(spreads[brokers] & np.uint32(capacity - 1), kind="stable")]


Draw = Callable[[Sequence[str]], str]
"""Chooses one of the brokers that Pulsar draws from."""


def draw_first(brokers: Sequence[str]) -> str:
    """The first by name, for answers that are the same each time."""
    return min(brokers)


class LeaderPlacement:
    """Places bundles one after the other, through Pulsar's filters and a strategy.

    State: that of the strategy, and what was placed since ``begin``.
    """

    def __init__(
        self,
        strategy: PlacementStrategy,
        settings: StockSettings,
        policies: Policies | None = None,
    ) -> None:
        self._strategy, self._settings = strategy, settings
        self._policies = policies or Policies()
        self._set, self._primary, self._secondary = CandidateSet(), CandidateSet(), CandidateSet()

    def __getstate__(self) -> dict[str, object]:
        """Without the round."""
        lasting = ("_strategy", "_settings", "_policies", "_set", "_primary", "_secondary")
        return {name: self.__dict__[name] for name in lasting}

    def begin(self, round_: StockRound) -> None:
        """New reports have arrived: what was placed before is forgotten."""
        load = round_.load
        brokers = len(load.brokers)
        self._round, self._brokers = round_, list(load.brokers)
        self._index = {name: index for index, name in enumerate(load.bundles)}
        isolation = self._policies.isolation
        self._isolation = IsolatedBrokers(isolation, load.brokers, ports=False)
        domains = self._policies.failure_domains if self._settings.failureDomainsEnabled else {}
        self._domains = domain_codes(load.brokers, domains)
        self._bundles = NamespaceBundles(load)
        self._placed = Preallocated(brokers)
        limit = self._settings.loadBalancerBrokerOverloadedThresholdPercentage / 100.0
        self._overloaded: BoolArray = max_usage(load, self._settings) > limit
        self._topics = (
            np.bincount(load.owner, load.topics, brokers).astype(np.int64)
            if len(load.topics)
            else np.zeros(brokers, np.int64)
        )
        self._rates = traffic_of(load, round_.long_term).messages_per_s
        hashes = spread(string_hashes(load.brokers))
        for candidates in (self._set, self._primary, self._secondary):
            candidates.spreads = hashes
        self._available = copied_order(np.arange(brokers), hashes)
        self._strategy.begin(round_)

    def choices(self, bundle: str) -> list[str]:
        """All brokers that ``place`` can choose now, sorted; [] = none. Nothing changes by it."""
        if bundle in self._placed.target:
            return [self._brokers[self._placed.target[bundle]]]
        strategy, asked = self._strategy.fork(), self._ask(bundle)
        self._filter(bundle)
        if not len(self._set.brokers):
            return []
        offered = strategy.offer(self._set.brokers, self._all_rates(), asked)
        over = self._overloaded[offered] & (not strategy.is_sticky)
        found = set(offered[~over].tolist())
        if over.any():
            self._allow(bundle)
            found |= set(strategy.offer(self._set.brokers, self._all_rates(), asked).tolist())
        return sorted(self._brokers[index] for index in found)

    def place(self, bundle: str, draw: Draw = draw_first, remember: bool = True) -> str | None:
        """Choose a broker for a bundle.

        Args:
            bundle: its name; it need not be reported by any broker.
            draw: chooses where Pulsar draws.
            remember: as for a lookup, which counts the bundle from then on; without, as for a
                bundle that is shed, which is not counted.

        Returns:
            The broker; None = no broker may have it.
        """
        if remember and bundle in self._placed.target:
            return self._brokers[self._placed.target[bundle]]
        asked = self._ask(bundle)
        self._filter(bundle)
        broker = self._choose(asked, draw)
        if broker is not None and self._overloaded[broker]:
            self._allow(bundle)
            broker = self._choose(asked, draw)
        if broker is None:
            return None
        if remember:
            messages = asked.round_.long_term[asked.at, 2:]
            topics = asked.round_.load.topics
            count = int(topics[asked.at]) if len(topics) else 0
            self._placed.add(bundle, broker, float(messages[0] + messages[1]), count)
        return self._brokers[broker]

    def may_leave(self, bundle: str, source: str) -> bool:
        """Whether policies let a bundle that is shed leave its broker.

        ``shouldNamespacePoliciesUnload``: another broker is allowed; and
        ``shouldAntiAffinityNamespaceUnload``: another one has fewer namespaces of its group.
        """
        self._set.clear()
        self._allow(bundle)
        allowed, broker = self._set.mask(), self._brokers.index(source)
        if not allowed.any() or (allowed[broker] and allowed.sum() < 2):
            return False
        held = self._held_of_group(namespace_of(bundle))
        if held is None or not held.any():
            return True
        counts = held[allowed]
        here = int(held[broker]) if allowed[broker] else 0
        least = int(counts.min())
        return bool(least == 0 or here > least or (counts != least).any())

    def _choose(self, asked: BundleAsked, draw: Draw) -> int | None:
        if not len(self._set.brokers):
            return None
        offered = self._strategy.offer(self._set.brokers, self._all_rates(), asked)
        broker = self._brokers.index(draw([self._brokers[index] for index in offered.tolist()]))
        self._strategy.chosen(broker, asked)
        return broker

    def _all_rates(self) -> MessageRates:
        placed, reported = self._placed, self._rates
        return MessageRates(
            placed.message_rates() + reported,
            lambda broker: placed.exact_rate(broker) + float(reported[broker]),
        )

    def _ask(self, bundle: str) -> BundleAsked:
        if bundle in self._index:
            return BundleAsked(self._round, self._index[bundle])
        load, rates, no = self._round.load, np.array([DEFAULT_RATES]), np.zeros(1, np.int64)
        if self._strategy.is_sticky:
            # Its memory is about all bundles of the leader, and this one is among them now.
            self._round = _with_assumed(self._round, bundle, rates)
            self._index[bundle] = len(load.bundles)
            return BundleAsked(self._round, self._index[bundle])
        alone = ClusterLoad(load.brokers, load.usage, load.limit, (bundle,), no, rates, no, no)
        assumed = self._round._replace(load=alone, short_term=rates, long_term=rates, samples=no)
        return BundleAsked(assumed, 0)

    def _allow(self, bundle: str) -> None:
        """Add all brokers that isolation policies allow (``applyNamespacePolicies``)."""
        namespace = namespace_of(bundle)
        everywhere = np.ones(len(self._brokers), np.bool_)
        allowed = self._isolation.open_to(namespace, everywhere)
        primary, secondary = self._isolation.split(namespace)
        for cache, wanted in ((self._primary, primary), (self._secondary, secondary)):
            cache.clear()
            cache.add(self._available[wanted[self._available]])
            self._set.add(cache.brokers[allowed[cache.brokers]])

    def _filter(self, bundle: str) -> None:
        """Leave in the set of candidates what the filters leave."""
        settings, found = self._settings, self._set
        namespace = namespace_of(bundle)
        found.clear()
        self._allow(bundle)
        self._drop_full(found)
        found.keep(self._apart(namespace, found.mask()))
        evenly = settings.loadBalancerDistributeBundlesEvenlyEnabled
        if (evenly or namespace == SYSTEM_NAMESPACE) and len(found.brokers):
            held = self._bundles.held(namespace, self._placed.of_namespace(namespace))
            found.keep(held <= held[found.brokers].min())
        if settings.preferLaterVersions:
            versions = self._policies.broker_versions
            latest = newest(self._brokers, versions, found.mask())
            if latest is None:
                self._allow(bundle)
            else:
                found.keep(latest)
        if not len(found.brokers):
            self._allow(bundle)

    def _drop_full(self, found: CandidateSet) -> None:
        """Remove brokers with too many topics, unless all have."""
        most = self._settings.loadBalancerBrokerMaxTopics
        fits = self._topics + self._placed.topics <= most
        kept = CandidateSet()
        kept.spreads = found.spreads
        kept.add(found.brokers[fits[found.brokers]])
        if len(kept.brokers):
            found.clear()
            found.add(kept.brokers)

    def _apart(self, namespace: str, candidates: BoolArray) -> BoolArray:
        """Brokers with the fewest *namespaces* of the namespace's anti-affinity group."""
        held = self._held_of_group(namespace)
        return candidates if held is None else apart(candidates, held, self._domains)

    def _held_of_group(self, namespace: str) -> IntArray | None:
        """How many namespaces of its anti-affinity group each broker has, (B,); None: no group."""
        group = self._policies.group_of(namespace)
        if not group:
            return None
        held: IntArray = np.zeros(len(self._brokers), np.int64)
        for member in self._policies.namespaces_of(group):
            held += self._bundles.held(member, self._placed.of_namespace(member)) > 0
        return held


def _with_assumed(round_: StockRound, bundle: str, rates: FloatArray) -> StockRound:
    """The round with one more bundle, which no broker has reported."""
    load, no = round_.load, np.zeros(1, np.int64)
    samples = np.full(len(load.bundles), 1000) if round_.samples is None else round_.samples
    longer = replace(
        load,
        bundles=(*load.bundles, bundle),
        owner=np.concatenate((load.owner, no)),
        rates=np.concatenate((load.rates, rates)),
        topics=np.concatenate((load.topics, no)) if len(load.topics) else load.topics,
        sessions=np.concatenate((load.sessions, no)) if len(load.sessions) else load.sessions,
    )
    return round_._replace(
        load=longer,
        short_term=np.concatenate((round_.short_term, rates)),
        long_term=np.concatenate((round_.long_term, rates)),
        recent=np.concatenate((round_.recent, [False])),
        samples=np.concatenate((samples, no)),
    )
