"""How many bundles of a namespace each broker has."""

from __future__ import annotations

import numpy as np

from quotaplane.balance.cluster_load import ClusterLoad
from quotaplane.model import IntArray
from quotaplane.topics.bundle_names import namespace_of


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
