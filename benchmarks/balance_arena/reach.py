"""The judgement of a cluster with policies: what its bundles could reach, and where they stand."""

from __future__ import annotations

import numpy as np

from benchmarks.balance_arena.world import CAPACITY_BYTES_PER_S, World
from quotabalance.planning.load_model import Workload
from quotabalance.planning.placement_rules import PlacementRules
from quotabalance.planning.policies import domain_codes
from quotabalance.planning.pool_means import Pools, broker_means
from quotaplane.model import BoolArray, FloatArray


def pools(world: World) -> Pools:
    """The brokers that isolation policies leave to each bundle, of those that are alive."""
    where = (world.brokers, world.alive, world.names, world.owner)
    found = PlacementRules(world.policies, *where, ports=False).pools
    return found._replace(open_to=found.open_to & world.alive)


def mean_use(world: World, size: FloatArray, allowed: Pools) -> FloatArray:
    """The mean that each broker's use is compared with; shape (B,), nan = not alive.

    It is the mean of the planner's objective, on true loads: bundles divided as evenly as their
    pools allow.

    Args:
        world: The cluster.
        size: Bytes per second of each bundle; shape (N,).
        allowed: As of ``pools``.
    """
    served = np.flatnonzero(world.owner >= 0)
    capacity = CAPACITY_BYTES_PER_S * world.size[:, None]
    work = Workload(
        ("bytes",),
        size[served, None],
        world.foreign[:, None] * capacity,
        capacity,
        np.zeros(1),
        np.zeros((3, 1)),
        True,
    )
    owner = world.owner[served]
    carried = np.bincount(owner, size[served], len(world.brokers))[:, None]
    of_served = Pools(allowed.open_to, allowed.of_bundle[served])
    means = broker_means(work, owner, carried, world.alive, world.alive, of_served)
    return np.where(world.alive, means.of_brokers, np.nan)


def forbidden(world: World, allowed: Pools) -> BoolArray:
    """Bundles on a broker that isolation policies forbid, though another is alive; shape (N,)."""
    served = world.owner >= 0
    somewhere = allowed.open_to.any(axis=1)[allowed.of_bundle]
    here: BoolArray = allowed.open_to[allowed.of_bundle, np.where(served, world.owner, 0)]
    return served & somewhere & ~here


def together(world: World) -> int:
    """Namespaces of anti-affinity groups in a failure domain, or on a broker, beyond an even
    division of their group.

    >>> from quotabalance.planning.policies import Policies
    >>> from benchmarks.balance_arena.world import build
    >>> world = build(np.random.default_rng(0), brokers=2, namespaces=3, bundles_each=1)
    >>> world.policies = Policies(anti_affinity={f"acme/app{i:04d}": "ha" for i in range(3)})
    >>> world.owner[:] = 0, 0, 1
    >>> unavoidable = together(world)
    >>> world.owner[:] = 0
    >>> unavoidable, together(world)
    (0, 1)
    """
    policies = world.policies
    groups = sorted({policies.group_of(name) for name in policies.anti_affinity})
    domains = domain_codes(world.brokers, policies.failure_domains)
    brokers = np.arange(len(world.brokers))
    of_namespace: dict[str, list[int]] = {}
    for bundle, owner in zip(world.bundles, world.owner.tolist(), strict=True):
        if owner >= 0 and bundle.namespace in policies.anti_affinity:
            of_namespace.setdefault(bundle.namespace, []).append(owner)
    found = 0
    for place in (brokers, *((domains,) if len(domains) else ())):
        places = len(np.unique(place[world.alive]))
        for group in groups:
            members = policies.namespaces_of(group)
            counts = np.zeros(place.max() + 1, np.int64)
            for name in members:
                counts[np.unique(place[of_namespace.get(name, [])])] += 1
            found += int(np.maximum(counts - -(-len(members) // places), 0).sum())
    return found
