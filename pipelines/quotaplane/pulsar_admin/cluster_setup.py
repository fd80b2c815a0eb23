"""Finds the things that a Pulsar cluster lacks before our programs can use it, and makes them.

Topics, their policies and rights can be made over the REST API. Lines of broker.conf and superusers
can't: they are only named. Nothing that stands is lessened: a longer retention and the rights of
other roles stay.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from quotaplane.errors import ClusterError
from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.resource_groups import (
    REPORT_INTERVAL,
    TRANSPORT_CLASS,
    read_configuration,
)
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.settings import PulsarTransport, Settings
from quotaplane.settings.section import FOREVER
from quotaplane.settings.transports import STOCK_REPORTS, is_per_broker

_PERSISTENT: Final = "persistent://"
_BEYOND_LEASE_MIN: Final = 8
"""Messages are kept for this much longer than a lease: 10 minutes by default."""
_TOPIC_POLICIES: Final = "topicLevelPoliciesEnabled"
_COMPACTED_FROM: Final = 10_485_760
_LOOK_EVERY_S: Final = 0.5
_REPORTS_CLASS: Final = "org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"


class Step(NamedTuple):
    """A request that is still needed."""

    what: str
    command: tuple[str, ...]
    """The words behind ``pulsar-admin`` that do the same."""
    method: str
    path: str
    body: object = None


@dataclass(frozen=True)
class Roles:
    """The roles that programs use on the cluster; None: not said."""

    job: str | None = None
    enforcer: str | None = None


@dataclass
class Missing:
    """The result of comparing a cluster with the settings."""

    steps: list[Step] = field(default_factory=list)
    """To be made in this order."""
    by_hand: list[str] = field(default_factory=list)
    """Things that can't be made over the REST API."""
    notes: list[str] = field(default_factory=list)
    """Things that were not compared."""


def own_topics(settings: Settings, transport: PulsarTransport) -> dict[str, int]:
    """The persistent topics that these settings name, and the minutes for which they are kept.

    Those of further sections only if the settings have these sections; the enforcer's always.
    Topics of ``{broker}`` are made with each broker.
    """
    kept_min = math.ceil(settings.limits.lease_s / 60.0) + _BEYOND_LEASE_MIN
    names = {transport.limits_topic: kept_min}
    names |= {
        topic: kept_min
        for topic in transport.report_topics
        if topic.startswith(_PERSISTENT) and not is_per_broker(topic)
    }
    needed = {"enforce", *settings.model_fields_set}
    names |= {
        transport.full_name(topic.name): topic.kept_min or kept_min
        for topic in settings.named_topics
        if topic.key.partition(".")[0] in needed
    }
    return {topic: minutes for topic, minutes in names.items() if topic.startswith(_PERSISTENT)}


async def find_missing(
    rest: Rest, settings: Settings, transport: PulsarTransport, roles: Roles
) -> Missing:
    """Compare the cluster with the settings; changes nothing.

    Raises:
        ClusterError: it can't be read; only a superuser may.
    """
    try:
        return await _missing(rest, settings, transport, roles)
    except MALFORMED as error:
        raise rest.failure(
            f"an answer about topics is malformed ({type(error).__name__}: {str(error)[:200]})"
        ) from None


async def _missing(
    rest: Rest, settings: Settings, transport: PulsarTransport, roles: Roles
) -> Missing:
    runtime = await read_configuration(rest)
    topics = own_topics(settings, transport)
    missing = Missing(by_hand=_broker_conf(runtime, settings))
    missing.steps += [step async for step in _places(rest, topics, str(runtime["clusterName"]))]
    for topic, minutes in topics.items():
        missing.steps += [step async for step in _topic(rest, topic)]
        if runtime.get(_TOPIC_POLICIES, "true") == "true":
            missing.steps += [step async for step in _policies(rest, topic, minutes)]
    missing.notes += [
        f"{topic}: each broker's topic is made with the broker "
        "(docs/operate/pulsar.md#a-topic-per-broker)"
        for topic in transport.report_topics
        if is_per_broker(topic)
    ]
    if runtime.get("authorizationEnabled") == "true":
        superusers = {*str(runtime.get("superUserRoles", "")).strip("[]").split(", ")}
        for role, rights in _rights(settings, transport, roles).items():
            if role not in superusers:
                missing.steps += [step async for step in _grants(rest, role, rights)]
        missing.by_hand += _superusers(settings, roles, superusers)
        if roles.job is None or roles.enforcer is None:
            missing.notes.append(
                "the cluster checks rights; those of the programs are compared only with "
                "--job-role and --enforcer-role"
            )
    return missing


