"""The faults of a run with three Kafka brokers that have the plugin."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from tests.outside.schedule import Fault, Lane, clock_fault, network_fault, process_fault

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
LEASE_S: Final = 20.0
CLOCK_S: Final = 2.0
"""Most by which the job's clock is wrong."""
HOT, SPREAD, FREE = "client=hot", "acme::spread", "free"
"""One broker is busy of ``HOT``, all are of ``SPREAD``; the clients of ``FREE`` are in no group."""
QUOTAS: Final = {HOT: 600_000.0, SPREAD: 600_000.0}
"""Bytes produced per second, at the start."""
WANTED: Final = {
    **{(HOT, broker): 2.5 * (broker == "broker-2") for broker in BROKERS},
    **{(SPREAD, broker): 1.0 for broker in BROKERS},
}
"""Parts of these quotas that are wanted at a broker at the start, and when all is quiet: more than
the highest quota in all."""


def _job_fault(rng: Random) -> Fault:
    kind = rng.choice(["kill", "freeze", "freeze", "new checkpoint"])
    for_s = rng.choice([3.0, 12.0, 30.0]) if kind == "freeze" else 0.0
    return Fault(0.0, for_s, kind, "job", {})


def _broker_fault(rng: Random) -> Fault:
    fault = process_fault(rng.choice(BROKERS), [3.0, 8.0, 15.0], rng)
    return fault if fault.for_s else fault._replace(for_s=rng.choice([2.0, 15.0]))


def _plugin_fault(broker: str, rng: Random) -> Fault:
    fault = network_fault(f"plugin of {broker}", rng)
    return fault._replace(for_s=rng.choice([4.0, 12.0, 35.0]))


def _put(rng: Random) -> Fault:
    group = rng.choice([*QUOTAS])
    quota = round(QUOTAS[group] * rng.choice([0.5, 0.7, 1.0, 1.5, 2.0]))
    return Fault(0.0, 0.0, "put", group, {"quota": quota})


def _want(rng: Random) -> Fault:
    more = {"group": rng.choice([*QUOTAS]), "part": rng.choice([0.0, 0.1, 0.4, 1.0, 2.0])}
    return Fault(0.0, 0.0, "want", rng.choice(BROKERS), more)


def lanes() -> dict[str, Lane]:
    """All lanes, by name."""
    found = {
        # A start takes half a minute.
        "job": Lane(50.0, _job_fault),
        "network of job": Lane(40.0, partial(network_fault, "job")),
        "clock of job": Lane(40.0, partial(clock_fault, "job", CLOCK_S)),
        # One at a time: of three controllers two must live.
        "brokers": Lane(30.0, _broker_fault),
        "quotas": Lane(15.0, _put, always=True),
        "demand": Lane(4.0, _want, always=True),
    }
    for broker in BROKERS:
        found[f"network of {broker}"] = Lane(45.0, partial(_plugin_fault, broker))
    return found
