"""The faults of a run with three Pulsar brokers and two enforcers."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from tests.outside.schedule import Fault, Lane, network_fault, process_fault

ENFORCERS: Final = ("enforcer-1", "enforcer-2")
CLIENTS: Final = ("job", *ENFORCERS)


def _new_topic(rng: Random) -> Fault:
    return Fault(0.0, 0.0, "new topic", "topics", {"rate": rng.choice([20.0, 100.0, 400.0])})


def _quota(rng: Random) -> Fault:
    return Fault(0.0, 0.0, "put", "cluster", {"quota": rng.choice([200, 300, 400])})


def _rest_fault(rng: Random) -> Fault:
    kind = rng.choice(["cut", "half-open", "trickle"])
    return Fault(0.0, rng.choice([3.0, 12.0]), kind, "rest", {"delay_s": 1.0})


def lanes() -> dict[str, Lane]:
    """All lanes, by name."""
    found = {
        "job": Lane(60.0, partial(process_fault, "job", [3.0, 20.0])),
        "broker": Lane(90.0, partial(process_fault, "broker", [3.0, 8.0])),
        "rest": Lane(45.0, _rest_fault),
        "topics": Lane(2.0, _new_topic, always=True),
        "quota": Lane(30.0, _quota, always=True),
    }
    for enforcer in ENFORCERS:
        found[enforcer] = Lane(45.0, partial(process_fault, enforcer, [3.0, 15.0]))
    for client in CLIENTS:
        found[f"network of {client}"] = Lane(40.0, partial(network_fault, client))
    return found
