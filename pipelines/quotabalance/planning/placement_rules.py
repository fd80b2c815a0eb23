"""The brokers that the policies allow for bundles."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from quotabalance.planning.isolation import IsolatedBrokers
from quotabalance.planning.policies import Policies, apart, domain_codes
from quotabalance.planning.pool_means import Pools
from quotaplane.model import BoolArray, IntArray
from quotaplane.topics.bundle_names import PULSARS_OWN, SYSTEM_NAMESPACE
from quotaplane.topics.bundle_names import namespace_of as namespace_of


class PlacementRules:
    """Brokers that bundles may be on. B brokers, N bundles."""

    def __init__(
        self,
        policies: Policies,
        brokers: Sequence[str],
        takes: BoolArray,
        bundles: Sequence[str],
        owner: IntArray,
        *,
        ports: bool = True,
    ) -> None:
        """Read the policies.

        Args:
            policies: of an administrator.
            brokers: names.
            takes: shape (B,): brokers that may get bundles.
            bundles: names, sorted.
            owner: shape (N,): where each bundle will be after earlier orders.
            ports: as in ``IsolatedBrokers``.
        """
        self._policies, self._brokers, self._takes = policies, brokers, takes
        self._bundles, self._owner = bundles, owner
        self._pinned: dict[bool, BoolArray] = {}
        self.restricts = bool(policies.isolation or policies.anti_affinity)
        """Whether some bundle may not go everywhere."""
        isolated = IsolatedBrokers(policies.isolation, brokers, ports=ports)
        self.isolation_without_brokers = isolated.without_brokers
        """Names of isolation policies that match no broker."""
        self.pools = self._pools(isolated)

    def _pools(self, isolated: IsolatedBrokers) -> Pools:
        everywhere = np.ones((1, len(self._brokers)), np.bool_)
        if not self._policies.isolation:
            return Pools(everywhere, np.zeros(len(self._bundles), np.int64))
        masks: dict[bytes, int] = {}
        open_to: list[BoolArray] = []
        namespaces = [namespace_of(bundle) for bundle in self._bundles]
        pool_of: dict[str, int] = {}
        for namespace in dict.fromkeys(namespaces):
            mask = isolated.open_to(namespace, self._takes)
            pool_of[namespace] = masks.setdefault(mask.tobytes(), len(masks))
            if len(masks) > len(open_to):
                open_to.append(mask)
        of_bundle = np.array([pool_of[namespace] for namespace in namespaces], np.int64)
        return Pools(np.stack(open_to) if open_to else everywhere, of_bundle)

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

    def allowed(self, bundle: int, source: int) -> BoolArray:
        """Brokers that a bundle may go to from its ``source``; shape (B,).

        On none of them, nor in its failure domain, are more other namespaces of its anti-affinity
        group than at the source.
        """
        mask, group = self._open_to(bundle), self.group_of(bundle)
        if not group:
            return mask
        others = self._held(group, without=namespace_of(self._bundles[bundle]))
        spread: BoolArray = mask & (others <= others[source])
        if len(self._domains):
            together = np.bincount(self._domains, others)[self._domains]
            spread &= together <= together[source]
        return spread

    def apart(self, bundle: int, among: BoolArray) -> BoolArray:
        """Those of some brokers that Pulsar's filter leaves of all that take bundles, for a bundle
        with an anti-affinity group; all if it leaves none of them; shapes (B,).
        """
        group = self.group_of(bundle)
        if not group:
            return among
        candidates = self._open_to(bundle) & self._takes
        left: BoolArray = among & apart(candidates, self._held(group), self._domains)
        return left if left.any() else among

    def group_of(self, bundle: int) -> str:
        """The anti-affinity group of a bundle; "" = none."""
        return self._policies.group_of(namespace_of(self._bundles[bundle]))

    def _open_to(self, bundle: int) -> BoolArray:
        mask: BoolArray = self.pools.open_to[self.pools.of_bundle[bundle]]
        return mask

    def _held(self, group: str, without: str = "") -> IntArray:
        """How many namespaces of an anti-affinity group each broker has; shape (B,)."""
        held: IntArray = np.zeros(len(self._brokers), np.int64)
        for namespace, count in self._groups[group].items():
            if namespace != without:
                held += count > 0
        return held

    def moved(self, bundle: int, source: int, target: int) -> None:
        """A move was decided."""
        group = self.group_of(bundle)
        if group:
            namespace = namespace_of(self._bundles[bundle])
            self._groups[group][namespace][[source, target]] += [-1, 1]

    def neighbours(self, source: int) -> BoolArray:
        """Brokers that share a pool with ``source``; shape (B,)."""
        pools = self.pools.open_to
        return np.asarray(pools[pools[:, source]].any(axis=0))

    def misplaced(self) -> IntArray:
        """Bundles that are where an isolation policy forbids it, though a broker that takes bundles
        is allowed; their places, those of one namespace together.
        """
        somewhere = np.asarray((self.pools.open_to & self._takes).any(axis=1))
        wrong = somewhere[self.pools.of_bundle] & self.forbidden()
        return np.flatnonzero(wrong & ~self.pinned(False))

    def forbidden(self) -> BoolArray:
        """Bundles that are where an isolation policy forbids it; shape (N,)."""
        return np.asarray(~self.pools.open_to[self.pools.of_bundle, self._owner])

    @cached_property
    def _domains(self) -> IntArray:
        return domain_codes(self._brokers, self._policies.failure_domains)

    @cached_property
    def _groups(self) -> dict[str, dict[str, IntArray]]:
        """How many bundles of each namespace each broker has, (B,), by anti-affinity group."""
        policies, brokers = self._policies, len(self._brokers)
        found: dict[str, dict[str, IntArray]] = {}
        for namespace in policies.anti_affinity:
            group = policies.group_of(namespace)
            if group:
                first = bisect_left(self._bundles, f"{namespace}/")
                end = bisect_left(self._bundles, f"{namespace}0", first)
                held = np.bincount(self._owner[first:end], minlength=brokers)
                found.setdefault(group, {})[namespace] = held
        return found
