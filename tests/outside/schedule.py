"""Which faults happen when: follows from a seed alone.

Faults of one lane (a job, the network of a client, a clock, ...) come one after the other; those of
different lanes overlap. In the quiet time at the end there are none, and none lasts into it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from tests.servers.proxy import KINDS

FIRST_S: Final = 5.0
_LEFT_OUT: Final = 0.2
"""Part of the lanes that each seed leaves out."""


class Fault(NamedTuple):
    """A fault: it begins ``at_s`` seconds after the start of the workload."""

    at_s: float
    for_s: float
    """0: it happens once, and nothing has to be ended."""
    kind: str
    target: str
    more: dict[str, Any]


class Lane(NamedTuple):
    """Faults that do not overlap with one another."""

    every_s: float
    """Mean time from the end of one to the beginning of the next."""
    make: Callable[[Random], Fault]
    """A fault at 0 s."""
    always: bool = False
    """No seed leaves it out."""


def schedule(seed: int, lanes: dict[str, Lane], faults_s: float) -> list[Fault]:
    """All faults between ``FIRST_S`` and ``faults_s``, by time of their beginning.

    Each seed leaves out some lanes, so that the others' faults are also met alone.
    """
    rng = Random(f"lanes/{seed}")
    faults: list[Fault] = []
    for name, lane in lanes.items():
        if rng.random() < _LEFT_OUT and not lane.always:
            continue
        own = Random(f"{name}/{seed}")
        at_s = FIRST_S + own.random() * lane.every_s
        while True:
            fault = lane.make(own)
            if at_s + fault.for_s > faults_s:
                break
            faults.append(fault._replace(at_s=round(at_s, 1)))
            at_s += fault.for_s + lane.every_s * (0.5 + own.random())
    return sorted(faults)


def network_fault(client: str, rng: Random) -> Fault:
    """The connections of a client are slow, silent or broken for a while."""
    kind = rng.choice(KINDS)
    way = rng.choice([(True, True), (True, False), (False, True)])
    more = {"to_server": way[0], "to_client": way[1], "delay_s": round(rng.uniform(0.2, 2), 1)}
    return Fault(0.0, rng.choice([2.0, 6.0, 15.0]), kind, client, more)


def process_fault(process: str, frozen_s: list[float], rng: Random) -> Fault:
    """A process is killed and started again, or frozen for a while."""
    if rng.random() < 0.5:
        return Fault(0.0, 0.0, "kill", process, {})
    return Fault(0.0, rng.choice(frozen_s), "freeze", process, {})


def clock_fault(clock: str, most_s: float, rng: Random) -> Fault:
    """A clock is wrong by some seconds for a while."""
    by_s = round(rng.uniform(-most_s, most_s), 1)
    return Fault(0.0, rng.choice([5.0, 20.0, 40.0]), "clock", clock, {"by_s": by_s})
