"""Notices that reports are refused because of the brokers that they name. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from quotaplane.agents import known_conditions as known
from quotaplane.agents.conditions import Conditions
from quotaplane.texts import first_few

_TEXTS: Final = {
    known.OTHER_BROKER: "name another broker than their {broker_from}: a program writes in the "
    "name of others, or an agent has the wrong key, topic or name (broker_from)",
    known.BROKER_NOT_ALLOWED: "are of brokers that allowed_brokers does not have: add them if they "
    "are yours, or take from their senders the right to write to the topic",
    known.TOO_MANY_BROKERS: "are of brokers beyond max_brokers: known brokers go on, others are "
    "not used. Raise it if they are yours, or see who writes to the topic",
    known.TOO_MANY_ENTRIES: "have more entries than their bytes allow, or new names than are read "
    "at once: see who writes to the topic",
    known.TWO_INCARNATIONS: "are of a second program in the name of {brokers}. The one that "
    "reported first counts. Stop the other one, or take from it the right to write to the topic; "
    "broker_from binds names",
}

REASONS: Final = frozenset(each.name for each in _TEXTS)
"""The reasons that are conditions of their own."""


def note_refused_brokers(
    conditions: Conditions,
    broker_from: str,
    rejected: Mapping[str, int],
    brokers: Sequence[str] = (),
) -> None:
    """Add a round that refused so many reports, by reason.

    ``broker_from`` is the setting; ``brokers``: those of which two programs report.
    """
    for condition, text in _TEXTS.items():
        count = rejected.get(condition.name, 0)
        if count:
            about = text.format(broker_from=broker_from, brokers=first_few(brokers))
            line = f"{count} reports of a round {about}. Dead letters: {condition.name}"
            conditions.note(condition, "", line, count)
