"""A broker's agent: counts what groups use, reports it over a link, and knows the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from quotaplane.client.attachments import ReceivedAttachments
from quotaplane.client.receiver import ReceivedLimits
from quotaplane.client.reporter import Reporter
from quotaplane.errors import InputError
from quotaplane.groups.ids import NO_ID, ids_of
from quotaplane.model import BASIC, COUNTED, DIMENSIONS, UNLIMITED, FloatArray, IntArray
from quotaplane.transport.base import BrokerLink, Polled
from quotaplane.wire.attachments import decode_attachments
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.signatures import SigningKeys

FORGET_AFTER_MS: Final = 600_000
"""Time after its lease end at which the limit of a group without usage is dropped."""

_FORGET_EVERY: Final = 100
"""Reports."""

_INDEX: Final = {name: at for at, name in enumerate(DIMENSIONS)}


class BrokerClient:
    """One broker's end of the protocol; not for use by several threads at once.

    Between two reports the broker counts (``use``); a report turns the counts into rates. Every
    report names all groups that the broker has, also those that used nothing. Each report also has
    counters: all that was used since the broker's start, so that a lost report loses no amounts.

    ``now_ms`` is the clock, in milliseconds since 1970 in UTC: reports are dated by it, and it
    shows how old a limit is that arrives. From then on, and for the windows of reports,
    ``steady_ms`` counts: a clock that can't be set.
    """

    def __init__(
        self,
        link: BrokerLink,
        broker: str,
        *,
        now_ms: Callable[[], int],
        groups: Sequence[str] = (),
        dimensions: Sequence[str] = DIMENSIONS[:BASIC],
        strict: bool = False,
        safe_limit: float = UNLIMITED,
        counts_refused: bool = True,
        uses_ids: bool = False,
        keys: SigningKeys | None = None,
        steady_ms: Callable[[], float] | None = None,
        attachments: BrokerLink | None = None,
    ) -> None:
        """The broker starts now.

        Args:
            link: reports go out over it, limits come in.
            broker: the broker's name, the same after each restart.
            now_ms: the clock.
            groups: that the broker has; ``attach`` and ``use`` add more.
            dimensions: that the broker counts.
            strict: for ``limits.transition: strict``: a group without any limit may use nothing.
            safe_limit: holds after a lease until a message has a safe limit; strict: 0.
            counts_refused: whether the broker counts what it refuses or delays.
            uses_ids: reports name groups by id.
            keys: messages must be signed with one of them; None: signatures are not verified.
            steady_ms: a clock that can't be set, as ``time.monotonic() * 1000``; None: ``now_ms``.
            attachments: attachments come in over it (``transport.open_attachments_link``); None:
                ``group_of`` knows of none.
        """
        self._link, self._now_ms, self._keys = link, now_ms, keys
        self._attachments, self._attached = attachments, ReceivedAttachments()
        self._steady_ms = now_ms if steady_ms is None else steady_ms
        self._counted = np.array([name in dimensions for name in DIMENSIONS], np.bool_)
        if unknown := [name for name in dimensions if name not in _INDEX]:
            raise InputError(f"dimensions: there is no {unknown[0]!r}")
        self._counts_refused, self._uses_ids = counts_refused, uses_ids
        started_at_ms = now_ms()
        self._since_ms = self._steady_ms()
        self.refused = 0
        """Messages that could not be decoded, or were not signed with a known key."""
        self.refused_because = ""
        """Why the last of them was refused."""
        self.over_on_arrival = 0
        """Limits messages whose lease was over when they arrived. If it grows, this broker's clock
        is ahead of the job's, or messages wait: it has safe limits only."""
        unset = 0.0 if strict else UNLIMITED
        self._received = ReceivedLimits(
            [broker],
            started_at_ms=started_at_ms,
            unset=unset,
            unset_safe=0.0 if strict else safe_limit,
            removed=unset,
            admits=lambda ids: np.ones(len(ids), np.bool_),
        )
        self._reporter = Reporter(broker, started_at_ms)
        self._place: dict[str, int] = {}
        self._ids: IntArray = np.empty(0, np.int64)
        self._used: FloatArray = np.empty((0, len(DIMENSIONS)))
        self._reported: FloatArray = np.empty((0, len(DIMENSIONS)))
        """Amounts used since the start, up to the last report."""
        self._detached: dict[str, FloatArray] = {}
        """The same of groups that the broker no longer has: a counter never goes back."""
        self._refused: FloatArray = np.empty((0, len(DIMENSIONS)))
        self.attach(groups)

    @property
    def broker(self) -> str:
        """The broker's name."""
        return self._reporter.broker

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the broker has, in the order of all arrays here."""
        return tuple(self._place)

    def attach(self, groups: Iterable[str]) -> None:
        """The broker has these groups from now on.

        Raises:
            InputError: a name can't be one of a group.
        """
        new = [name for name in dict.fromkeys(groups) if name not in self._place]
        ids = ids_of(new)
        if (ids == NO_ID).any():
            wrong = new[int(np.flatnonzero(ids == NO_ID)[0])]
            raise InputError(f"{wrong[:80]!r} can't be the name of a group")
        self._place |= {name: at for at, name in enumerate(new, len(self._place))}
        self._ids = np.append(self._ids, ids)
        more = np.zeros((len(new), len(DIMENSIONS)))
        self._used = np.concatenate([self._used, more])
        before = [self._detached.pop(name, more[0]) for name in new]
        self._reported = np.concatenate([self._reported, np.reshape(before, more.shape)])
        self._refused = np.concatenate([self._refused, more])

    def detach(self, groups: Iterable[str]) -> None:
        """The broker no longer has these groups: they are in no report any more."""
        gone = {*groups}
        stays = np.array([name not in gone for name in self._place], np.bool_)
        kept = [name for name in self._place if name not in gone]
        counters = self._reported + self._used
        self._detached |= {name: counters[self._place[name]] for name in gone & self._place.keys()}
        self._place = {name: at for at, name in enumerate(kept)}
        self._ids = self._ids[stays]
        self._used, self._refused = self._used[stays], self._refused[stays]
        self._reported = self._reported[stays]

    def use(self, group: str, **amounts: float) -> None:
        """Count what a group used, by dimension: messages, bytes, partitions.

        Raises:
            InputError: the broker does not count such a dimension.
        """
        self._count(group, amounts, refused=False)

    def refuse(self, group: str, **amounts: float) -> None:
        """Count what a group wanted beyond its limit, and was refused or has to wait for."""
        self._count(group, amounts, refused=True)

    def use_all(self, used: FloatArray, refused: FloatArray | None = None) -> None:
        """Count for all ``groups`` at once, (n, dimensions) each."""
        self._used += used
        if refused is not None:
            self._refused += refused

    def _count(self, group: str, amounts: dict[str, float], *, refused: bool) -> None:
        for name in amounts:
            if name not in _INDEX or not self._counted[_INDEX[name]]:
                raise InputError(f"dimensions: this broker does not count {name!r}")
        if group not in self._place:
            self.attach([group])
        counts = self._refused if refused else self._used
        for name, amount in amounts.items():
            counts[self._place[group], _INDEX[name]] += amount

    def limit(self, group: str) -> dict[str, float]:
        """A group's limits in force now, by dimension, per second; inf is unlimited."""
        columns = self._received.columns_of([group])
        rates = self._received.of(0, columns, self._steady_ms())[0]
        return dict(zip(DIMENSIONS, rates.tolist(), strict=True))

    def limits(self) -> FloatArray:
        """The limits in force now of all ``groups``, (n, dimensions) per second; inf: unlimited."""
        return self._received.of(0, self._received.columns(self._ids), self._steady_ms())

    def group_of(
        self,
        *,
        user: str | None = None,
        client: str | None = None,
        tenant: str | None = None,
        namespace: str | None = None,
        topic: str | None = None,
    ) -> str | None:
        """The group that a request is attached to, None for none.

        ``user`` and ``client`` count first, in Kafka's order (docs/operate/throttle.md); then the
        longest attached beginning of the topic's name; then the namespace (``acme/orders``), then
        its tenant. A name that is None or empty fits nothing.

        Raises:
            InputError: the user or the client id is no valid Unicode.
        """
        return self._attached.group_of(
            user=user, client=client, tenant=tenant, namespace=namespace, topic=topic
        )

    @property
    def attached_groups(self) -> frozenset[str]:
        """The groups that something is attached to."""
        return self._attached.groups

    def throttle(self, group: str) -> str:
        """On what terms a group's requests are held to its limits: a text for ``terms_of``."""
        return self._received.throttles(0, self._received.columns_of([group]))[0]

    def report(self) -> bytes:
        """Send what was used since the last report; returns what was sent.

        Raises:
            TransportError: it was not sent; what was counted is in the next report.
        """
        now_ms, steady_ms = self._now_ms(), self._steady_ms()
        window_ms = round(steady_ms - self._since_ms)
        if window_ms > 0:
            rates = np.where(self._counted, 1000.0 / window_ms, np.nan)
        else:
            # Two reports at once, or a clock that was set back: nothing can be said of rates.
            rates = np.full(len(DIMENSIONS), np.nan)
        counters = self._reported + self._used
        value = self._reporter.report(
            self._used * rates,
            window_ms=max(window_ms, 0),
            throttled=self._refused * rates if self._counts_refused else None,
            groups=None if self._uses_ids else [*self._place],
            group_ids=self._ids if self._uses_ids else None,
            received=self._received,
            columns=self._received.columns(self._ids),
            now_ms=steady_ms,
            counters=np.where(self._counted, counters, np.nan)[:, COUNTED],
        )
        self._link.send_reports([(self.broker, value, now_ms)])
        self._used[:] = self._refused[:] = 0.0
        self._reported = counters
        self._since_ms = steady_ms
        if self._reporter.sequence % _FORGET_EVERY == 0:
            self._received.forget(steady_ms - FORGET_AFTER_MS, [self.broker], self._ids)
        return value

    def poll(self) -> int:
        """Apply the limits, and attachments, that came in; returns how many limits changed.

        Raises:
            TransportError: they can't be read.
        """
        changed = 0
        for message in _polled(self._link):
            if message.key == self.broker:
                changed += self.receive(message.value)
        if self._attachments is not None:
            for message in _polled(self._attachments):
                self.receive_attachments(message.value)
        return changed

    def receive(self, value: bytes) -> int:
        """Apply one limits message; returns how many limits changed.

        A message that can't be decoded, or lacks a valid signature while there are ``keys``,
        changes nothing and is counted in ``refused``.
        """
        try:
            message = decode_limits(value, self._keys)
        except InputError as error:
            self._refuse(error)
            return 0
        now_ms = self._now_ms()
        if message.broker == self.broker and message.issued_at_ms + message.lease_ms < now_ms:
            self.over_on_arrival += 1
        issued_ms = message.issued_on(wall_ms=now_ms, steady_ms=self._steady_ms())
        return self._received.apply(message, issued_ms=issued_ms).changed

    def receive_attachments(self, value: bytes) -> None:
        """Apply one message of the attachments topic; refused as in ``receive``."""
        if value:  # else a tombstone
            try:
                self._attached.apply(decode_attachments(value, self._keys))
            except InputError as error:
                self._refuse(error)

    def _refuse(self, error: InputError) -> None:
        self.refused += 1
        self.refused_because = str(error)


def _polled(link: BrokerLink) -> Iterator[Polled]:
    """What there is to read now."""
    more = True
    while more:
        portion = link.poll_limits()
        yield from portion.messages
        more = portion.more
