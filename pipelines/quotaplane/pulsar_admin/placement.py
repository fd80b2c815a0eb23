"""Which topics of attached namespaces there are, and which broker has each of them now."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from quotaplane.agents.disappearance import TIMES, Vanished, some_of
from quotaplane.agents.pace import Pace, at_once
from quotaplane.errors import ClusterError
from quotaplane.model import IntArray
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.bundles import Bundle, bundle_of, owners
from quotaplane.pulsar_admin.resource_groups import group_of, namespace_path
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.topic_layout import Layout

_PERSISTENT: Final = "persistent://"
_PARTITION: Final = re.compile(r"^(.+)-partition-\d+$")
_SYSTEM: Final = re.compile(
    r"/(__change_events|__transaction_[^/]*|transaction_coordinator_assign"
    r"|[^/]*__transaction_pending_ack)(-partition-\d+)?$"
)
"""Topics in which brokers keep things of their own: nobody's quota."""
_AT_ONCE: Final = 4
"""Of each kind of reading; whoever else needs a request waits behind so few."""
_FAILED: Final = object()

NoteFailure = Callable[[str, str, Exception | None], None]
"""What was tried, on what, and how it failed; None = it did not."""

NamespaceRead = Callable[[str, str, Any, "str | None", float], None]
"""The cluster, a namespace, its policies (None: it is gone), its group (None: it has none), and at
which of the loop's times that was."""


@dataclass
class Broker:
    """A broker that is there now, by its id in REST."""

    name: str
    """As its reports have it."""
    url: str
    """Of its own REST API."""
    bundles: list[Bundle] = field(default_factory=list)


@dataclass
class Namespace:
    """A namespace that is attached to a group."""

    group: str
    topics: list[str]
    """Without partitions: what has a part of its own."""
    partitioned: set[str]
    vanished: Vanished = field(default_factory=Vanished, compare=False)
    """Of topics."""


