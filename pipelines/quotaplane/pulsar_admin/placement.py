"""Reads the topics of attached namespaces, and by the bundles, which broker owns each now."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from quotaplane.agents.conditions import Condition
from quotaplane.agents.deletion_check import TIMES, DeletionCheck
from quotaplane.agents.known_conditions import ATTACHMENTS, BROKERS, NAMESPACES, TOPICS
from quotaplane.agents.pace import Pace, at_once
from quotaplane.errors import ClusterError, InputError
from quotaplane.model import IntArray
from quotaplane.pulsar_admin.active_brokers import look_up_broker
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.resource_groups import group_of, namespace_path
from quotaplane.pulsar_admin.rest import NotFoundError, Rest
from quotaplane.texts import some_of
from quotaplane.topics.bundle_names import BundleName, parse_bundle
from quotaplane.topics.topic_layout import Layout

_PERSISTENT: Final = "persistent://"
_PARTITION: Final = re.compile(r"^(.+)-partition-\d+$")
SYSTEM_TOPIC: Final = re.compile(
    r"/(__change_events|__transaction_[^/]*|transaction_coordinator_assign"
    r"|[^/]*__transaction_pending_ack)(-partition-\d+)?$"
)
"""System topics of brokers; no quota applies to them."""
_AT_ONCE: Final = 4
"""Concurrent reads of each kind; few, so that other requests don't queue long."""
_FAILED: Final = object()

NoteFailure = Callable[[Condition, str, Exception | None], None]
"""Called with the condition, the item, and the failure (None = success)."""

NamespaceRead = Callable[[str, str, Any, "str | None", float], None]
"""Called with the cluster, the namespace, its policies (None = it was deleted), its group (None =
not attached), and the event loop's time at which the read began."""


@dataclass
class Broker:
    """A live broker."""

    name: str
    """As in its usage reports."""
    url: str
    """The URL of its own REST API."""
    bundles: list[BundleName] = field(default_factory=list)
    """The bundles that it owns."""


@dataclass
class Namespace:
    """A namespace that is attached to a group."""

    group: str
    topics: list[str]
    """Parts: partitions, and topics without partitions."""
    partitioned: set[str]
    """Topics with partitions."""
    deletions: DeletionCheck = field(default_factory=DeletionCheck, compare=False)
    """Counts reads that topics are missing from."""


