"""Reads the rates that administrators set in a cluster, the topics they apply to, and their usage.

Topics of attached namespaces are not read: these have their group already.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from quotaplane.agents.conditions import Say
from quotaplane.agents.pace import Pace, at_once
from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, FloatArray
from quotaplane.pulsar_admin.active_brokers import look_up_broker
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.configured_rates import (
    NO_RATES,
    RATE_PATHS,
    SUBSCRIPTION,
    TopicRate,
    TopicRates,
    rate_in,
    rates_of_brokers,
    rates_of_namespace,
)
from quotaplane.pulsar_admin.placement import SYSTEM_TOPIC
from quotaplane.pulsar_admin.quota_proposals import ConfiguredNamespace
from quotaplane.pulsar_admin.resource_groups import group_of, namespace_path, read_runtime
from quotaplane.pulsar_admin.rest import NotFoundError, Rest
from quotaplane.pulsar_admin.topic_usage import Snapshots, stats_exposure
from quotaplane.topics.rate_marks import Mark, mark_of

_AT_ONCE: Final = 8
_PERSISTENT: Final = "persistent://"
_PARTITION: Final = re.compile(r"-partition-\d+$")
_SYSTEM_TENANT: Final = "pulsar"
"""Has topics of the brokers only."""
_TOPIC_POLICIES: Final = ("systemTopicEnabled", "topicLevelPoliciesEnabled")
"""Keys of broker.conf; with one of them false, topics have no rates of their own."""
_SLOW_S: Final = 5.0
"""A survey that takes longer than this says so before."""


class Survey(NamedTuple):
    """The namespaces of a cluster with their rates and usage, and the brokers' own rates."""

    namespaces: list[ConfiguredNamespace]
    """By name."""
    broker: TopicRates
    """The brokers' own rates, from broker.conf."""
    stats_interval_s: float
    """Over how long the brokers averaged the usage."""


async def survey(
    rest: Rest, wanted: Callable[[str], bool], max_reads_per_s: float, say: Say
) -> Survey:
    """Read the namespaces that are wanted, by name ``tenant/namespace``.

    Raises:
        ClusterError: the brokers or tenants can't be read. A namespace that can't be read has a
            ``failure`` instead.
    """
    return await _Reader(rest, max_reads_per_s, say).read(wanted)


