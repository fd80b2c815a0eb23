"""Which bundles TransferShedder may move at all, and between which brokers (``isTransferable``)."""

from __future__ import annotations

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.isolation import IsolatedBrokers
from quotabalance.planning.policies import Policies, apart, domain_codes
from quotabalance.stock.broker_versions import newest
from quotabalance.stock.leader_maps import is_never_shed
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import BoolArray, IntArray
from quotaplane.topics.bundle_names import SYSTEM_NAMESPACE, namespace_of


class TransferRules:
    """The extensible manager's filters of brokers, for one round."""

    def __init__(
        self, load: ClusterLoad, settings: StockSettings, policies: Policies | None
    ) -> None:
        self._load = load
        self._settings = settings
        self._policies = policies or Policies()
        isolation = self._policies.isolation
        self._isolation = IsolatedBrokers(isolation, load.brokers, ports=False)
        everywhere = np.ones(len(load.brokers), np.bool_)
        self._base, self._comparable = self._brokers_for_all(everywhere)
        self._namespaces: dict[str, tuple[bool, bool]] = {}
        self._of_group: dict[str, IntArray] = {}

    def _brokers_for_all(self, available: BoolArray) -> tuple[BoolArray, bool]:
        """Brokers that the filters leave which are the same for every bundle, and whether the
        versions can be compared (if not, nothing can be moved).
        """
        load, base = self._load, available
        topics = load.topics if len(load.topics) else np.zeros(len(load.bundles))
        held = np.bincount(load.owner, topics, len(load.brokers))
        base = base & (held < self._settings.loadBalancerBrokerMaxTopics)
        if self._settings.preferLaterVersions and base.any():
            found = newest(self._load.brokers, self._policies.broker_versions, base)
            return (base, False) if found is None else (found, True)
        return base, True

    def is_reported(self, bundle: str) -> bool:
        """Whether its broker reports the bundle at all (``TopKBundles``): not one of Pulsar's own
        namespaces, and by default none with policies.
        """
        system, has_policies = self._facts(namespace_of(bundle))
        if system:
            return False
        return not has_policies or self._settings.loadBalancerSheddingBundlesWithPoliciesEnabled

    def is_transferable(self, bundle: str, source: int, target: int) -> bool:
        """Whether policies and filters let the bundle go from a broker to another one."""
        namespace = namespace_of(bundle)
        _, has_policies = self._facts(namespace)
        if has_policies and not self._settings.loadBalancerSheddingBundlesWithPoliciesEnabled:
            return False
        if not self._comparable:
            return False
        candidates = self._open(namespace, self._base)
        if not candidates[target]:
            return False
        if self._settings.loadBalancerTransferEnabled:
            return target != source
        return bool(np.count_nonzero(candidates) > candidates[source])

    def candidates(self, bundle: str, available: BoolArray) -> BoolArray:
        """Brokers that may get a bundle that is looked up; shapes (B,). Versions that can't be
        compared are passed over then.
        """
        namespace = namespace_of(bundle)
        base = self._brokers_for_all(available)[0]
        return self._open(namespace, base)

    def _open(self, namespace: str, base: BoolArray) -> BoolArray:
        apart_ = self._apart(namespace, base)
        return apart_ & self._isolation.open_to(namespace, apart_)

    def _facts(self, namespace: str) -> tuple[bool, bool]:
        """Whether it is one of Pulsar's own, and whether it has policies."""
        if namespace not in self._namespaces:
            system = namespace == SYSTEM_NAMESPACE or is_never_shed(f"{namespace}/")
            has_policies = self._isolation.is_isolated(namespace) or bool(
                self._policies.group_of(namespace)
            )
            self._namespaces[namespace] = system, has_policies
        return self._namespaces[namespace]

    def _apart(self, namespace: str, candidates: BoolArray) -> BoolArray:
        """Brokers with the fewest *bundles* of the namespace's anti-affinity group. (The modular
        manager counts namespaces.)
        """
        group = self._policies.group_of(namespace)
        if not group:
            return candidates
        if group not in self._of_group:
            members = set(self._policies.namespaces_of(group))
            held = [namespace_of(bundle) in members for bundle in self._load.bundles]
            owners = self._load.owner[np.array(held, bool)]
            self._of_group[group] = np.bincount(owners, minlength=len(self._load.brokers))
        domains = self._policies.failure_domains if self._settings.failureDomainsEnabled else {}
        codes = domain_codes(self._load.brokers, domains)
        return apart(candidates, self._of_group[group], codes)