class Placement:
    """The brokers, the attached namespaces and their topics.

    What can't be read stays as it was; failures go to ``note``. If many namespaces or topics are
    missing at once, they are removed only after several such reads, because their rates would be
    removed with them.
    """

    def __init__(
        self, rest: Rest, cluster: str, pace: Pace, note: NoteFailure, namespace_read: NamespaceRead
    ) -> None:
        self._rest, self._cluster, self._pace, self._note = rest, cluster, pace, note
        self._namespace_read = namespace_read
        self.brokers: dict[str, Broker] = {}
        self._namespaces: dict[str, Namespace] = {}
        """Attached namespaces by name."""
        self._deletions = DeletionCheck()
        self._detached: set[str] = set()
        """Namespaces that had a group before this read and have none now."""
        self._hashes: dict[str, int] = {}
        """CRC32 by part."""
        self._changed = True
        self._listed: dict[Condition, set[str]] = {}
        """All items of the last listing, by part of the program."""
        self._failures: dict[Condition, int] = {}
        """Failures in this read, by part of the program."""

    async def read_brokers(self) -> bool:
        """Read the brokers and their bundles; whether all of it could be read."""
        self._failures[BROKERS] = 0
        path = Rest.path("brokers")
        ids = await self._read(BROKERS, "", lambda: read_names(self._rest, path))
        if ids is _FAILED:
            return False
        self._forget_unlisted(BROKERS, ids)
        for gone in self.brokers.keys() - set(ids):
            del self.brokers[gone]
            self._changed = True
        await at_once(_AT_ONCE, self._read_broker, ids)
        return not self._failures[BROKERS]

    async def _read_broker(self, broker: str) -> None:
        if broker not in self.brokers:
            answer = await self._read(BROKERS, broker, lambda: self._looked_up(broker))
            if answer is _FAILED:
                return
            self.brokers[broker] = answer
        path = Rest.path("brokers", self._cluster, broker, "ownedNamespaces")
        owned = await self._read(BROKERS, broker, lambda: self._rest.get(path))
        if not isinstance(owned, dict) or broker not in self.brokers:
            return
        bundles = sorted(bundle for bundle in map(tenant_bundle, owned) if bundle)
        if bundles != self.brokers[broker].bundles:
            self.brokers[broker].bundles = bundles
            self._changed = True

    async def _looked_up(self, broker: str) -> Broker:
        return Broker(*await look_up_broker(self._rest, broker))

    async def read_namespaces(self) -> bool:
        """Read the attached namespaces and their topics; whether all of it could be read."""
        self._failures[NAMESPACES] = self._failures[TOPICS] = 0
        path = Rest.path("tenants")
        tenants = await self._read(NAMESPACES, "", lambda: read_names(self._rest, path))
        if tenants is _FAILED:
            self._deletions.begin_again()
            return False
        listed: list[str] = []

        async def list_tenant(tenant: str) -> None:
            path = namespace_path(tenant)
            names = await self._read(NAMESPACES, tenant, lambda: read_names(self._rest, path), [])
            if names is _FAILED:  # known namespaces stay
                names = [name for name in self._namespaces if name.startswith(f"{tenant}/")]
            listed.extend(name for name in names if name.count("/") == 1)

        await at_once(_AT_ONCE, list_tenant, tenants)
        # Known namespaces that are not listed are read, too: only a 404 shows that one is gone.
        names = list(dict.fromkeys([*listed, *self._namespaces]))
        self._forget_unlisted(NAMESPACES, [*tenants, *names])
        self._forget_unlisted(TOPICS, names)
        self._detached.clear()
        await at_once(_AT_ONCE, self._read_namespace, names)
        self._forget_detached()
        return not (self._failures[NAMESPACES] or self._failures[TOPICS])

    def _forget_detached(self) -> None:
        detached, of = self._detached, len(self._namespaces)
        gone = self._deletions.confirmed(detached, of)
        for name in gone:
            del self._namespaces[name]
            self._changed = True
        doubt = None
        if len(gone) < len(detached):
            doubt = ClusterError(
                f"{len(detached)} of {of} attached namespaces seem to have lost their group: "
                f"{some_of(detached)}; with that many at once, rates stay until it is seen {TIMES} "
                "times in a row"
            )
        self._note(ATTACHMENTS, "", doubt)

    def _forget_unlisted(self, what: Condition, names: list[str]) -> None:
        """Clear the failures of items that don't exist any more."""
        previous, self._listed[what] = self._listed.get(what, set()), set(names)
        for gone in previous - self._listed[what]:
            self._note(what, gone, None)

    async def _read_namespace(self, name: str) -> None:
        group = await self._read(NAMESPACES, name, lambda: self._group_of(name))
        if group is _FAILED:
            return
        if group is None:
            if name in self._namespaces:
                self._detached.add(name)
            self._note(TOPICS, name, None)
            return
        lists = await self._read(TOPICS, name, lambda: self._topics_of(name), ([], []))
        if lists is _FAILED:
            return
        topics, partitioned = lists
        ours = sorted(t for t in topics if t.startswith(_PERSISTENT) and not SYSTEM_TOPIC.search(t))
        read = Namespace(group, ours, set(partitioned))
        known = self._namespaces.get(name)
        if known == read:
            known.deletions.begin_again()
            return
        if known is not None:
            _keep_doubted(known, read)
        if known != read:
            self._namespaces[name] = read
            self._changed = True

    async def _topics_of(self, namespace: str) -> tuple[list[str], list[str]]:
        """A namespace's parts, and its partitioned topics."""
        path = Rest.path("persistent", namespace)
        topics = await read_names(self._rest, path)
        await self._pace.take()
        # In this order, so that every partition that was read has its partitioned topic.
        return topics, await read_names(self._rest, f"{path}/partitioned")

    async def _group_of(self, namespace: str) -> str | None:
        begun_s = asyncio.get_running_loop().time()
        policies, group = None, None
        try:
            policies = await self._rest.get(namespace_path(namespace))
            group = group_of(policies)
        except NotFoundError:
            pass
        known = self._namespaces.get(namespace)
        # A known namespace keeps its group, and so its rate, until ``_forget_detached`` removes it.
        kept = known.group if group is None and known is not None else group
        self._namespace_read(self._cluster, namespace, policies, kept, begun_s)
        return group

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic, until it is listed again."""
        namespace = self._namespaces.get(topic.removeprefix(_PERSISTENT).rpartition("/")[0])
        if namespace is not None:
            namespace.partitioned.discard(topic)
            namespace.topics = [p for p in namespace.topics if topic not in (p, _base(p))]
            self._changed = True

    async def _read(
        self,
        what: Condition,
        item: str,
        reading: Callable[[], Awaitable[Any]],
        gone: object = _FAILED,
    ) -> Any:
        """Read something; returns ``gone`` if it does not exist (404), ``_FAILED`` if it can't."""
        await self._pace.take()
        try:
            answer = await reading()
        except ClusterError as error:
            expected = isinstance(error, NotFoundError) and gone is not _FAILED
            self._note(what, item, None if expected else error)
            self._failures[what] += not expected
            return gone if expected else _FAILED
        self._note(what, item, None)
        return answer

    def changed(self) -> Layout | None:
        """The layout, if it changed since the last call."""
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
                    continue  # named like a partition without being one: it can't have a rate
                part_names.append(part)
                topic_names.append(topic)
                namespace_of.append(index)
                group_names[topic] = namespace.group
        topics = tuple(sorted(group_names))
        # Groups without topics as well, as their first topic may come at any time.
        groups = tuple(sorted({namespace.group for namespace in self._namespaces.values()}))
        place = {topic: index for index, topic in enumerate(topics)}
        group_index = {group: index for index, group in enumerate(groups)}
        order = sorted(range(len(part_names)), key=part_names.__getitem__)
        parts = [part_names[at] for at in order]
        ids = tuple(sorted(self.brokers))
        return Layout(
            tuple(self.brokers[broker].name for broker in ids),
            groups,
            topics,
            np.fromiter((group_index[group_names[t]] for t in topics), np.int64, len(topics)),
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
        """CRC32 of each name, which decides the bundle."""
        known = self._hashes
        self._hashes = {part: known.get(part, -1) for part in parts}
        for part, hashed in self._hashes.items():
            if hashed < 0:
                self._hashes[part] = zlib.crc32(part.encode())
        return np.fromiter(self._hashes.values(), np.int64, len(parts))


def _keep_doubted(known: Namespace, read: Namespace) -> None:
    """Add to ``read`` the known topics that are missing from it but may still exist."""
    names = {*known.topics, *known.partitioned}
    missing = names.difference(read.topics, read.partitioned)
    doubted = missing - known.deletions.confirmed(missing, of=len(names))
    read.deletions = known.deletions
    read.topics = sorted({*read.topics, *doubted.intersection(known.topics)})
    read.partitioned |= doubted & known.partitioned


def _base(part: str) -> str:
    """The topic of a part."""
    match = _PARTITION.match(part)
    return match[1] if match else part


_BITS: Final = 32


def tenant_bundle(owned: str) -> BundleName | None:
    """Parse the name of a bundle that a broker owns; None if it is not of a tenant's namespace.

    >>> tenant_bundle("acme/orders/0xc0000000_0xffffffff")
    BundleName(namespace='acme/orders', low=3221225472, high=4294967295)
    >>> tenant_bundle("sla-monitor/test/b1:8080/0x00000000_0xffffffff")
    """
    try:
        bundle = parse_bundle(owned)
    except InputError:
        return None
    return bundle if bundle.namespace.count("/") == 1 else None


def owners(
    namespace: IntArray,
    hashed: IntArray,
    names: Sequence[str],
    bundles: Sequence[Sequence[BundleName]],
) -> IntArray:
    """The index of the broker that owns each of p topics; -1 = no broker.

    Args:
        namespace: (p,) index of each topic's namespace in ``names``.
        hashed: (p,) CRC32 of each topic's full name, which decides its bundle.
        names: the namespaces.
        bundles: the bundles of each broker.

    >>> bundles = [[BundleName("a/b", 0, 100)], [BundleName("a/b", 100, 201)]]
    >>> owners(np.zeros(3, np.int64), np.array([100, 99, 201]), ["a/b"], bundles).tolist()
    [1, 0, -1]
    """
    place = {name: index for index, name in enumerate(names)}
    first, last, owner = [], [], []
    for broker, owned in enumerate(bundles):
        for bundle in owned:
            at = place.get(bundle.namespace)
            if at is not None:
                first.append(at << _BITS | bundle.low)
                last.append(at << _BITS | bundle.last)
                owner.append(broker)
    if not first:
        return np.full(len(hashed), -1, np.int64)
    starts, ends = np.array(first), np.array(last)
    order = np.argsort(starts, kind="stable")
    starts, ends, broker_of = starts[order], ends[order], np.array(owner, np.int64)[order]
    key = (namespace << _BITS) | hashed
    index = np.maximum(np.searchsorted(starts, key, side="right") - 1, 0)
    inside = (starts[index] <= key) & (key <= ends[index])
    return np.where(inside, broker_of[index], -1)
