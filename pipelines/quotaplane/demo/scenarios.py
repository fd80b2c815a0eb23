"""The demo's scenario: a cluster of seven brokers, and a story for each resource group.

Numbers named "PIP-82" are the proposal's own examples. Rates are per second; times are in seconds
since every broker got its first limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.demand_schedule import Change

Action = Literal["demand", "put", "delete", "die", "join"]

PUBLISH, PUBLISH_BYTES, DISPATCH, DISPATCH_BYTES = DIMENSIONS[:BASIC]

DURATION_S: Final = 45


@dataclass(frozen=True)
class Event:
    """Something that happens."""

    at_s: float
    text: str
    """Description for the audience."""
    action: Action = "demand"
    """``put`` sets ``quota``; ``delete`` deletes the group; ``die`` and ``join`` concern ``broker``
    and all its groups; ``demand`` only describes a change of the story's demand."""
    broker: str = ""
    quota: Mapping[str, float] | None = None
    """By dimension; absent = unlimited."""


@dataclass(frozen=True)
class Story:
    """One resource group and its events."""

    group: str
    title: str
    """The phenomenon that the story shows."""
    quota: Mapping[str, float]
    """The first quota, by dimension."""
    demand: tuple[Change, ...]
    events: tuple[Event, ...] = ()
    shows: tuple[str, ...] = (PUBLISH,)
    """Dimensions that get a row in the table and a plot."""
    poisson: bool = False
    """Demand is Poisson noise around the given means."""
    from_s: float = 0.0
    """When the group is created."""
    until_s: float = float("inf")
    """When the group is deleted."""


@dataclass(frozen=True)
class Scenario:
    """A cluster and its stories."""

    brokers: tuple[BrokerSpec, ...]
    stories: tuple[Story, ...]
    events: tuple[Event, ...]
    """Events that concern a whole broker."""

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(story.group for story in self.stories)


def _story(
    group: str,
    title: str,
    quota: float,
    wants: Mapping[str, float],
    *events: tuple[Event, Mapping[str, float]],
    **rest: object,
) -> Story:
    """A story of publish messages only; ``wants`` and the events' mappings are demand by broker."""
    demand = [Change(0.0, b, group, {PUBLISH: rate}) for b, rate in wants.items()]
    for event, then in events:
        demand += [Change(event.at_s, b, group, {PUBLISH: rate}) for b, rate in then.items()]
    return Story(
        group,
        title,
        {PUBLISH: quota},
        tuple(demand),
        tuple(event for event, _ in events),
        **rest,  # type: ignore[arg-type]
    )


B1, B2, B3, B4, B5, B6, B7 = (f"broker-{number}" for number in range(1, 8))


def _four_dimensions() -> Story:
    group = "web/four-quotas"
    small = {PUBLISH: 150.0, PUBLISH_BYTES: 0.3e6, DISPATCH: 150.0, DISPATCH_BYTES: 0.3e6}
    large = {PUBLISH: 150.0, PUBLISH_BYTES: 2.4e6, DISPATCH: 300.0, DISPATCH_BYTES: 4.8e6}
    demand = [Change(0.0, broker, group, small) for broker in (B1, B3, B5)]
    demand += [Change(27.0, broker, group, large) for broker in (B1, B3)]
    return Story(
        group,
        "four quotas on one group: small messages use up the messages, large ones the bytes",
        {PUBLISH: 300.0, PUBLISH_BYTES: 3e6, DISPATCH: 600.0, DISPATCH_BYTES: 6e6},
        tuple(demand),
        (Event(27.0, f"{B1} and {B3} send eight times larger messages to two readers each"),),
        shows=DIMENSIONS[:BASIC],
    )


def _unlimited() -> Story:
    group = "web/free-dispatch"
    demand = [Change(0.0, broker, group, {PUBLISH: 80.0, DISPATCH: 100.0}) for broker in (B2, B5)]
    demand.append(Change(36.0, B2, group, {DISPATCH: 900.0}))
    return Story(
        group,
        "publishing is limited, dispatch is not: a dimension without a quota is never throttled",
        {PUBLISH: 100.0},
        tuple(demand),
        (Event(36.0, f"{B2}'s readers catch up: dispatch from 100 to 900"),),
        shows=(PUBLISH, DISPATCH),
    )