async def make(
    rest: Rest,
    settings: Settings,
    transport: PulsarTransport,
    roles: Roles,
    made: Callable[[Step], None],
    seen_within_s: float = 15.0,
) -> Missing:
    """Make what is missing; ``made`` gets each step once it is done. Returns what is left.

    Brokers read a topic's policies from a topic of their own, so a change may show a little later:
    after ``seen_within_s`` that is an error.

    Raises:
        ClusterError: a step was refused, or the cluster does not show it afterwards. Steps made
            before stay, and a repeated run continues.
    """
    missing = await find_missing(rest, settings, transport, roles)
    for number, step in enumerate(missing.steps):
        try:
            await rest.ask(step.method, step.path, step.body)
        except ClusterError as error:
            raise ClusterError(
                f"{step.what}: {error}; {number} of {len(missing.steps)} steps were made before "
                "it and stay; repeat the command once this is mended"
            ) from None
        made(step)
    until_s = asyncio.get_running_loop().time() + seen_within_s
    while missing.steps:
        missing = await find_missing(rest, settings, transport, roles)
        if missing.steps and asyncio.get_running_loop().time() > until_s:
            raise ClusterError(
                f"{missing.steps[0].what}: was made, and the cluster does not show it after "
                f"{seen_within_s:g} s; repeat the command"
            )
        await asyncio.sleep(_LOOK_EVERY_S if missing.steps else 0.0)
    return missing


def _broker_conf(runtime: Mapping[str, Any], settings: Settings) -> list[str]:
    """Lines that broker.conf should have; all brokers are taken to be like the one asked."""
    wanted = {_TOPIC_POLICIES: "true", "systemTopicEnabled": "true"}
    if STOCK_REPORTS in settings.own_topics[0]:
        every = f"{settings.reports.interval_s:g}"
        wanted |= {TRANSPORT_CLASS: _REPORTS_CLASS, REPORT_INTERVAL: every}
    if settings.enforce.report_topic is not None:
        wanted |= {"exposeTopicLevelMetricsInPrometheus": "true", "metricsBufferResponse": "false"}
    return [
        f"broker.conf: {name}={value}, and restart the brokers (it is {runtime.get(name)!r})"
        for name, value in wanted.items()
        if str(runtime.get(name, value)) != value
    ]


async def _places(rest: Rest, topics: Mapping[str, int], cluster: str) -> AsyncIterator[Step]:
    """Tenants and namespaces of the topics."""
    namespaces = dict.fromkeys(
        topic.removeprefix(_PERSISTENT).rpartition("/")[0] for topic in topics
    )
    tenants = dict.fromkeys(name.partition("/")[0] for name in namespaces)
    for tenant in tenants:
        path = rest.path("tenants", tenant)
        if await rest.find(path) is None:
            body = {"adminRoles": [], "allowedClusters": [cluster]}
            yield Step(f"tenant {tenant}", ("tenants", "create", tenant), "PUT", path, body)
    for namespace in namespaces:
        path = rest.path("namespaces", namespace)
        if await rest.find(path) is None:
            command = ("namespaces", "create", namespace)
            yield Step(f"namespace {namespace}", command, "PUT", path, {})


async def _topic(rest: Rest, topic: str) -> AsyncIterator[Step]:
    path = rest.path("persistent", topic.removeprefix(_PERSISTENT))
    if await rest.find(f"{path}/partitions?checkAllowAutoCreation=false") is None:
        yield Step(f"topic {topic}", ("topics", "create", topic), "PUT", path)


