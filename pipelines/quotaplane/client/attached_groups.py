"""Which group a client of a broker belongs to, from the messages of the attachments topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from quotaplane.groups.attachable import wire_name
from quotaplane.groups.scope import DEFAULT, Scope, encode
from quotaplane.wire.attachments_update import AttachmentsMessage

_TOPIC: Final = wire_name("topic", "")


class ReceivedAttachments:
    """The attachments of all parts, each as its newest message has it; not thread-safe.

    >>> from quotaplane.groups.attachable import part_of
    >>> received = ReceivedAttachments()
    >>> for name, group in (("tenant=acme", "acme"), ("user=alice", "batch")):
    ...     received.apply(AttachmentsMessage(part_of(name), 1, 5, 0, (name,), (group,)))
    True
    True
    >>> received.group_of(user="alice"), received.group_of(namespace="acme/orders")
    ('batch', 'acme')
    """

    def __init__(self) -> None:
        self._newest: dict[int, tuple[int, int]] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        self._groups: dict[str, str] = {}
        self._chars: dict[int, set[int]] = {}
        """Lengths of attached beginnings of topics, by part."""
        self._prefix_chars: list[int] = []
        """All of them, the longest first."""

    @property
    def groups(self) -> frozenset[str]:
        """The groups that something is attached to."""
        return frozenset(self._groups.values())

    def apply(self, message: AttachmentsMessage) -> bool:
        """Put a message in force, unless there was a newer one of its part; returns whether."""
        newest = message.epoch, message.seq
        if newest <= self._newest.get(message.part, (-1, -1)):
            return False
        for name in self._names.get(message.part, ()):
            del self._groups[name]
        self._newest[message.part], self._names[message.part] = newest, message.names
        self._groups |= zip(message.names, message.groups, strict=True)
        topics = (name for name in message.names if name.startswith(_TOPIC))
        self._chars[message.part] = {len(name) - len(_TOPIC) for name in topics}
        self._prefix_chars = sorted(set().union(*self._chars.values()), reverse=True)
        return True

    def group_of(
        self,
        *,
        user: str | None = None,
        client: str | None = None,
        tenant: str | None = None,
        namespace: str | None = None,
        topic: str | None = None,
    ) -> str | None:
        """The group of a request, None for none: see ``BrokerClient.group_of``."""
        for name in self._candidates(user, client, tenant, namespace, topic):
            group = self._groups.get(name)
            if group is not None:
                return group
        return None

    def _candidates(
        self,
        user: str | None,
        client: str | None,
        tenant: str | None,
        namespace: str | None,
        topic: str | None,
    ) -> Iterator[str]:
        """The names that a request may be attached by, the one that counts most first."""
        yield from scopes_for(user, client)
        if topic is not None:
            yield from (_TOPIC + topic[:n] for n in self._prefix_chars if n <= len(topic))
        if namespace is not None:
            yield wire_name("namespace", namespace)
            tenant = tenant or namespace.partition("/")[0]
        if tenant is not None:
            yield wire_name("tenant", tenant)


def scopes_for(user: str | None, client: str | None) -> Iterator[str]:
    """The scopes that fit a user and a client id, in Kafka's order: the most specific first.

    Nothing, not even ``<default>``, fits a name that is None or empty.

    >>> [*scopes_for("a b", "")]
    ['user=a%20b', 'user=<default>']

    Raises:
        InputError: a name is no valid Unicode.
    """
    users = [encode(user), DEFAULT] if user else []
    clients = [encode(client), DEFAULT] if client else []
    for name in users:
        yield from (str(Scope(name, each)) for each in clients)
        yield str(Scope(name, None))
    yield from (str(Scope(None, each)) for each in clients)
