"""Random isolation policies, groups and domains, and what ours allows by them beside Pulsar's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from quotabalance.agent.cluster_view import isolation_policies
from quotabalance.planning.placement_rules import PlacementRules
from quotabalance.planning.policies import Policies, read_policies
from quotabalance.pulsar_admin.namespace_policies import read_isolation
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader_placement import LeaderPlacement
from quotabalance.stock.placements import new_placement
from quotabalance.stock.stock_settings import stock_settings
from quotabalance.stock.transfer_policies import TransferRules
from quotaplane.model import BoolArray
from tests.fuzz.rest_targets import done, with_answers
from tests.jvm.transfer_cases import pick_all, random_policies, stock_round

Json = dict[str, Any]

HOSTS: Final = (
    *("b-1.eu.example", "b-2.eu.example", "b-11.eu.example", "b-1xeu.example", "B-1.eu.example"),
    *("10.0.0.1", "10.0.0.11", "[fe80::1]", "localhost", "pulsar-broker-0.pulsar.svc"),
)
NAMESPACES: Final = (
    *("acme/orders", "acme/orders-2", "acme/a.b", "acme/a-b", "acme/a=b:c_d", "Acme/orders"),
    *("acme/global/orders", "acme/eu-1/orders", "public/default"),
)
WHOLE: Final = "0x00000000_0xffffffff"


def random_expression(rng: np.random.Generator, names: Sequence[str]) -> str:
    """A regular expression that matches one or several of the names, or almost does."""
    name, other = (str(text) for text in rng.choice(names, 2))
    cut = int(rng.integers(0, len(name) + 1))
    forms = (
        name,
        re.escape(name),
        rf"\Q{name}\E",
        rf"\Q{name[:cut]}\E.*",
        f"^{re.escape(name)}$",
        re.escape(name[:cut]) + ".*",
        ".*" + re.escape(name[cut:]),
        f"{re.escape(name)}|{re.escape(other)}",
        f"({re.escape(name)}|{re.escape(other[:cut])}.+)",
        re.sub(r"\d+", r"\\d+", re.escape(name)),
        re.sub(r"\d", "[0-2]", re.escape(name)),
        re.sub(r"[a-z]+", r"\\w+", re.escape(name)),
        re.sub(r"[-.]", "[-._]?", name.replace("[", r"\[")),
        "(?i)" + re.escape(name.upper()),
        f"(?!{re.escape(other)}).*",
        f".{{{cut},{len(name)}}}",
        "",
        *([".*"] if rng.random() < 0.3 else [name]),
    )
    return str(rng.choice(np.array(forms, object)))


_WRITTEN: Final = r"""
a b z 9 . - / _ A # é : = & && [ ] [^ ^ $ | ( ) (?: (?= (?! (?<= (?<! (?i) (?i: [a b] a-z -- ~~
* + ? *? ++ {2} {1,} {,2} {0,1} { } , (?P<n> (?<n> (?> (?x) (?s)
\. \d \W \s \b \A \Z \z \1 \0 \012 \x61 \h \Q \E \- \] \[ \\"""
_PIECES: Final = (*_WRITTEN.split(), " ", "\u212a")


def random_pieces(rng: np.random.Generator) -> str:
    """A text that may be a regular expression, of all that Java or Python reads as one."""
    few = rng.choice(np.array(_PIECES, object), 6)  # so that brackets have a chance to be closed
    return "".join(str(piece) for piece in rng.choice(few, rng.integers(1, 9)))


def varied_policies(rng: np.random.Generator, brokers: list[str], ports: bool = False) -> Json:
    """Policies of all kinds for some of ``NAMESPACES`` and of the other cases' namespaces."""
    hosts = brokers if ports else [broker.rpartition(":")[0] for broker in brokers]
    namespaces = [*NAMESPACES, *(f"acme/ns-{n}" for n in range(9))]

    def some(names: Sequence[str], least: int) -> list[str]:
        return [random_expression(rng, names) for _ in range(rng.integers(least, 4))]

    isolation = {
        f"policy-{rng.integers(1000)}": {
            "namespaces": some(namespaces, 1),
            "primary": some(hosts, 1),
            "secondary": some(hosts, 0),
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {
                    "min_limit": str(rng.choice(["0", "1", "2", "3", "-1", "+2", "2147483647"])),
                    "usage_threshold": "80",
                },
            },
        }
        for _ in range(rng.integers(0, 5))
    }
    groups = {name: str(rng.choice(["Ha", "hA", "other", " "])) for name in namespaces}
    some_groups = pick_all(rng, namespaces) if rng.random() < 0.7 else []
    return random_policies(rng, brokers) | {
        "isolation": isolation,
        "anti_affinity": {name: groups[name] for name in some_groups},
        "failure_domains": {f"rack-{n}": pick_all(rng, brokers) for n in range(rng.integers(0, 4))},
    }


def random_policy_case(seed: int) -> Json:
    """Brokers, some of them unavailable, their bundles, and policies."""
    rng = np.random.default_rng(seed)
    brokers = sorted({f"{rng.choice(HOSTS)}:{rng.choice([8080, 8443])}" for _ in range(12)})
    bundles = [f"{rng.choice(NAMESPACES)}/0x{n:08x}_0x{n + 1:08x}" for n in range(24)]
    rarely = rng.random() < 0.5  # then many brokers have nothing of a group
    ports = bool(rng.random() < 0.1)
    return {
        "kind": "policies",
        "conf": {"failureDomainsEnabled": bool(rng.random() < 0.5)},
        "ports": ports,
        "policies": varied_policies(rng, brokers, ports),
        "namespaces": NAMESPACES,
        "brokers": brokers,
        "available": [name for name in brokers if rng.random() < 0.8],
        "owners": {
            name: str(rng.choice(brokers[:3] if rarely else brokers)) for name in sorted(bundles)
        },
    }


def allowed_difference(case: Json, said: Json) -> str:
    """The first difference to what Pulsar allows; "" = none."""
    printed = with_answers(said["rest"].encode())
    of_cluster = isolation_policies(done(read_isolation(printed, "test")))
    policies = read_policies(case["policies"])
    if list(of_cluster.isolation.items()) != list(policies.isolation.items()):
        return "the REST API's policies differ from the given ones"
    for namespace in case["namespaces"]:
        theirs, bundle = said[namespace], f"{namespace}/{WHOLE}"
        if theirs["modular"] != theirs["extensible"]:
            return f"{namespace}: Pulsar's managers differ: {theirs}"
        ours = {"executor": allowed(case, of_cluster, namespace, ports=False)}
        if not case["ports"]:  # else ours may match more
            ours["planner"] = allowed(case, policies, namespace)
        for name, found in ours.items():
            if found != theirs["modular"]:
                return f"{namespace}: {name} allows {found}, Pulsar {theirs['modular']}"
        stock = stocks(case, policies, bundle)
        apart = [theirs["modular apart"] or theirs["modular"], theirs["extensible apart"]]
        if stock != apart:
            return f"{namespace}: stock model {stock}, Pulsar {apart}"
        kept_apart = planner_keeps_apart(case, policies, namespace)
        if not case["ports"] and kept_apart not in (None, apart[0]):
            return f"{namespace}: planner prefers {kept_apart}, Pulsar {apart[0]}"
    return ""


def allowed(case: Json, policies: Policies, namespace: str, *, ports: bool = True) -> list[str]:
    """Available brokers that ``PlacementRules`` allow by isolation."""
    alone = policies.model_copy(update={"anti_affinity": {}})
    takes, owner = available(case), np.zeros(1, np.int64)
    one = (f"{namespace}/{WHOLE}",)
    rules = PlacementRules(alone, case["brokers"], takes, one, owner, ports=ports)
    return names(case["brokers"], rules.allowed(0, 0) & takes)


def planner_keeps_apart(case: Json, policies: Policies, namespace: str) -> list[str] | None:
    """Brokers that the planner prefers for a bundle of the namespace; None = there is none."""
    bundles, brokers = tuple(case["owners"]), case["brokers"]
    mine = [at for at, name in enumerate(bundles) if name.startswith(f"{namespace}/0x")]
    if not mine:
        return None
    if not case["conf"]["failureDomainsEnabled"]:
        policies = policies.model_copy(update={"failure_domains": {}})
    owner = np.array([brokers.index(name) for name in case["owners"].values()], np.int64)
    takes = available(case)
    rules = PlacementRules(policies, brokers, takes, bundles, owner)
    open_ = rules.pools.open_to[rules.pools.of_bundle[mine[0]]] & takes
    return names(brokers, rules.apart(mine[0], open_))


def available(case: Json) -> BoolArray:
    """Which brokers are there."""
    return np.array([name in case["available"] for name in case["brokers"]], np.bool_)


def names(brokers: Sequence[str], mask: BoolArray) -> list[str]:
    """The brokers in the mask, sorted."""
    return sorted(brokers[place] for place in np.flatnonzero(mask).tolist())


def stocks(case: Json, policies: Policies, bundle: str) -> list[list[str]]:
    """Brokers that the stock model of each manager leaves: modular, extensible."""
    settings = stock_settings(case["conf"] | {"loadBalancerDistributeBundlesEvenlyEnabled": False})
    view = _view(case)
    modular = LeaderPlacement(
        new_placement("LeastResourceUsageWithWeight", settings), settings, policies
    )
    modular.begin(view)
    rules = TransferRules(view.load, settings, policies)
    there = np.ones(len(view.load.brokers), np.bool_)
    left = rules.candidates(bundle, there)
    return [modular.choices(bundle), names(view.load.brokers, left)]


def _view(case: Json) -> StockRound:
    """The available brokers, equally loaded."""
    idle: Json = {"usage": [1.0] * 5, "limit": [100.0] * 5}
    brokers = {
        name: idle
        | {"bundles": {b: [1.0] * 6 for b, owner in case["owners"].items() if owner == name}}
        for name in case["available"]
    }
    return stock_round({"brokers": brokers})
