"""Where each bundle may be, as the policies say; looked up only for bundles that might move."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from quotaplane.balance.bundle_names import PULSARS_OWN, SYSTEM_NAMESPACE
from quotaplane.balance.bundle_names import namespace_of as namespace_of
from quotaplane.balance.policies import Policies
from quotaplane.model import BoolArray, IntArray


class BundleFences:
    """Brokers that bundles may be on. B brokers."""

    def __init__(
        self,
        policies: Policies,
        brokers: Sequence[str],
        live: BoolArray,
        bundles: Sequence[str],
        owner: IntArray,
    ) -> None:
        """Read the policies; ``owner`` is where each bundle will be after earlier orders."""
        self._policies, self._brokers, self._live = policies, brokers, live
        self._bundles, self._owner = bundles, owner
        self._by_rule: dict[str, BoolArray] = {}
        self.restricts = bool(policies.isolation or policies.anti_affinity)
        """Whether some bundle may not go everywhere."""
        self._everywhere: BoolArray = np.ones(len(brokers), np.bool_)

    def stays(self, bundle: str, drained: bool) -> bool:
        """Whether the bundle may not leave its broker at all.

        Pulsar's own namespaces stay, but ``pulsar/system`` leaves a broker that is drained.
        """
        if bundle.startswith(PULSARS_OWN):
            return not (drained and namespace_of(bundle) == SYSTEM_NAMESPACE)
        if drained or not self._policies.excluded_namespaces:
            return False
        return self._policies.is_excluded(namespace_of(bundle))

    def allowed(self, bundle: str, source: int) -> BoolArray:
        """Brokers that a bundle may go to from its ``source``; shape (B,)."""
        namespace = namespace_of(bundle)
        mask: BoolArray = self._everywhere
        if self._policies.isolation:
            if namespace not in self._by_rule:
                allowed = self._policies.allowed(namespace, self._brokers, self._live)
                self._by_rule[namespace] = allowed
            mask = self._by_rule[namespace]
        group = self._policies.anti_affinity.get(namespace)
        if group is None:
            return mask
        others = np.array(
            [
                sum(1 for name, count in held.items() if count > 0 and name != namespace)
                for held in self._groups[group]
            ]
        )
        spread: BoolArray = mask & (others <= others[source])
        return spread

    def moved(self, bundle: str, source: int, target: int) -> None:
        """A move was decided."""
        if not self._policies.anti_affinity:
            return
        namespace = namespace_of(bundle)
        group = self._policies.anti_affinity.get(namespace)
        if group is not None:
            self._groups[group][source][namespace] -= 1
            self._groups[group][target][namespace] += 1

    @cached_property
    def _groups(self) -> dict[str, list[Counter[str]]]:
        """Of each anti-affinity group, each broker's bundles by namespace."""
        found: dict[str, list[Counter[str]]] = defaultdict(
            lambda: [Counter() for _ in self._brokers]
        )
        for bundle, owner in zip(self._bundles, self._owner.tolist(), strict=True):
            namespace = namespace_of(bundle)
            group = self._policies.anti_affinity.get(namespace)
            if group is not None:
                found[group][owner][namespace] += 1
        return found
