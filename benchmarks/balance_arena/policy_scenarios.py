"""The scenarios with policies: pools of brokers, and namespaces that are kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.balance_arena.scenario import Event, Made, Scenario
from benchmarks.balance_arena.world import CAPACITY_BYTES_PER_S, World, build, heat, place_balanced
from quotabalance.planning.isolation import IsolationPolicy
from quotabalance.planning.policies import Policies
from quotaplane.model import FloatArray, IntArray

_BROKERS: Final = 10
_RULE_MIN: Final = 30
_FULL_FROM_MIN: Final = 20
_FULL_MIN: Final = 60
_GROUP: Final = 5
_RACKS: Final = ((0, 1, 2, 3), (4, 5, 6), (7, 8, 9))


def _reserved(brokers: str) -> IsolationPolicy:
    return IsolationPolicy(namespaces=("gold/.*",), primary=(brokers,))


def _two_tenants(
    rng: np.random.Generator, gold_use: float, acme_use: float
) -> tuple[World, IntArray, IntArray]:
    """A cluster that nothing is placed in, and the bundles of two tenants.

    Args:
        rng: The source of all random numbers.
        gold_use: Load of one tenant, in brokers that it would fill.
        acme_use: Load of the other.
    """
    world = build(rng, _BROKERS, 75, 4, tenants=("gold", "acme", "acme"))
    is_gold = np.array([bundle.namespace.startswith("gold/") for bundle in world.bundles])
    of_topic = is_gold[world.bundle_of]
    factor = np.empty(len(of_topic))
    for mine, use in ((of_topic, gold_use), (~of_topic, acme_use)):
        factor[mine] = use * CAPACITY_BYTES_PER_S / world.rates[mine, :2].sum()
    world.rates = world.rates * factor[:, None]
    return world, np.flatnonzero(is_gold), np.flatnonzero(~is_gold)


def _balanced_pools(rng: np.random.Generator) -> Made:
    world, gold, acme = _two_tenants(rng, 4 * 0.6, 6 * 0.4)
    place_balanced(world, range(4), gold)
    place_balanced(world, range(4, _BROKERS), acme)
    return world, None


def _hot_pools(rng: np.random.Generator) -> Made:
    world, _ = _balanced_pools(rng)
    heat(rng, world, range(4), 1.5)
    heat(rng, world, range(4, _BROKERS), 1.6)
    return world, None


def _overlapping(rng: np.random.Generator) -> Made:
    world, gold, acme = _two_tenants(rng, 4 * 0.65, 4 * 0.5)
    place_balanced(world, range(4), gold)
    place_balanced(world, range(6, _BROKERS), acme)
    return world, None


def _pool_runs_full(rng: np.random.Generator) -> Made:
    world, gold, acme = _two_tenants(rng, 3 * 0.45, 7 * 0.45)
    place_balanced(world, range(3), gold)
    place_balanced(world, range(3, _BROKERS), acme)
    is_gold = np.isin(world.bundle_of, gold)

    def factors(minute: int) -> FloatArray:
        part = np.clip((minute - _FULL_FROM_MIN) / _FULL_MIN, 0.0, 1.0)
        return np.where(is_gold, 1.0 + part * (0.95 / 0.45 - 1.0), 1.0)

    return world, factors


def _mixed_tenants(rng: np.random.Generator) -> Made:
    world, _, _ = _two_tenants(rng, 3 * 0.45, 7 * 0.5)
    place_balanced(world, range(_BROKERS))
    return world, None


def _apart(rng: np.random.Generator) -> Made:
    """Each namespace on one broker, away from the others of its group; then one broker is hot."""
    world = build(rng, _BROKERS, 75, 4, use=0.45)
    size = world.bundle_rates()[:, :2].sum(axis=1)
    number = np.array([int(bundle.namespace[-4:]) for bundle in world.bundles])
    of_namespace = np.bincount(number, size)
    use = np.zeros(_BROKERS)
    taken = np.zeros((len(of_namespace) // _GROUP, _BROKERS), np.bool_)
    for namespace in np.argsort(-of_namespace).tolist():
        group, member = divmod(namespace, _GROUP)
        rack = np.array(_RACKS[(_GROUP * group + member) % _BROKERS % len(_RACKS)])
        free = rack[~taken[group, rack]]
        target = int(free[np.argmin(use[free])])
        world.owner[number == namespace] = target
        use[target] += of_namespace[namespace]
        taken[group, target] = True
    factor = np.where(world.owner[world.bundle_of] == 0, 1.7, 1.0)
    world.rates = world.rates * factor[:, None]
    return world, None


def _groups() -> Policies:
    return Policies(
        anti_affinity={f"acme/app{n:04d}": f"group-{n // _GROUP}" for n in range(75)},
        failure_domains={
            f"rack-{rack}": tuple(f"b{broker:03d}" for broker in brokers)
            for rack, brokers in enumerate(_RACKS)
        },
    )


def policy_scenarios(noise: Sequence[float]) -> list[Scenario]:
    """All of them; each sigma of noise has one."""
    two = Policies(isolation={"gold": _reserved("b00[0-3]")})
    three = Policies(isolation={"gold": _reserved("b00[0-2]")})
    overlapping = Policies(
        isolation={
            "gold": _reserved("b00[0-5]"),
            "acme": IsolationPolicy(namespaces=("acme/.*",), primary=("b00[4-9]",)),
        }
    )
    return [
        Scenario(
            # Four brokers are reserved for a tenant, and used more than the other six. One broker
            # of each pool carries 1.5 or 1.6 times its pool's mean.
            "two pools",
            _hot_pools,
            bound=True,
            policies=((0, two),),
        ),
        Scenario(
            # Two tenants on four brokers each, with different loads. Between them two brokers that
            # both may use are new.
            "overlapping pools",
            _overlapping,
            bound=True,
            policies=((0, overlapping),),
        ),
        Scenario(
            # The load of the tenant with three reserved brokers doubles within an hour, to 95 % of
            # them; there is nowhere to go.
            "pool runs full",
            _pool_runs_full,
            balanced=True,
            policies=((0, three),),
        ),
        Scenario(
            # In minute 30 three of ten brokers are reserved for a tenant, whose bundles are
            # everywhere. Pulsar unloads nothing then (unload scope "none").
            "rule added under load",
            _mixed_tenants,
            judged_from=_RULE_MIN,
            bound=True,
            changes=(_RULE_MIN,),
            policies=((_RULE_MIN, three),),
        ),
        Scenario(
            # The same, and Pulsar unloads the tenant's bundles when the rule is set.
            "rule added, unloaded",
            _mixed_tenants,
            events=(Event(_RULE_MIN, "isolated unloads"),),
            judged_from=_RULE_MIN,
            policies=((_RULE_MIN, three),),
        ),
        Scenario(
            # Groups of five namespaces that are kept apart, three racks; bundles of one broker
            # carry 1.7 times as much.
            "anti-affinity",
            _apart,
            policies=((0, _groups()),),
        ),
        *(
            Scenario(
                # Nothing happens: two balanced pools, bursts of this sigma in every bundle.
                f"two pools, noise {sigma:g}",
                _balanced_pools,
                sigma=sigma,
                balanced=True,
                policies=((0, two),),
            )
            for sigma in noise
        ),
    ]
