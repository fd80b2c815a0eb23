"""The evidence from outside: the agents' journals, the limits topic, changes of quotas, exits.

An agent's journal has a line for each of its looks at its limits, in JSON:

    {"t": 1790000000123, "off": 1500, "start": 1790000000001, "demand": {"orders": 50.0},
     "limits": {"orders": [40.0, 1790000030123, 1790000000, 17]}}

``t`` is the true time in ms, ``off`` what the agent's own clock is ahead of it; of each limit: what
the agent may use per second now, and from the message that it has: lease end (by the agent's own
clock), epoch and seq. "end": true: the process has been killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Held(NamedTuple):
    """Limit that an agent has of one group."""

    limit: float
    """Per second, as the client library says; inf: unlimited."""
    until_ms: int
    """Lease end by the true time."""
    epoch: int
    """-1: no message yet."""
    seq: int


class Look(NamedTuple):
    """A line of an agent's journal."""

    t_ms: int
    started_at_ms: int
    held: dict[str, Held]
    demand: dict[str, float]
    ended: bool = False
    """The process has been killed, and uses nothing."""


class Published(NamedTuple):
    """A group's limit in a message of the limits topic, in the topic's order."""

    place: int
    t_ms: int
    """When the server appended it; true time."""
    broker: str
    group: str
    epoch: int
    seq: int
    issued_at_ms: int
    lease_ms: int
    started_at_ms: int
    limit: float
    """inf: unlimited; -1: the group is removed."""
    safe: float | None


class Put(NamedTuple):
    """A change of a quota, by ``quotaplane groups put``."""

    begun_ms: int
    ended_ms: int
    group: str
    quota: float
    acknowledged: bool


class Exit(NamedTuple):
    """A process that ended by itself."""

    t_ms: int
    process: str
    code: int
    line: str


@dataclass(kw_only=True)
class Run:
    """The part of the evidence that all runs have."""

    lease_ms: int
    faults_end_ms: int
    """When the last fault was over."""
    end_ms: int
    exits: list[Exit] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    """Complaints of ``doctor``, ``audit`` and ``replay`` at the end."""


@dataclass(kw_only=True)
class PutRun(Run):
    """A run whose quotas ``quotaplane groups put`` changed."""

    quotas: dict[str, float]
    """At the start."""
    puts: list[Put] = field(default_factory=list)
    table: dict[str, float] = field(default_factory=dict)
    """Quotas at the end, as ``quotaplane groups list`` prints them."""
    published: list[Published] = field(default_factory=list)


@dataclass(kw_only=True)
class Evidence(PutRun):
    """Everything that was seen of a run with Kafka."""

    stale_ms: int
    """Most by which clocks may differ: ``brokers.stale_after_intervals`` intervals."""
    looks: dict[str, list[Look]] = field(default_factory=dict)


def read_journal(lines: Iterable[str]) -> list[Look]:
    """The looks of an agent, in their order; a last line that is cut off is left out."""
    looks = []
    for line in lines:
        if not line.endswith("\n"):
            break
        raw: dict[str, Any] = json.loads(line)
        off = raw.get("off", 0)
        held = {
            group: Held(float(limit), until if epoch < 0 else until - off, epoch, seq)
            for group, (limit, until, epoch, seq) in raw.get("limits", {}).items()
        }
        looks.append(
            Look(raw["t"], raw.get("start", 0), held, raw.get("demand", {}), raw.get("end", False))
        )
    return sorted(looks, key=lambda look: look.t_ms)
