"""The brokers that the policies allow for a bundle, computed only for bundles that might move."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from quotabalance.planning.policies import IsolationRule, Policies
from quotaplane.model import BoolArray, IntArray
from quotaplane.topics.bundle_names import PULSARS_OWN, SYSTEM_NAMESPACE
from quotaplane.topics.bundle_names import namespace_of as namespace_of


class PlacementRules:
    """Brokers that bundles may be on. B brokers."""

    def __init__(
        self,
        policies: Policies,
        brokers: Sequence[str],
        live: BoolArray,
        bundles: Sequence[str],
        owner: IntArray,
    ) -> None:
        """Read the policies; ``bundles`` are sorted, ``owner`` is where each will be after earlier
        orders.
        """
        self._policies, self._brokers, self._live = policies, brokers, live
        self._bundles, self._owner = bundles, owner
        self._pinned: dict[bool, BoolArray] = {}
        self._by_rule: dict[IsolationRule | None, BoolArray] = {}
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

    def pinned(self, drained: bool) -> BoolArray:
        """Which bundles are not ours to move at all; shape (N,)."""
        if drained not in self._pinned:
            if self._policies.excluded_namespaces and not drained:
                mask = np.array([self.stays(name, drained) for name in self._bundles], np.bool_)
            else:
                # names are sorted, so those with one beginning are neighbours
                mask = np.zeros(len(self._bundles), np.bool_)
                for begin in PULSARS_OWN:
                    first = bisect_left(self._bundles, begin)
                    end = bisect_left(self._bundles, begin[:-1] + "0", first)
                    for place in range(first, end):
                        mask[place] = self.stays(self._bundles[place], drained)
            self._pinned[drained] = mask
        return self._pinned[drained]

    def allowed(self, bundle: str, source: int) -> BoolArray:
        """Brokers that a bundle may go to from its ``source``; shape (B,)."""
        namespace = namespace_of(bundle)
        mask: BoolArray = self._everywhere
        if self._policies.isolation:
            mask = self._open_to(namespace)
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

    def misplaced(self, takes: BoolArray) -> IntArray:
        """Bundles that are where an isolation rule forbids it, though a broker that takes bundles
        is allowed; their places, those of one namespace together.
        """
        if not self._policies.isolation:
            return np.zeros(0, np.int64)
        pinned, found = self.pinned(False), []
        mask, namespace = self._everywhere, ""
        for place, (bundle, owner) in enumerate(
            zip(self._bundles, self._owner.tolist(), strict=True)
        ):
            if not bundle.startswith(namespace) or bundle.rpartition("/")[0] + "/" != namespace:
                namespace = bundle.rpartition("/")[0] + "/"
                mask = self._open_to(namespace[:-1])
                mask = mask if (mask & takes).any() else self._everywhere
            if not mask[owner] and not pinned[place]:
                found.append(place)
        return np.array(found, np.int64)

    def _open_to(self, namespace: str) -> BoolArray:
        """Brokers that the isolation rules leave to a namespace; shape (B,)."""
        rule = self._policies.rule_of(namespace)
        if rule not in self._by_rule:
            self._by_rule[rule] = self._policies.allowed(namespace, self._brokers, self._live)
        return self._by_rule[rule]

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
        """Each broker's bundles by namespace, for each anti-affinity group."""
        found: dict[str, list[Counter[str]]] = defaultdict(
            lambda: [Counter() for _ in self._brokers]
        )
        for bundle, owner in zip(self._bundles, self._owner.tolist(), strict=True):
            namespace = namespace_of(bundle)
            group = self._policies.anti_affinity.get(namespace)
            if group is not None:
                found[group][owner][namespace] += 1
        return found
