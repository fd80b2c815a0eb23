"""Publishes what is attached to which group, so that brokers know who belongs to which group.

A part is published when it has changed, after the job's start, and every ten minutes: then a topic
that was made anew has all of them again. Messages have the round's (epoch, seq). A round that the
history has from before the start may have published others by the same numbers, and readers ignore
a second message with these. So it publishes nothing, and the next one does.

A part that is too large is not published at all, as a cut one would detach clients: brokers go by
the earlier message of this part. It is tried again when it has changed, and every ten minutes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import ATTACHMENTS_TOPIC
from quotaplane.errors import HistoryError, InputError, MessageTooLargeError, TransportError
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
        self._too_large: dict[int, str] = {}
        """Parts that were not published, and why; they are among ``_published``."""

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
            wrong = {f"part {part}": text for part, text in self._too_large.items()}
            conditions.set_each(ATTACHMENTS_TOPIC, wrong)

    def _publish(self, stamp: Round) -> None:
        messages = []
        too_large = {**self._too_large}
        for part, wanted in enumerate(self._wanted):
            if wanted != self._published[part]:
                too_large.pop(part, None)
                try:
                    messages.append(Message(str(part), self._encoded(part, wanted, stamp)))
                except InputError as error:
                    too_large[part] = _in_words(part, error)
        # Once more in this round: a compacted topic keeps the last message, whatever its numbers.
        self._still_leads()
        too_large |= self._refused(messages)
        if None in self._published:
            self._all_at_s = self._clock() + _ALL_EVERY_S
        self._published, self._too_large = [*self._wanted], too_large

    def _refused(self, messages: Sequence[Message]) -> dict[int, str]:
        """Publish messages; returns the parts that their topic does not take, and why."""
        if not messages:
            return {}
        try:
            self._transport.publish_attachments(messages)
        except MessageTooLargeError as error:
            if len(messages) == 1:
                part = int(messages[0].key)
                return {part: _in_words(part, error)}
            half = len(messages) // 2
            return self._refused(messages[:half]) | self._refused(messages[half:])
        return {}

    def _encoded(self, part: int, wanted: _Part, stamp: Round) -> bytes:
        message = AttachmentsMessage(part, stamp.epoch, stamp.seq, stamp.now_ms, *wanted)
        value = encode_attachments(message)
        return value if self._keys is None else self._keys.sign(value)


def _in_words(part: int, error: InputError | TransportError) -> str:
    return (
        f"part {part} is too large, so brokers go by the earlier one: {error}; attach fewer names "
        "(a user in place of its client ids, a tenant in place of its namespaces), or to groups "
        "with shorter names"
    )


def _parts(attached: Mapping[str, str]) -> list[_Part]:
    """All parts, from groups by the name of what is attached."""
    names: list[list[str]] = [[] for _ in range(PARTS)]
    for name in sorted(attached):
        names[part_of(name)].append(name)
    return [(tuple(each), tuple(attached[name] for name in each)) for each in names]
