"""The scenarios that every contender is put through: topics, their demand, and one event each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.quota_proof.load import Arrivals

REPORT_INTERVAL_S: Final = 5
"""Interval of the brokers' own usage reports."""
BASE_S: Final = 10.0
"""Recorded before the event."""
WATCH_S: Final = 50.0
"""Recorded after it: ten report intervals."""
MUTED_FOR_S: Final = 15.0
"""Time before our start at which the topic of ``switched_on`` wakes up."""


@dataclass(frozen=True)
class Scenario:
    """One group's topics on the brokers, in the brokers' order, and what happens to them.

    Rates are in the quota's unit per second. The group hangs on the topics' one namespace, or on a
    tenant, and then each broker's topics have a namespace of their own.
    """

    name: str
    title: str
    quota: float
    before: tuple[float, ...]
    """Demand of the topics of each broker until the event."""
    after: tuple[float, ...]
    dimension: str = "publish_messages_per_s"
    """Dimension of the quota. With dispatch each topic has a consumer; its receipts are counted."""
    payload_bytes: tuple[int, ...] = (256, 256, 256)
    """Bytes of each broker's messages."""
    topics: int = 1
    """On each broker, in one bundle; the n-th wants 1/sqrt(n) of what the first one wants."""
    arrivals: Arrivals = "even"
    quota_after: float | None = None
    """Set with the cluster's own command (``pulsar-admin resourcegroups update``)."""
    unload: tuple[int, int] | None = None
    """(place, broker): the topic is unloaded to that broker."""
    kill: int | None = None
    """The broker that is killed (SIGKILL)."""
    tenant: bool = False
    before_control: bool = False
    """The topics want ``after`` before the contender is started; the event is the take-over."""

    @property
    def moves(self) -> bool:
        """Topics lose their broker."""
        return self.unload is not None or self.kill is not None

    @property
    def dispatch(self) -> bool:
        return self.dimension.startswith("dispatch")

    @property
    def in_bytes(self) -> bool:
        return self.dimension.endswith("bytes_per_s")


SWITCHED_ON: Final = (
    Scenario(
        "switched_on",
        "Switched on under load, quota in bytes",
        60_000,
        (40_000, 40_000, 0),
        (40_000, 40_000, 30_000),
        dimension="publish_bytes_per_s",
        payload_bytes=(1000, 1000, 1000),
        before_control=True,
    ),
)
"""The third topic wakes up while the cluster's own calculator limits the group."""

WAKING: Final = (
    Scenario("idle_wakes", "An idle broker wakes", 120, (80, 80, 0), (80, 80, 60)),
    Scenario(
        "bytes",
        "An idle broker wakes, quota in bytes",
        90_000,
        (60_000, 60_000, 0),
        (60_000, 60_000, 45_000),
        dimension="publish_bytes_per_s",
        payload_bytes=(500, 2000, 1000),
    ),
    Scenario(
        "poisson",
        "Poisson producers: one wakes beside two small ones",
        120,
        (20, 30, 0),
        (20, 30, 120),
        arrivals="poisson",
    ),
    Scenario(
        "on_off",
        "On-off producers: one wakes beside two small ones",
        120,
        (20, 30, 0),
        (20, 30, 120),
        arrivals="on_off",
    ),
    Scenario("tenant", "A tenant's second namespace wakes", 100, (80, 0), (80, 60), tenant=True),
)
"""The scenarios of a part run side by side on one cluster, each with a group of its own."""

CHANGING: Final = (
    Scenario("grows", "80/20 becomes 80/60", 100, (80, 20), (80, 60)),
    Scenario(
        "unloaded",
        "A topic is unloaded to another broker",
        120,
        (80, 80, 80),
        (80, 80, 80),
        unload=(2, 0),
    ),
    Scenario("halved", "The quota is halved", 120, (80, 80, 80), (80, 80, 80), quota_after=60),
    Scenario(
        "dispatch",
        "Dispatch: a second topic wakes",
        60,
        (40, 0),
        (40, 40),
        dimension="dispatch_messages_per_s",
    ),
)

MANY: Final = (
    Scenario(
        "many",
        "50 topics a broker: an idle broker's wake",
        600,
        (400, 400, 0),
        (400, 400, 300),
        topics=50,
    ),
)

KILLED: Final = (Scenario("killed", "A broker is killed", 120, (80, 80, 80), (80, 80, 80), kill=1),)
"""This one would be felt by the others."""

PARTS: Final = (WAKING, CHANGING, MANY, KILLED)
"""In their order. The topics and clients of ``SWITCHED_ON`` and of the first part are there before
a contender is started."""

ALL: Final = (*SWITCHED_ON, *WAKING, *CHANGING, *MANY, *KILLED)