async def _policies(rest: Rest, topic: str, minutes: int) -> AsyncIterator[Step]:
    """A topic's policies: our readers have no subscription that would keep its messages.

    ``minutes`` is ``FOREVER`` for a compacted topic.
    """
    path = rest.path("persistent", topic.removeprefix(_PERSISTENT))
    # ``applied``: with what the topic gets from its namespace and broker.
    kept = await rest.find(f"{path}/retention?applied=true") or {}
    time_min = int(kept.get("retentionTimeInMinutes", 0))
    forever = minutes == FOREVER
    is_short = time_min >= 0 and (forever or time_min < minutes)
    if kept.get("retentionSizeInMB", 0) != -1 or is_short:
        time_min = FOREVER if forever or time_min < 0 else max(time_min, minutes)
        span = "-1" if time_min < 0 else f"{time_min}m"
        yield Step(
            f"retention of {topic}: {span}, of any size",
            ("topicPolicies", "set-retention", "--time", span, "--size", "-1", topic),
            "POST",
            f"{path}/retention",
            {"retentionTimeInMinutes": time_min, "retentionSizeInMB": -1},
        )
    inactive = await rest.find(f"{path}/inactiveTopicPolicies?applied=true")
    if not isinstance(inactive, dict) or inactive.get("deleteWhileInactive", True):
        yield Step(
            f"{topic} is not deleted while it is idle",
            (
                *("topicPolicies", "set-inactive-topic-policies"),
                *("--disable-delete-while-inactive", "--max-inactive-duration", "1m"),
                *("--delete-mode", "delete_when_no_subscriptions", topic),
            ),
            "POST",
            f"{path}/inactiveTopicPolicies",
            {
                "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
                "maxInactiveDurationSeconds": 60,
                "deleteWhileInactive": False,
            },
        )
    if bool(await rest.find(f"{path}/compactionThreshold?applied=true")) != forever:
        threshold = _COMPACTED_FROM if forever else 0
        how = f"compacted from {threshold} bytes on" if forever else "never compacted"
        yield Step(
            f"{topic} is {how}",
            ("topicPolicies", "set-compaction-threshold", "--threshold", f"{threshold}", topic),
            "POST",
            f"{path}/compactionThreshold",
            threshold,
        )


def _rights(
    settings: Settings, transport: PulsarTransport, roles: Roles
) -> dict[str, dict[str, set[str]]]:
    """By role and topic, what the role's programs do there."""
    rights: dict[str, dict[str, set[str]]] = {}

    def need(role: str | None, topic: str | None, *actions: str) -> None:
        if role is not None and topic is not None and not is_per_broker(topic):
            rights.setdefault(role, {}).setdefault(topic, set()).update(actions)

    for topic in transport.report_topics:
        need(roles.job, topic, "consume")
    need(roles.job, transport.limits_topic, "consume", "produce")
    if transport.attachments_topic is not None:
        # To look at a topic when the job starts, it is read.
        need(roles.job, transport.full_name(transport.attachments_topic), "consume", "produce")
    need(roles.enforcer, transport.limits_topic, "consume")
    leader_topic = transport.full_name(settings.enforce.leader_topic)
    need(roles.enforcer, leader_topic, "consume", "produce")
    need(roles.enforcer, settings.enforce.report_topic, "produce")
    return rights


async def _grants(rest: Rest, role: str, rights: Mapping[str, set[str]]) -> AsyncIterator[Step]:
    for topic, actions in rights.items():
        path = f"{rest.path(topic.replace('://', '/', 1))}/permissions"
        # A grant replaces what the role has on the topic.
        has = {*((await rest.find(path) or {}).get(role) or [])}
        if not actions <= has:
            granted = sorted(actions | has)
            listed = ",".join(granted)
            yield Step(
                f"right of {role} on {topic}: {listed}",
                ("topics", "grant-permission", topic, "--role", role, "--actions", listed),
                "POST",
                f"{path}/{rest.path(role).rpartition('/')[2]}",
                granted,
            )


def _superusers(settings: Settings, roles: Roles, superusers: set[str]) -> list[str]:
    """Lines about roles that must be superusers and are not."""
    needed = {roles.enforcer: "the enforcer"}
    if settings.cluster is not None:
        needed[roles.job] = "the job with the section cluster"
    return [
        f"broker.conf: superUserRoles with {role}, for {program}; and restart the brokers"
        for role, program in needed.items()
        if role is not None and role not in superusers
    ]
