"""Takes limits from their topic into the book."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from quotaplane.enforce.book import Book
from quotaplane.enforce.trouble import Say, Trouble
from quotaplane.errors import InputError
from quotaplane.transport import BrokerLink
from quotaplane.wire.limits import LimitsMessage, decode_limits

_RECENT_MS: Final = 5000.0
_PART: Final = "messages of limits"


class Listener:
    """What came over a link, in ``book``."""

    def __init__(
        self, link: BrokerLink, trouble: Trouble, say: Say, now_ms: Callable[[], float]
    ) -> None:
        self.book = Book()
        self.caught_up = False
        """Whether the newest is known: what is behind it would be written for nothing."""
        self._link, self._trouble, self._say, self._now_ms = link, trouble, say, now_ms
        self._told = False

    async def listen(self) -> None:
        """Take in what came since the last call.

        Raises:
            TransportError: the limits can't be read.
        """
        messages, wrong = await asyncio.to_thread(self._poll)
        for message in messages:
            await asyncio.sleep(0)  # at the start there may be hours of them, of many groups each
            self.book.receive(message)
            self._trouble(_PART, message.broker, None)
        for broker, line in wrong:
            self._trouble(_PART, broker, InputError(line))
        recent = self.age_ms() < _RECENT_MS
        self.caught_up = self.caught_up or not messages or recent
        if self.book.not_enforced and not self._told:
            self._told = True
            self._say(
                "limits on totals or mutations, or terms of throttling, were told: stock brokers "
                "can't be held to them, only to publish and dispatch (docs/enforcer.md)"
            )

    def forget_gone(self, brokers: Collection[str]) -> None:
        """These are all there are: whatever was wrong with others' messages is no trouble now."""
        there = set(brokers)
        self._trouble.retain(_PART, there.__contains__)

    def age_ms(self) -> float:
        """How long ago the newest of all messages was decided."""
        return self._now_ms() - self.book.issued_at_ms

    def _poll(self) -> tuple[list[LimitsMessage], list[tuple[str, str]]]:
        messages, wrong = [], []
        for message in self._link.poll_limits().messages:
            try:
                messages.append(decode_limits(message.value))
            except InputError as error:
                wrong.append((message.key, str(error)))
        return messages, wrong