STORIES: Final = (
    _story(
        "pip82/10-50-30",
        "PIP-82: uses of 10, 50 and 30 leave 10 of 100 to share; then the smallest wants more",
        100.0,
        {B1: 10.0, B2: 50.0, B3: 30.0},
        (Event(12.0, f"{B1} wants 60 where it wanted 10"), {B1: 60.0}),
    ),
    _story(
        "pip82/80-20",
        "PIP-82: 80 and 20 of 100, then the second wants 60: it takes its fair half",
        100.0,
        {B1: 80.0, B2: 20.0},
        (Event(3.0, f"{B2} wants 60 where it wanted 20"), {B2: 60.0}),
    ),
    _story(
        "pip82/70-30",
        "PIP-82: limits follow uses of 70 and 30, then both want 70: 50 each, not 70 and 30",
        100.0,
        {B3: 70.0, B4: 30.0},
        (Event(6.0, f"{B4} wants 70 as {B3} does"), {B4: 70.0}),
    ),
    _story(
        "pip82/idle-wakes",
        "80, 80 and an idle broker that wakes (stock Pulsar starves it for ever)",
        120.0,
        {B1: 80.0, B2: 80.0, B3: 0.0},
        (Event(9.0, f"{B3} wakes and wants 60"), {B3: 60.0}),
    ),
    _story(
        "ops/broker-dies",
        "three brokers saturate 120; one dies and the others get its share",
        120.0,
        {B4: 60.0, B5: 60.0, B6: 60.0},
    ),
    _story(
        "ops/quota-raised",
        "the quota is raised from 60 to 150 while it is in use",
        60.0,
        {B1: 50.0, B2: 50.0, B4: 50.0},
        (Event(15.0, "the quota is raised from 60 to 150", "put", quota={PUBLISH: 150.0}), {}),
    ),
    _story(
        "ops/quota-lowered",
        "the quota is lowered from 240 to 90 while it is in use",
        240.0,
        {B2: 70.0, B4: 70.0, B5: 70.0},
        (Event(18.0, "the quota is lowered from 240 to 90", "put", quota={PUBLISH: 90.0}), {}),
    ),
    _four_dimensions(),
    _unlimited(),
    _story(
        "tenants/appears",
        "a group that is created while the job runs",
        80.0,
        {B3: 0.0, B4: 0.0},
        (Event(24.0, "the group is created with a quota of 80", "put", quota={PUBLISH: 80.0}), {}),
        (Event(26.0, f"{B3} and {B4} begin to publish, 60 each"), {B3: 60.0, B4: 60.0}),
        from_s=24.0,
    ),
    _story(
        "tenants/vanishes",
        "a group that is deleted while the job runs",
        80.0,
        {B1: 60.0, B5: 60.0},
        (Event(30.0, "the tenant leaves and the group is deleted", "delete"), {}),
        until_s=30.0,
    ),
    _story(
        "fleet/elastic",
        "a broker that joins the cluster gets its share of what the others had",
        180.0,
        {B4: 90.0, B5: 90.0, B7: 90.0},
    ),
    _story(
        "fleet/noisy",
        "six brokers with Poisson traffic: limits don't follow the noise",
        30_000.0,
        {B1: 3e3, B2: 4e3, B3: 5e3, B4: 6e3, B5: 7e3, B6: 8e3},
        poisson=True,
    ),
)

DEMO: Final = Scenario(
    brokers=(
        BrokerSpec(B1, throttled=True),
        BrokerSpec(B2),
        BrokerSpec(B3, format="stock"),
        BrokerSpec(B4, uses_ids=True),
        BrokerSpec(B5, format="stock"),
        BrokerSpec(B6, throttled=True),
        BrokerSpec(B7),
    ),
    stories=STORIES,
    events=(
        Event(0.0, f"{B7} is not there yet", "die", broker=B7),
        Event(21.0, f"{B6} dies", "die", broker=B6),
        Event(33.0, f"{B7} joins the cluster", "join", broker=B7),
    ),
)
