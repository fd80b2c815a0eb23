"""The scenarios that every contender is put through: one tenant's partitions on three brokers, what
its clients want there, and one event each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from benchmarks.quota_proof.load import Arrivals

BASE_S: Final = 10.0
"""Recorded before the event."""
WATCH_S: Final = 50.0
"""Recorded after it."""
GONE_S: Final = 300.0
"""How long the job is away in ``gone``."""
LEASE_S: Final = 120.0
_START_S: Final = 45.0
"""A start of the job takes about so long on two cores."""

Event: TypeAlias = Literal["", "kill", "elect", "restart", "job_gone"]


@dataclass(frozen=True)
class Scenario:
    """A tenant is one client id. Rates are in kB per second as brokers count them, headers
    included; a client produces, or with ``fetch`` reads.
    """

    name: str
    title: str
    quota: float
    before: tuple[float, ...]
    """Wanted at the partition of each broker until the event."""
    after: tuple[float, ...]
    payload_bytes: int = 5_000
    fetch: bool = False
    """Consumers read what an unlimited client produces; one that wakes has ``backlog_mb`` to read,
    as fast as it may."""
    backlog_mb: float = 0.0
    arrivals: Arrivals = "even"
    quota_after: float | None = None
    tenants: int = 1
    """Each of them wants all of this, and has this quota; the figures are the worst one's."""
    event: Event = ""
    """``kill``: the second broker dies (SIGKILL). ``elect``: it is there again, and partitions
    return to their preferred leaders. ``restart``: it is stopped cleanly and started again."""
    copies: int = 1
    """Replicas of a partition; with two, another broker leads when one dies."""
    before_control: bool = False
    """Clients want ``after`` while nobody limits them; the event is the take-over."""

    @property
    def watch_s(self) -> float:
        """Recorded after the event."""
        return WATCH_S + (GONE_S + _START_S if self.event == "job_gone" else 0.0)

    @property
    def dimension(self) -> str:
        return "dispatch_bytes_per_s" if self.fetch else "publish_bytes_per_s"

    @property
    def clients(self) -> tuple[str, ...]:
        """Client ids of its tenants."""
        if self.tenants == 1:
            return (self.name,)
        return tuple(f"{self.name}-{number:02d}" for number in range(self.tenants))


SWITCHED_ON: Final = (
    Scenario(
        "switched_on",
        "Switched on under load",
        600,
        (400, 400, 300),
        (400, 400, 300),
        before_control=True,
    ),
)

CHANGING: Final = (
    Scenario("idle_wakes", "An idle broker wakes", 600, (400, 400, 0), (400, 400, 300)),
    Scenario("grows", "80/20 becomes 80/60", 500, (400, 100, 0), (400, 300, 0)),
    Scenario(
        "halved", "The quota is halved", 600, (400, 400, 400), (400, 400, 400), quota_after=300
    ),
    Scenario(
        "doubled", "The quota is doubled", 600, (400, 400, 400), (400, 400, 400), quota_after=1200
    ),
    Scenario("hot", "Hot on one broker only", 600, (200, 0, 0), (700, 0, 0)),
    Scenario(
        "poisson",
        "Poisson producers: one wakes beside two small ones",
        600,
        (100, 150, 0),
        (100, 150, 600),
        arrivals="poisson",
    ),
    Scenario(
        "on_off",
        "On-off producers: one wakes beside two small ones",
        600,
        (100, 150, 0),
        (100, 150, 600),
        arrivals="on_off",
    ),
    Scenario(
        "small",
        "Messages of 100 bytes: an idle broker wakes",
        300,
        (200, 200, 0),
        (200, 200, 150),
        payload_bytes=100,
    ),
    Scenario(
        "large",
        "Messages of 100 kB: an idle broker wakes",
        3000,
        (2000, 2000, 0),
        (2000, 2000, 1500),
        payload_bytes=100_000,
    ),
    Scenario(
        "catch_up",
        "A consumer catches up beside two that follow",
        3000,
        (500, 500, 0),
        (500, 500, 9000),
        payload_bytes=20_000,
        fetch=True,
        backlog_mb=220.0,
    ),
)

MANY: Final = (
    Scenario(
        "many",
        "Fifty tenants: an idle broker wakes for all at once",
        60,
        (40, 40, 0),
        (40, 40, 30),
        payload_bytes=2_000,
        tenants=50,
    ),
)

KILLED: Final = (
    Scenario(
        "killed",
        "A broker is killed, leaders move",
        600,
        (400, 400, 400),
        (400, 400, 400),
        event="kill",
        copies=2,
    ),
)
ELECTED: Final = (
    Scenario(
        "elected",
        "Leaders move back (preferred election)",
        600,
        (400, 400, 400),
        (400, 400, 400),
        event="elect",
        copies=2,
    ),
)
RESTARTED: Final = (
    Scenario(
        "restarted",
        "A broker is restarted",
        600,
        (400, 400, 400),
        (400, 400, 400),
        event="restart",
    ),
)
GONE: Final = (
    Scenario(
        "gone",
        "The job is gone for five minutes",
        600,
        (400, 100, 100),
        (400, 100, 100),
        event="job_gone",
    ),
)

PARTS: Final = (SWITCHED_ON, CHANGING, (*ELECTED, *MANY), KILLED, RESTARTED, GONE)
"""In their order, one after the other; the scenarios of a part run side by side on one cluster,
each with tenants of its own."""
ALL: Final = tuple(scene for part in PARTS for scene in part)