class Placement:
    """The brokers, the attached namespaces and their topics, as far as they were read.

    What can't be read stays as it was, and ``note`` hears of it. What many namespaces or topics are
    missing from is believed only after some looks: their rates would be taken off.
    """

    def __init__(
        self, rest: Rest, cluster: str, pace: Pace, note: NoteFailure, namespace_read: NamespaceRead
    ) -> None:
        self._rest, self._cluster, self._pace, self._note = rest, cluster, pace, note
        self._namespace_read = namespace_read
        self.brokers: dict[str, Broker] = {}
        self._namespaces: dict[str, Namespace] = {}
        self._vanished = Vanished()
        self._detached: set[str] = set()
        """Namespaces that have no group now, and had one."""
        self._hashes: dict[str, int] = {}
        self._changed = True
        self._listed: dict[str, set[str]] = {}
        """By what was tried: everything that there was when it was listed last."""
        self._failures: dict[str, int] = {}
        """By what was tried: how often it failed this time."""

    async def read_brokers(self) -> bool:
        """Which brokers there are, and what each of them has; whether all of it could be read."""
        self._failures["brokers"] = 0
        path = Rest.path("brokers")
        ids = await self._read("brokers", "", lambda: read_names(self._rest, path))
        if ids is _FAILED:
            return False
        self._forget_unlisted("brokers", ids)
        for gone in self.brokers.keys() - set(ids):
            del self.brokers[gone]
            self._changed = True
        await at_once(_AT_ONCE, self._read_broker, ids)
        return not self._failures["brokers"]

    async def _read_broker(self, broker: str) -> None:
        if broker not in self.brokers:
            # Its own heartbeat topic is on itself; answers tell all its addresses.
            where = f"/lookup/v2/topic/persistent/pulsar/{quote(broker)}/healthcheck"
            found = await self._read("brokers", broker, lambda: self._looked_up(where))
            if found is _FAILED:
                return
            self.brokers[broker] = found
        path = Rest.path("brokers", self._cluster, broker, "ownedNamespaces")
        owned = await self._read("brokers", broker, lambda: self._rest.get(path))
        if not isinstance(owned, dict) or broker not in self.brokers:
            return
        bundles = sorted(found for found in map(bundle_of, owned) if found)
        if bundles != self.brokers[broker].bundles:
            self.brokers[broker].bundles = bundles
            self._changed = True

    async def _looked_up(self, path: str) -> Broker:
        said = await self._rest.get(path)
        tls = self._rest.url.startswith("https:")
        try:
            name = said.get("brokerUrl") or said["brokerUrlTls"]
            return Broker(str(name), str(said["httpUrlTls" if tls else "httpUrl"]))
        except (AttributeError, KeyError, TypeError):
            raise ClusterError(
                f"Pulsar's REST API at {self._rest.url}: GET {path}: does not tell the broker's URL"
            ) from None

    async def read_namespaces(self) -> bool:
        """Which namespaces are attached, and their topics; whether all of it could be read."""
        self._failures["namespaces"] = self._failures["topics"] = 0
        path = Rest.path("tenants")
        tenants = await self._read("namespaces", "", lambda: read_names(self._rest, path))
        if tenants is _FAILED:
            self._vanished.begin_again()
            return False
        listed: list[str] = []

        async def list_tenant(tenant: str) -> None:
            path = namespace_path(tenant)
            names = await self._read("namespaces", tenant, lambda: read_names(self._rest, path), [])
            if names is _FAILED:  # those that are known stay
                names = [name for name in self._namespaces if name.startswith(f"{tenant}/")]
            listed.extend(name for name in names if name.count("/") == 1)

        await at_once(_AT_ONCE, list_tenant, tenants)
        # A namespace that is not listed any more is gone only if it says so itself.
        names = list(dict.fromkeys([*listed, *self._namespaces]))
        self._forget_unlisted("namespaces", [*tenants, *names])
        self._forget_unlisted("topics", names)
        self._detached.clear()
        await at_once(_AT_ONCE, self._read_namespace, names)
        self._forget_detached()
        return not (self._failures["namespaces"] or self._failures["topics"])

    def _forget_detached(self) -> None:
        detached, of = self._detached, len(self._namespaces)
        gone = self._vanished.believed(detached, of)
        for name in gone:
            del self._namespaces[name]
            self._changed = True
        doubt = None
        if len(gone) < len(detached):
            doubt = ClusterError(
                f"{len(detached)} of {of} namespaces that were attached to a group are not any "
                f"more: {some_of(detached)}; so many at once are believed only {TIMES} times in a "
                "row, until then rates stay"
            )
        self._note("attachments", "", doubt)

    def _forget_unlisted(self, what: str, names: list[str]) -> None:
        """What is not there any more fails no more."""
        before, self._listed[what] = self._listed.get(what, set()), set(names)
        for gone in before - self._listed[what]:
            self._note(what, gone, None)

    async def _read_namespace(self, name: str) -> None:
        group = await self._read("namespaces", name, lambda: self._group_of(name))
        if group is _FAILED:
            return
        if group is None:
            if name in self._namespaces:
                self._detached.add(name)
            self._note("topics", name, None)
            return
        lists = await self._read("topics", name, lambda: self._topics_of(name), ([], []))
        if lists is _FAILED:
            return
        topics, partitioned = lists
        ours = sorted(t for t in topics if t.startswith(_PERSISTENT) and not _SYSTEM.search(t))
        read = Namespace(group, ours, set(partitioned))
        before = self._namespaces.get(name)
        if before == read:
            before.vanished.begin_again()
            return
        if before is not None:
            _keep_doubted(before, read)
        if before != read:
            self._namespaces[name] = read
            self._changed = True

    async def _topics_of(self, namespace: str) -> tuple[list[str], list[str]]:
        """Its topics, and those that are partitioned; read as one: either fails for both."""
        path = Rest.path("persistent", namespace)
        topics = await read_names(self._rest, path)
        await self._pace.take()
        # In this order: partitions that are there have a topic then.
        return topics, await read_names(self._rest, f"{path}/partitioned")

    async def _group_of(self, namespace: str) -> str | None:
        begun_s = asyncio.get_running_loop().time()
        policies, group = None, None
        try:
            policies = await self._rest.get(namespace_path(namespace))
            group = group_of(policies)
        except RefusedError as error:
            if error.status != 404:
                raise
        known = self._namespaces.get(namespace)
        # Its rate stays until it is believed that it was detached.
        still = known.group if group is None and known is not None else group
        self._namespace_read(self._cluster, namespace, policies, still, begun_s)
        return group

    def forget_topic(self, topic: str) -> None:
        """A topic was found to be gone: do without it until it is listed again."""
        namespace = self._namespaces.get(topic.removeprefix(_PERSISTENT).rpartition("/")[0])
        if namespace is not None:
            namespace.partitioned.discard(topic)
            namespace.topics = [p for p in namespace.topics if topic not in (p, _base(p))]
            self._changed = True

    async def _read(
        self, what: str, of: str, reading: Callable[[], Awaitable[Any]], gone: object = _FAILED
    ) -> Any:
        """The answer; ``gone`` if there is no such thing (404), ``_FAILED`` if it can't be read."""
        await self._pace.take()
        try:
            answer = await reading()
        except ClusterError as error:
            absent = isinstance(error, RefusedError) and error.status == 404
            known = absent and gone is not _FAILED
            self._note(what, of, None if known else error)
            self._failures[what] += not known
            return gone if known else _FAILED
        self._note(what, of, None)
        return answer

    def changed(self) -> Layout | None:
        """Where everything is, if that is another thing than last time."""
        if not self._changed:
            return None
        self._changed = False
        return self._layout()

    def _layout(self) -> Layout:
        part_names: list[str] = []
        topic_names: list[str] = []
        namespace_of: list[int] = []
        group_names: dict[str, str] = {}
        names = sorted(self._namespaces)
        for index, name in enumerate(names):
            namespace = self._namespaces[name]
            for part in namespace.topics:
                topic = _base(part)
                if topic != part and topic not in namespace.partitioned:
                    continue  # it can't have a rate: Pulsar takes it for a partition
                part_names.append(part)
                topic_names.append(topic)
                namespace_of.append(index)
                group_names[topic] = namespace.group
        topics = tuple(sorted(group_names))
        # Also those without a topic: the first one may come at any time.
        groups = tuple(sorted({namespace.group for namespace in self._namespaces.values()}))
        place = {topic: index for index, topic in enumerate(topics)}
        group_place = {group: index for index, group in enumerate(groups)}
        order = sorted(range(len(part_names)), key=part_names.__getitem__)
        parts = [part_names[at] for at in order]
        ids = tuple(sorted(self.brokers))
        return Layout(
            tuple(self.brokers[broker].name for broker in ids),
            groups,
            topics,
            np.fromiter((group_place[group_names[t]] for t in topics), np.int64, len(topics)),
            tuple(parts),
            np.fromiter((place[topic_names[at]] for at in order), np.int64, len(order)),
            owners(
                np.array([namespace_of[at] for at in order], np.int64),
                self._hashed(parts),
                names,
                [self.brokers[broker].bundles for broker in ids],
            ),
        )

    def _hashed(self, parts: list[str]) -> IntArray:
        """CRC32 of each name: where in its namespace's bundles it is."""
        known = self._hashes
        self._hashes = {part: known.get(part, -1) for part in parts}
        for part, hashed in self._hashes.items():
            if hashed < 0:
                self._hashes[part] = zlib.crc32(part.encode())
        return np.fromiter(self._hashes.values(), np.int64, len(parts))


def _keep_doubted(before: Namespace, read: Namespace) -> None:
    """Keep topics that are missing from what was read and may be there yet."""
    had = {*before.topics, *before.partitioned}
    missing = had.difference(read.topics, read.partitioned)
    doubted = missing - before.vanished.believed(missing, of=len(had))
    read.vanished = before.vanished
    read.topics = sorted({*read.topics, *doubted.intersection(before.topics)})
    read.partitioned |= doubted & before.partitioned


def _base(part: str) -> str:
    found = _PARTITION.match(part)
    return found[1] if found else part
