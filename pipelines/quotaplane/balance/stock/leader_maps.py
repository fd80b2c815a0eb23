"""The leader's two maps, of brokers and of bundles: the order in which strategies see them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from quotaplane.balance.cluster_load import ClusterLoad
from quotaplane.balance.stock.java import (
    ConcurrentMapOrder,
    HashArray,
    HashMapOrder,
    spread,
    string_hashes,
    table_capacity,
)
from quotaplane.model import BoolArray, IntArray
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
    them. What is gone is removed after that.
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
