"""A cluster as it is now, for the check of a plan: fresh owners, and the last known rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from quotabalance.planning.cluster_load import RATES, RESOURCES, ClusterLoad
from quotabalance.planning.policies import Policies
from quotabalance.planning.policies import read_policies as checked_policies
from quotabalance.pulsar_admin.broker_settings import BrokerSettings, read_broker_settings
from quotabalance.pulsar_admin.broker_stats import BrokerStats, read_broker_stats
from quotabalance.pulsar_admin.bundle_actions import owned_bundles
from quotabalance.pulsar_admin.namespace_policies import (
    anti_affinity_group,
    read_failure_domains,
    read_isolation,
)
from quotaplane.agents.pace import Pace, at_once
from quotaplane.errors import ClusterError, InputError
from quotaplane.model import FloatArray
from quotaplane.pulsar_admin.active_brokers import BrokerAddress, look_up_broker
from quotaplane.pulsar_admin.bulk import READS_PER_S, read_names
from quotaplane.pulsar_admin.rest import Rest

_AT_ONCE: Final = 8


class ClusterView(NamedTuple):
    """A cluster as it is now."""

    addresses: dict[str, BrokerAddress]
    """By broker."""
    load: ClusterLoad
    policies: Policies
    """Its isolation policies."""
    settings: dict[str, BrokerSettings]
    """By broker."""


async def read_cluster(rest: Rest, cluster: str) -> ClusterView:
    """Read brokers, owners, rates and isolation policies; changes nothing.

    Raises:
        ClusterError: a part can't be read: then nothing can be checked.
    """
    brokers = sorted(await read_names(rest, Rest.path("brokers")))
    addresses: dict[str, BrokerAddress] = {}
    owned: dict[str, set[str]] = {}
    stats: dict[str, BrokerStats] = {}
    settings: dict[str, BrokerSettings] = {}

    async def read(broker: str) -> None:
        addresses[broker] = await look_up_broker(rest, broker)
        owned[broker] = await owned_bundles(rest, cluster, broker)
        url = addresses[broker].url
        settings[broker] = await read_broker_settings(rest, url)
        extensible = settings[broker].extensible
        stats[broker] = await read_broker_stats(rest, url, extensible=extensible)

    await at_once(_AT_ONCE, read, brokers)
    rules = await read_isolation(rest, cluster)
    load = joined(brokers, [owned[name] for name in brokers], [stats[name] for name in brokers])
    policies = isolation_policies(rules)
    return ClusterView({name: addresses[name] for name in brokers}, load, policies, settings)


async def read_policies(rest: Rest, cluster: str) -> dict[str, Any]:
    """A cluster's isolation policies, anti-affinity groups and failure domains, as the setting
    balance.policies.

    One request for each namespace, at most ``READS_PER_S``.

    Raises:
        ClusterError: a part can't be read, or can't be expressed.
    """
    policies = isolation_policies(await read_isolation(rest, cluster))
    pace, groups = Pace(READS_PER_S), dict[str, str]()
    namespaces: list[str] = []
    for tenant in await read_names(rest, Rest.path("tenants")):
        await pace.take()
        namespaces += await read_names(rest, Rest.path("namespaces", tenant))

    async def read(namespace: str) -> None:
        await pace.take()
        group = await anti_affinity_group(rest, namespace)
        if group is not None:
            groups[namespace] = group

    await at_once(_AT_ONCE, read, namespaces)
    return {
        "isolation": policies.model_dump(mode="json")["isolation"],
        "anti_affinity": dict(sorted(groups.items())),
        "failure_domains": await read_failure_domains(rest, cluster),
    }


def joined(
    brokers: Sequence[str], owned: Sequence[set[str]], stats: Sequence[BrokerStats]
) -> ClusterLoad:
    """Owners of now with the last measured rates. A bundle without statistics has rates of 0.

    After a move two brokers may have statistics of a bundle: those of its owner count.

    >>> stats = [BrokerStats(np.zeros(5), np.zeros(5), [name], np.full((1, 4), rate),
    ...     np.array([1]), np.array([1]), b"") for name, rate in (("x", 5.0), ("x", 7.0))]
    >>> load = joined(["b1", "b2"], [set(), {"x", "y"}], stats)
    >>> load.bundles, load.owner.tolist(), load.rates[:, 0].tolist()
    (('x', 'y'), [1, 1], [7.0, 0.0])
    """
    owner = {bundle: at for at, names in enumerate(owned) for bundle in names}
    rates: dict[str, FloatArray] = {}
    for at, one in enumerate(stats):
        for bundle, row in zip(one.bundles, one.rates, strict=True):
            if bundle not in rates or owner.get(bundle) == at:
                rates[bundle] = row
    bundles = sorted(owner)
    nothing = np.zeros(len(RATES))
    return ClusterLoad(
        tuple(brokers),
        np.array([one.usage for one in stats]).reshape(-1, len(RESOURCES)),
        np.array([one.limit for one in stats]).reshape(-1, len(RESOURCES)),
        tuple(bundles),
        np.array([owner[bundle] for bundle in bundles], np.int64),
        np.array([rates.get(bundle, nothing) for bundle in bundles]).reshape(-1, len(RATES)),
    )


def isolation_policies(policies: Mapping[str, Mapping[str, Any]]) -> Policies:
    """A cluster's isolation policies, checked.

    Raises:
        ClusterError: one has another form, or an expression that Python may read otherwise than
            Java.
    """
    try:
        return checked_policies({"isolation": policies})
    except InputError as error:
        raise ClusterError(f"an isolation policy of the cluster can't be used: {error}") from None