class _Reader:
    def __init__(self, rest: Rest, max_reads_per_s: float, say: Say) -> None:
        self._rest, self._per_s, self._say = rest, max_reads_per_s, say
        self._pace = Pace(max_reads_per_s)
        self._found: dict[str, ConfiguredNamespace] = {}

    async def read(self, wanted: Callable[[str], bool]) -> Survey:
        runtime = await read_runtime(self._rest)
        names: list[str] = []

        async def list_tenant(tenant: str) -> None:
            listed = await self._names(namespace_path(tenant)) or []
            names.extend(name for name in listed if name.count("/") == 1 and wanted(name))

        tenants = await read_names(self._rest, Rest.path("tenants"))
        await at_once(_AT_ONCE, list_tenant, [one for one in tenants if one != _SYSTEM_TENANT])
        await at_once(_AT_ONCE, lambda name: self._read_namespace(name, runtime.cluster), names)
        if "false" not in map(runtime.configuration.get, _TOPIC_POLICIES):
            await self._read_topics()
        stats_interval_s = stats_exposure(runtime.configuration).stats_interval_s
        if any(namespace.parts for namespace in self._found.values()):
            await self._read_usage(stats_interval_s)
        namespaces = [self._found[name] for name in sorted(self._found)]
        return Survey(namespaces, rates_of_brokers(runtime.configuration), stats_interval_s)

    async def _read_namespace(self, name: str, cluster: str) -> None:
        try:
            await self._pace.take()
            policies = await self._rest.get(namespace_path(name))
            group = group_of(policies)
            self._found[name] = ConfiguredNamespace(
                name, group, rates_of_namespace(policies, cluster)
            )
            if group is not None:
                return
            listed = await self._names(f"{namespace_path(name)}/topics?mode=ALL")
            partitioned = await self._names(Rest.path("persistent", name, "partitioned"))
        except ClusterError as error:
            self._failed(name, error)
            return
        if listed is None or partitioned is None:
            self._found.pop(name)
            return
        with_parts = set(partitioned)
        own = Counter(filter(None, (_topic_of(part, with_parts) for part in listed)))
        others = len(listed) - own.total()
        self._found[name] = replace(self._found[name], parts=dict(own), other_parts=others)

    async def _names(self, path: str) -> list[str] | None:
        """A list of names; None: there is no such thing (any more)."""
        await self._pace.take()
        try:
            return await read_names(self._rest, path)
        except NotFoundError:
            return None

    async def _read_topics(self) -> None:
        """Read the topics' own rates."""
        topics = [(name, topic) for name, one in self._found.items() for topic in one.parts]
        seconds = len(topics) * len(RATE_PATHS) / self._per_s
        if seconds > _SLOW_S:
            self._say(
                f"reading the rates of {len(topics)} topics takes {seconds:.0f} s, as "
                f"enforce.max_reads_per_s is {self._per_s:g}; --namespaces reads fewer"
            )
        rates: dict[str, dict[str, TopicRates]] = {name: {} for name in self._found}
        deleted: set[str] = set()

        async def read_topic(place: tuple[str, str]) -> None:
            name, topic = place
            if self._found[name].failure:
                return
            try:
                own = await self._topic_rates(topic)
            except NotFoundError:
                deleted.add(topic)
                return
            except ClusterError as error:
                self._failed(name, error)
                return
            if own != NO_RATES:
                rates[name][topic] = own

        await at_once(_AT_ONCE, read_topic, topics)
        for name, own in rates.items():
            one = self._found[name]
            parts = {topic: count for topic, count in one.parts.items() if topic not in deleted}
            by_name = {topic: own[topic] for topic in sorted(own)}
            self._found[name] = replace(one, parts=parts, topic_rates=by_name)

    async def _topic_rates(self, topic: str) -> TopicRates:
        rates: list[TopicRate | None] = []
        for kind, last in enumerate(RATE_PATHS):
            path = Rest.path(*topic.split("://", 1), last)
            await self._pace.take()
            rate = rate_in(await self._rest.get(path), kind, path)
            # An enforcer's rate may be left on the topic of a detached namespace.
            marked = rate if kind < SUBSCRIPTION else None
            mark = mark_of(marked.messages, marked.bytes) if marked else Mark.NONE
            if mark is Mark.IN_PLACE:
                raise ClusterError(
                    f"{topic}: an enforcer's rate stands in place of an administrator's; "
                    "`quotaplane enforce pulsar --remove` gives that back"
                )
            rates.append(rate if mark is Mark.NONE else None)
        return tuple(rates)

    async def _read_usage(self, stats_interval_s: float) -> None:
        """Read the usage of the brokers' topics; if one can't be read, the usage is unknown."""
        used: dict[str, FloatArray] = {name: np.zeros(BASIC) for name in self._found}

        async def read_broker(broker: str) -> None:
            url = (await look_up_broker(self._rest, broker)).url
            sample = await Snapshots(stats_interval_s).read(self._rest, url, 0.0)
            if sample is None or sample.usage is None:
                return
            for topic, usage in zip(sample.topics, sample.usage, strict=True):
                name = "/".join(topic.split("/")[2:4])
                if name in used and not SYSTEM_TOPIC.search(topic):
                    used[name] += usage

        try:
            brokers = await read_names(self._rest, Rest.path("brokers"))
            await at_once(_AT_ONCE, read_broker, brokers)
        except ClusterError as error:
            self._say(f"the usage is not shown, as a broker's statistics can't be read: {error}")
            used = {name: np.full(BASIC, np.nan) for name in used}
        for name, usage in used.items():
            self._found[name] = replace(self._found[name], used=usage)

    def _failed(self, name: str, error: ClusterError) -> None:
        if isinstance(error, NotFoundError):
            self._found.pop(name, None)
        else:
            self._found[name] = ConfiguredNamespace(name, failure=str(error))


def _topic_of(part: str, partitioned: set[str]) -> str | None:
    """The topic of a part that can have rates of its own; None: it can't have any."""
    if not part.startswith(_PERSISTENT):
        return None
    topic = _PARTITION.sub("", part)
    # Named like a partition without being one, it has the namespace's rate only.
    return topic if topic == part or topic in partitioned else None
