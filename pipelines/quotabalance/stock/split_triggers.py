"""Which bundles Pulsar splits: the triggers of both managers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from quotabalance.planning.bundle_limits import LIMIT_LABELS, WITHIN, BundleLimits
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions, Skip, Split
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import ConcurrentMapOrder
from quotabalance.stock.leader_maps import LeaderMaps
from quotabalance.stock.split_algorithms import most_bytes_of_triggers
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import FloatArray, IntArray
from quotaplane.topics.bundle_names import BundleName, namespace_of, parse_bundle


def _limits(settings: StockSettings) -> BundleLimits:
    return BundleLimits(
        settings.loadBalancerNamespaceBundleMaxTopics,
        settings.loadBalancerNamespaceBundleMaxSessions,
        settings.loadBalancerNamespaceBundleMaxMsgRate,
        most_bytes_of_triggers(settings),
    )


def _why(limit: int, settings: StockSettings) -> tuple[str, str]:
    """Label and text of a reason."""
    if limit == WITHIN:
        return "Unknown", "the threshold of hits is below 0"
    return LIMIT_LABELS[limit], _limits(settings).text(limit)


def _column(counts: IntArray, bundles: int) -> IntArray:
    return counts if len(counts) else np.zeros(bundles, np.int64)


def exceeded_limits(
    load: ClusterLoad,
    rates: FloatArray,
    settings: StockSettings,
    rows: IntArray | slice = slice(None),
) -> IntArray:
    """The first limit that each bundle of ``rows`` exceeds, as ``BundleLimits.exceeded``.
    ``rates``, shape (N, 4), is what messages and bytes are counted from.
    """
    bundles = len(load.bundles)
    topics, sessions = _column(load.topics, bundles)[rows], _column(load.sessions, bundles)[rows]
    rates = rates[rows]
    sizes, messages = rates[:, 0] + rates[:, 1], rates[:, 2] + rates[:, 3]
    return _limits(settings).exceeded(topics, sessions, sizes, messages)


def bundle_counts(bundles: Iterable[str]) -> Counter[str]:
    """How many bundles each namespace has, if every bundle is listed."""
    return Counter(namespace_of(bundle) for bundle in bundles)


class BundleSplitterTask:
    """The modular manager's trigger: the leader looks at all bundles, at *long-term* rates.

    >>> names, zeros, topics = ("acme/orders/0x00000000_0xffffffff",), np.zeros, np.array([1001])
    >>> usage, limit, owner = zeros((1, 5)), zeros((1, 5)), zeros(1, int)
    >>> load = ClusterLoad(("b1:1",), usage, limit, names, owner, zeros((1, 4)), topics)
    >>> round_ = StockRound(load, load.rates, load.rates, np.zeros(1, bool), 0.0)
    >>> BundleSplitterTask(StockSettings()).find(round_).splits[0].label
    'Topics'
    """

    def __init__(self, settings: StockSettings) -> None:
        self._settings = settings
        self._maps = LeaderMaps()

    def find(self, round_: StockRound, counts: Mapping[str, int] | None = None) -> Decisions:
        """Bundles to split, with the default algorithm (no boundaries in the answer).

        Args:
            round_: the leader's view.
            counts: bundles of namespaces; of others as many as are listed.
        """
        load, settings = round_.load, self._settings
        self._maps.begin(load)
        reasons = exceeded_limits(load, round_.long_term, settings)
        hot = np.flatnonzero(reasons < WITHIN)
        place = np.empty(len(load.brokers), np.int64)
        place[self._maps.brokers()] = np.arange(len(load.brokers))
        hot = hot[np.argsort(place[load.owner[hot]], kind="stable")]
        known = {**bundle_counts(load.bundles), **(counts or {})}
        chosen: Counter[str] = Counter()
        splits: list[Split] = []
        skips: list[Skip] = []
        most = settings.loadBalancerNamespaceMaximumBundles
        for index in hot.tolist():
            bundle = load.bundles[index]
            namespace = namespace_of(bundle)
            if known.get(namespace, 1) + chosen[namespace] >= most:
                skips.append(_too_many(bundle, most))
                continue
            chosen[namespace] += 1
            name, reason = parse_bundle(bundle), int(reasons[index])
            if name.high - name.low < 2:
                continue  # chosen and counted, but the leader leaves it out afterwards
            label, text = _why(reason, settings)
            splits.append(Split(bundle, load.brokers[load.owner[index]], (), label, text))
        return Decisions((), splits, skips)


class ExtensibleSplitter:
    """The extensible manager's trigger in a broker (``DefaultNamespaceBundleSplitStrategyImpl``).

    It uses live rates, which must be too high in several rounds in a row, and needs exactly one
    boundary.
    """

    def __init__(
        self, settings: StockSettings, boundaries: Callable[[BundleName], tuple[int, ...]]
    ) -> None:
        """``boundaries`` is the default split algorithm."""
        self._settings = settings
        self._boundaries = boundaries
        self._hits: Counter[str] = Counter()
        self._map = ConcurrentMapOrder()

    def find(
        self,
        load: ClusterLoad,
        broker: int,
        counts: Mapping[str, int] | None = None,
        splitting: Collection[str] = (),
    ) -> Decisions:
        """Bundles that one broker splits.

        Args:
            load: of the cluster.
            broker: index of the broker.
            counts: bundles of namespaces; of others as many as are listed.
            splitting: bundles that are being split.
        """
        settings = self._settings
        own = np.flatnonzero(load.owner == broker)
        own = own[self._map.replace([load.bundles[index] for index in own.tolist()])]
        present = {load.bundles[index] for index in own.tolist()}
        for bundle in [bundle for bundle in self._hits if bundle not in present]:
            del self._hits[bundle]
        topics = _column(load.topics, len(load.bundles))
        cycle = _SplitCycle(settings, load.bundles, counts or {}, splitting)
        own = own[topics[own] >= 2]
        reasons = exceeded_limits(load, load.rates, settings, own)
        for index, reason in zip(own.tolist(), reasons.tolist(), strict=True):
            name = parse_bundle(load.bundles[index])
            if name.high - name.low < 2:
                continue
            if not self._is_hit(load.bundles[index], reason, cycle):
                continue
            boundaries = cycle.may_split(name, load.bundles[index], self._boundaries)
            if not boundaries:
                continue
            self._hits.pop(load.bundles[index], None)
            label, text = _why(reason, settings)
            owner = load.brokers[broker]
            cycle.splits.append(Split(load.bundles[index], owner, boundaries, label, text))
            if len(cycle.splits) == settings.loadBalancerMaxNumberOfBundlesToSplitPerCycle:
                break
        return Decisions((), cycle.splits, cycle.skips)

    def _is_hit(self, bundle: str, reason: int, cycle: _SplitCycle) -> bool:
        if reason == WITHIN:
            self._hits.pop(bundle, None)
        else:
            self._hits[bundle] += 1
        hits = self._hits.get(bundle, 0)
        needed = self._settings.loadBalancerNamespaceBundleSplitConditionHitCountThreshold
        if hits > needed:  # below 0 it lets every bundle through, which Pulsar labels Unknown
            return True
        if hits:
            text = f"{hits} rounds in a row; more than {needed} are needed"
            cycle.skips.append(Skip(bundle, "HitCount", text))
        return False


class _SplitCycle:
    """The decisions of one cycle of a broker."""

    def __init__(
        self,
        settings: StockSettings,
        bundles: Sequence[str],
        counts: Mapping[str, int],
        splitting: Collection[str],
    ) -> None:
        self._settings, self._splitting = settings, splitting
        self._bundles, self._given = bundles, counts
        self._chosen: Counter[str] = Counter()
        self.splits: list[Split] = []
        self.skips: list[Skip] = []

    @cached_property
    def _counts(self) -> Mapping[str, int]:
        """Only for a bundle that is to be split: most cycles of most brokers have none."""
        return {**bundle_counts(self._bundles), **self._given}

    def may_split(
        self, name: BundleName, bundle: str, algorithm: Callable[[BundleName], tuple[int, ...]]
    ) -> tuple[int, ...]:
        """The one boundary; () = it is not split now."""
        namespace, most = name.namespace, self._settings.loadBalancerNamespaceMaximumBundles
        if self._counts.get(namespace, 1) + self._chosen[namespace] >= most:
            self.skips.append(_too_many(bundle, most))
            return ()
        if self._is_splitting(bundle):
            self.skips.append(Skip(bundle, "Splitting", "it, or a bundle that it was part of, is"))
            return ()
        boundaries = algorithm(name)
        if len(boundaries) != 1:
            text = f"the algorithm gives {len(boundaries)} boundaries; Pulsar splits only at one"
            self.skips.append(Skip(bundle, "Boundaries", text))
            return ()
        self._chosen[namespace] += 1
        return boundaries

    def _is_splitting(self, bundle: str) -> bool:
        """As Pulsar compares: the other bundle's *name* begins like this namespace, so that
        ``acme/orders`` also waits for ``acme/orders-2``.
        """
        namespace, _, range_ = bundle.rpartition("/")
        low, high = range_.split("_")
        return any(
            other.startswith(namespace)
            and (other.rpartition("/")[2].startswith(low) or other.endswith(high))
            for other in self._splitting
        )


def _too_many(bundle: str, most: int) -> Skip:
    return Skip(bundle, "TooManyBundles", f"its namespace has {most} bundles or more")
