"""What both contenders are put through: topics, what they want, and one event each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REPORT_INTERVAL_S: Final = 5
BASE_S: Final = 10.0
"""Recorded before the event."""
WATCH_S: Final = 55.0
"""Recorded after it: eleven report intervals."""


@dataclass(frozen=True)
class Scenario:
    """One group's topics, one a broker in their order, and what happens to them.

    Rates are messages per second. The group hangs on the topics' one namespace, or on a tenant, and
    then each topic has a namespace of its own.
    """

    name: str
    title: str
    quota: float
    before: tuple[float, ...]
    """What each topic wants until the event."""
    after: tuple[float, ...]
    quota_after: float | None = None
    """Set with the cluster's own command (``pulsar-admin resourcegroups update``)."""
    unload: tuple[int, int] | None = None
    """(topic, broker): the topic is unloaded to that broker."""
    kill: int | None = None
    """The broker that is killed (SIGKILL)."""
    dispatch: bool = False
    """The quota is on dispatch, and each topic has a consumer, whose receipts are counted."""
    tenant: bool = False


TOGETHER: Final = (
    Scenario("idle_wakes", "An idle broker wakes", 120, (80, 80, 0), (80, 80, 60)),
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
        dispatch=True,
    ),
    Scenario(
        "tenant",
        "A tenant's second namespace wakes",
        100,
        (80, 0),
        (80, 60),
        tenant=True,
    ),
)
"""They run side by side on one cluster, each with a group of its own."""

ALONE: Final = (Scenario("killed", "A broker is killed", 120, (80, 80, 80), (80, 80, 80), kill=1),)
"""This one would be felt by the others."""
