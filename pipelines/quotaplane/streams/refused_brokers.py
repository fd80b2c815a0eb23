"""Prints when reports are refused because of the brokers that they name: once, and when it is over.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from quotaplane.streams.silence_watch import Line, some
from quotaplane.wire.reasons import (
    BROKER_NOT_ALLOWED,
    OTHER_BROKER,
    TOO_MANY_BROKERS,
    TOO_MANY_ENTRIES,
    TWO_INCARNATIONS,
)

OVER_AFTER_S: Final = 60.0
"""So long without another one it is over."""

_TEXTS: Final = {
    OTHER_BROKER: "name another broker than their {broker_from}: a program writes in the name of "
    "others, or an agent has the wrong key, topic or name (broker_from)",
    BROKER_NOT_ALLOWED: "are of brokers that allowed_brokers does not have: add them if they "
    "are yours, or take from their senders the right to write to the topic",
    TOO_MANY_BROKERS: "are of brokers beyond max_brokers: known brokers go on, others are not "
    "used. Raise it if they are yours, or see who writes to the topic",
    TOO_MANY_ENTRIES: "have more entries than their bytes allow, or new names than are read at "
    "once: see who writes to the topic",
    TWO_INCARNATIONS: "are of a second program in the name of {brokers}. The one that reported "
    "first counts. Stop the other one, or take from it the right to write to the topic; "
    "broker_from binds names",
}


class RefusedBrokers:
    """Takes one round after another; ``broker_from`` is the setting.

    >>> watch = RefusedBrokers("key")
    >>> [kind for kind, _ in watch.after(0.0, {"other_broker": 3})]
    ['warning']
    >>> watch.after(1.0, {"other_broker": 3})
    []
    >>> watch.after(61.0, {})
    [('recovered', 'no reports are refused as other_broker any more: 6 were')]
    """

    REASONS: Final = frozenset(_TEXTS)
    """The reasons that have a line of their own here."""

    def __init__(self, broker_from: str) -> None:
        self._broker_from = broker_from
        self._refused: dict[str, int] = {}
        self._last_s: dict[str, float] = {}

    def after(
        self, now_s: float, rejected: Mapping[str, int], brokers: Sequence[str] = ()
    ) -> list[Line]:
        """The lines after a round that refused so many reports, by reason.

        ``brokers``: those of which two programs report.
        """
        lines = []
        for reason, text in _TEXTS.items():
            count = rejected.get(reason, 0)
            if count:
                if reason not in self._refused:
                    about = text.format(broker_from=self._broker_from, brokers=some(brokers))
                    warning = f"{count} reports of a round {about}. Dead letters: {reason}"
                    lines.append(("warning", warning))
                self._refused[reason] = self._refused.get(reason, 0) + count
                self._last_s[reason] = now_s
            elif reason in self._refused and now_s - self._last_s[reason] >= OVER_AFTER_S:
                total = self._refused.pop(reason)
                over = f"no reports are refused as {reason} any more: {total} were"
                lines.append(("recovered", over))
        return lines
