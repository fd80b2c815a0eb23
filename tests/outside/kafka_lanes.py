"""The faults of a run with Kafka."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from tests.outside.schedule import Fault, Lane, clock_fault, network_fault, process_fault

AGENTS: Final = ("broker-1", "broker-2", "broker-3", "broker-4")
GROUPS: Final = {"orders": 120.0, "billing": 300.0, "search": 40.0}
TABLES: Final = ("rounds", "limits", "leaders", "resource_groups")


def _job_fault(rng: Random) -> Fault:
    kind = rng.choice(["kill", "freeze", "replace", "freeze and replace", "twin", "new checkpoint"])
    for_s = {"freeze": rng.choice([3.0, 12.0, 50.0]), "freeze and replace": 40.0}.get(kind, 0.0)
    return Fault(0.0, for_s, kind, "job", {})


def _table_fault(rng: Random) -> Fault:
    return Fault(0.0, rng.choice([2.0, 8.0]), "table away", rng.choice(TABLES), {})


def _access_fault(rng: Random) -> Fault:
    right = rng.choice(["write limits", "read reports"])
    return Fault(0.0, rng.choice([3.0, 12.0]), "access", right, {})


def _silence(_: Random) -> Fault:
    return Fault(0.0, 15.0, "silence", "agents", {})


def _put(rng: Random) -> Fault:
    group = rng.choice([*GROUPS])
    quota = round(GROUPS[group] * rng.choice([0.5, 0.8, 1.0, 1.5]), 1)
    return Fault(0.0, 0.0, "put", group, {"quota": quota})


def _want(rng: Random) -> Fault:
    group = rng.choice([*GROUPS])
    rate = round(GROUPS[group] * rng.choice([0.0, 0.1, 0.3, 1.0]), 1)
    return Fault(0.0, 0.0, "want", rng.choice(AGENTS), {"group": group, "rate": rate})


def lanes() -> dict[str, Lane]:
    """All lanes, by name."""
    found = {
        # A start and an epoch's learning take a minute: more often, and no limits are in force.
        "job": Lane(90.0, _job_fault),
        "network of job": Lane(25.0, partial(network_fault, "job")),
        "clock of job": Lane(25.0, partial(clock_fault, "job", 2.0)),
        "server": Lane(60.0, partial(process_fault, "server", [3.0, 10.0])),
        "tables": Lane(50.0, _table_fault),
        "access": Lane(60.0, _access_fault),
        "silence": Lane(90.0, _silence),
        "quotas": Lane(12.0, _put, always=True),
        "demand": Lane(3.0, _want, always=True),
    }
    for agent in AGENTS:
        found[f"process of {agent}"] = Lane(60.0, partial(process_fault, agent, [3.0, 20.0, 45.0]))
        found[f"network of {agent}"] = Lane(45.0, partial(network_fault, agent))
        found[f"clock of {agent}"] = Lane(45.0, partial(clock_fault, agent, 1.0))
    return found
