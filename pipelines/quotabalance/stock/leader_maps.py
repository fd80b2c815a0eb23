"""The leader's two maps, of brokers and of bundles: the order in which strategies see them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.stock.java import (
    ConcurrentMapOrder,
    HashArray,
    HashMapOrder,
    spread,
    string_hashes,
    table_capacity,
)
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.topics.bundle_names import PULSARS_OWN, namespace_of

_MOST_PENDING: Final = 4
"""Bundles of earlier rounds are inserted then, one round at a time: so no round is slow."""

_FEW: Final = 8
"""Up to an eighth of all bundles are compared without the map of all of them."""

_PART: Final = r"[-=:.\w]+"
_NAMESPACE: Final = re.compile(rf"{_PART}/{_PART}(?:/{_PART})?", re.ASCII)
_NEVER_SHED: Final = re.compile(
    r"(?:sla-monitor/[^/]+/|pulsar/[^/]+/|pulsar/)[^:]+:\d+", re.ASCII | re.DOTALL
)


def is_never_shed(bundle: str) -> bool:
    """Whether the bundle is of a heartbeat or SLA namespace, which Pulsar's shedders do not see.

    Bundles of ``pulsar/system`` they do see.

    >>> is_never_shed("pulsar/b1:8080/0x00000000_0xffffffff")
    True
    >>> is_never_shed("pulsar/system/0x00000000_0xffffffff")
    False
    """
    namespace = namespace_of(bundle)
    return bool(_NAMESPACE.fullmatch(namespace) and _NEVER_SHED.fullmatch(namespace))


class LeaderMaps:
    """Follows a leader's maps from round to round. New brokers are inserted as the load lists
    them; new bundles broker by broker, as the map lists the brokers, then as the load lists
    them. Bundles and brokers that are gone are removed after that.
    """

    def __init__(self) -> None:
        self._brokers = ConcurrentMapOrder()
        self._bundles = ConcurrentMapOrder()
        self._broker_names: Sequence[str] = ()
        self._broker_order: IntArray = np.zeros(0, np.int64)
        self._bundle_names: Sequence[str] = ()
        self._never_shed: BoolArray = np.zeros(0, np.bool_)
        self._places: IntArray | None = None
        # Rounds whose bundles were not inserted yet: their order is seldom asked for.
        self._pending: list[tuple[ClusterLoad, IntArray]] = []

    def begin(self, load: ClusterLoad) -> None:
        """Take note of a round's brokers and bundles; call it once for every round."""
        if load.brokers is not self._broker_names:
            self._broker_order = self._brokers.replace(load.brokers)
            self._broker_names = load.brokers
        if load.bundles is self._bundle_names:
            return
        if load.bundles != self._bundle_names:
            self._places = None
            self._pending.append((load, self._broker_order))
            if len(self._pending) > _MOST_PENDING:
                self._insert(*self._pending.pop(0))
            found = [at for at, name in enumerate(load.bundles) if name.startswith(PULSARS_OWN)]
            self._never_shed = np.zeros(len(load.bundles), np.bool_)
            self._never_shed[[at for at in found if is_never_shed(load.bundles[at])]] = True
        self._bundle_names = load.bundles

    def brokers(self) -> IntArray:
        """Indices of the round's brokers, as the leader's map lists them."""
        return self._broker_order

    def broker_spreads(self) -> HashArray:
        """Mixed hashes of the round's brokers."""
        return self._brokers.spreads

    def never_shed(self) -> BoolArray:
        """Shape (N,): bundles of heartbeat and SLA namespaces (``is_never_shed``)."""
        return self._never_shed

    def bundle_places(self, wanted: IntArray) -> IntArray:
        """Numbers that order some bundles as ``getBundleDataForLoadShedding()`` does, a ``HashMap``
        that is made anew of the leader's map. Bundles that are never shed come last.
        """
        names = self._bundle_names
        if self._places is None and len(wanted) * _FEW < len(names):
            # Buckets say it, unless two bundles have the same; then it depends on the history.
            capacity = table_capacity(len(names) - int(self._never_shed.sum()))
            spreads = spread(string_hashes([names[at] for at in wanted.tolist()]))
            buckets = (spreads & np.uint32(capacity - 1)).astype(np.int64)
            if len(np.unique(buckets)) == len(buckets):
                return np.where(self._never_shed[wanted], capacity, buckets)
        if self._places is None:
            self._places = self._all_places()
        places: IntArray = self._places[wanted]
        return places

    def _all_places(self) -> IntArray:
        self._insert_pending()
        listed = self._bundles.replace(self._bundle_names)
        seen = listed[~self._never_shed[listed]]
        order = seen[HashMapOrder().order(self._bundles.spreads[seen])]
        places = np.full(len(listed), len(listed), np.int64)
        places[order] = np.arange(len(order))
        return places

    def _insert_pending(self) -> None:
        for load, broker_order in self._pending:
            self._insert(load, broker_order)
        self._pending.clear()

    def _insert(self, load: ClusterLoad, broker_order: IntArray) -> None:
        place = np.empty(len(broker_order), np.int64)
        place[broker_order] = np.arange(len(broker_order))
        self._bundles.replace(load.bundles, np.argsort(place[load.owner], kind="stable"))


