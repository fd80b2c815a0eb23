"""Publishes what is attached to which group, so that brokers know who belongs to which group.

A part is published when it has changed, after the job's start, and every ten minutes: then a topic
that was made anew has all of them again. Messages have the round's (epoch, seq). A round that the
history has from before the start may have published others by the same numbers, and readers ignore
a second message with these. So it publishes nothing, and the next one does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import ATTACHMENTS_TOPIC
from quotaplane.errors import HistoryError, InputError, TransportError
from quotaplane.groups.attachable import PARTS, part_of
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.registry.attachments import AttachmentsInForce
from quotaplane.settings import History
from quotaplane.transport.base import Message, Transport
from quotaplane.wire.attachments_update import AttachmentsMessage, encode_attachments
from quotaplane.wire.signatures import SigningKeys

_AGAIN_AFTER_S: Final = 60.0
"""After a failure: an attempt may take ``publish_timeout_s``, and limits must not wait for it."""
_ALL_EVERY_S: Final = 600.0

_Part = tuple[tuple[str, ...], tuple[str, ...]]
"""Names in a part, and the group of each."""


class AttachmentsPublisher:
    """Publishes attachments after rounds; not thread-safe.

    Args:
        history: where the tables are.
        writer: of the job, for the newest round from before the start.
        transport: they are published with it.
        keys: sign the messages; None: they are not signed.
        still_leads: raises if another process has been started in place of this one.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        history: History,
        writer: HistoryWriter,
        transport: Transport,
        keys: SigningKeys | None,
        still_leads: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        before = writer.last_seq()
        self._after_seq = -1 if before is None else before
        self._in_force = AttachmentsInForce(history)
        self._transport, self._keys, self._still_leads = transport, keys, still_leads
        self._clock, self._not_until_s, self._all_at_s = clock, -math.inf, -math.inf
        self._wanted: list[_Part] = []
        self._published: list[_Part | None] = [None] * PARTS

    def publish(self, stamp: Round, conditions: Conditions) -> None:
        """Publish the parts that differ from what was published; states what is wrong.

        Call it after a round that the history has a row of.

        Raises:
            DeposedError: another process leads.
        """
        if stamp.seq <= self._after_seq or self._clock() < self._not_until_s:
            return
        try:
            attached = self._in_force.changed()
            if attached is not None:
                self._wanted = _parts(attached)
            if self._clock() >= self._all_at_s:
                self._published = [None] * PARTS
            if self._wanted != self._published:
                self._publish(stamp)
        except (HistoryError, InputError, TransportError) as error:
            self._not_until_s = self._clock() + _AGAIN_AFTER_S
            conditions.note(ATTACHMENTS_TOPIC, "", error)
        else:
            conditions.note(ATTACHMENTS_TOPIC, "", None)

    def _publish(self, stamp: Round) -> None:
        messages = [
            Message(str(part), self._encoded(part, wanted, stamp))
            for part, wanted in enumerate(self._wanted)
            if wanted != self._published[part]
        ]
        # Once more in this round: a compacted topic keeps the last message, whatever its numbers.
        self._still_leads()
        self._transport.publish_attachments(messages)
        if None in self._published:
            self._all_at_s = self._clock() + _ALL_EVERY_S
        self._published = [*self._wanted]

    def _encoded(self, part: int, wanted: _Part, stamp: Round) -> bytes:
        message = AttachmentsMessage(part, stamp.epoch, stamp.seq, stamp.now_ms, *wanted)
        value = encode_attachments(message)
        return value if self._keys is None else self._keys.sign(value)


def _parts(attached: Mapping[str, str]) -> list[_Part]:
    """All parts, from groups by the name of what is attached."""
    names: list[list[str]] = [[] for _ in range(PARTS)]
    for name in sorted(attached):
        names[part_of(name)].append(name)
    return [(tuple(each), tuple(attached[name] for name in each)) for each in names]