class NamespaceBundles:
    """Reported bundles by namespace, and bundles that were placed since (``BundleRangeCache``)."""

    def __init__(self, load: ClusterLoad) -> None:
        self._load = load
        codes: dict[str, int] = {}
        code = np.array(
            [codes.setdefault(namespace_of(bundle), len(codes)) for bundle in load.bundles],
            np.int64,
        )
        order = np.argsort(code, kind="stable")
        self._owners = load.owner[order]
        self._begins = np.searchsorted(code[order], np.arange(len(codes) + 1))
        self._codes = codes
        self._of_bundle: dict[str, int] = {}

    def held(self, namespace: str, placed: list[tuple[int, str]]) -> IntArray:
        """Bundles of the namespace on each broker; shape (B,).

        Args:
            namespace: its name.
            placed: its bundles that were placed since the reports, with their brokers.
        """
        brokers, code = len(self._load.brokers), self._codes.get(namespace)
        found: IntArray = np.zeros(brokers, np.int64)
        if code is not None:
            owners = self._owners[self._begins[code] : self._begins[code + 1]]
            found += np.bincount(owners, minlength=brokers)
        for broker, bundle in placed:
            found[broker] += self._owner(bundle) != broker
        return found

    def _owner(self, bundle: str) -> int:
        """The broker that reports a bundle; -1 = none."""
        if not self._of_bundle and len(self._load.bundles):
            owners = self._load.owner.tolist()
            self._of_bundle = dict(zip(self._load.bundles, owners, strict=True))
        return self._of_bundle.get(bundle, -1)


class Preallocated:
    """The bundles that have been placed on each broker of a round.

    Pulsar forgets all of it with the next reports, also what a broker has not taken over yet (only
    bundles that the leader itself serves are remembered longer).
    """

    def __init__(self, brokers: int) -> None:
        self.target: dict[str, int] = {}
        """Broker of each bundle."""
        self.topics: IntArray = np.zeros(brokers, np.int64)
        self._sums: FloatArray = np.zeros(brokers)
        self._bundles: dict[int, dict[str, float]] = {}
        self._exact: dict[int, float] = {}
        self._of_namespace: dict[str, list[tuple[int, str]]] = {}

    def add(self, bundle: str, broker: int, messages_per_s: float, topics: int) -> None:
        """A bundle was placed."""
        self.target[bundle] = broker
        self.topics[broker] += topics
        namespace = namespace_of(bundle)
        self._of_namespace.setdefault(namespace, []).append((broker, bundle))
        rates = self._bundles.setdefault(broker, {})
        rates[bundle] = messages_per_s
        self._sums[broker] += messages_per_s
        self._exact.pop(broker, None)

    def message_rates(self) -> FloatArray:
        """Long-term messages per second that were placed on each broker; shape (B,). The last bits
        are not Pulsar's; see ``exact_rate``.
        """
        return self._sums

    def exact_rate(self, broker: int) -> float:
        """The broker's rate, added up in the order of Pulsar's map."""
        if broker not in self._exact:
            rates, total = self._bundles.get(broker, {}), 0.0
            values = list(rates.values())
            order = (
                ConcurrentMapOrder().replace(list(rates)) if len(rates) > 2 else range(len(rates))
            )
            for place in order:
                total += values[place]
            self._exact[broker] = total
        return self._exact[broker]

    def of_namespace(self, namespace: str) -> list[tuple[int, str]]:
        """Brokers and bundles of one namespace."""
        return self._of_namespace.get(namespace, [])
