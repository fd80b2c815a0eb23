"""Which brokers and groups there are in each round of the day. Pure: all follows from the round."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Final

ROUND_S: Final = 60
"""Virtual seconds between two rounds; each broker reports once in a round."""
ROUNDS_PER_HOUR: Final = 3600 // ROUND_S
LASTING: Final = 4
"""Brokers that live all day."""
PASSING: Final = 9
"""Brokers at a time that live for a while only."""
BROKER_LIVES: Final = 12
"""Rounds that a passing broker lives: over a day some 1,000 names."""
GROUPS_PER_CHANGE: Final = 35
"""Groups that are put at once, while those that were put an hour ago are deleted."""
CHANGE_EVERY: Final = 5
"""Rounds: so each 5 minutes, and 10,000 groups over a day."""
_GROUP_LIVES: Final = 12
"""Changes that a group outlives."""


def brokers(round_: int) -> list[str]:
    """The names of the brokers that report in a round.

    >>> len(brokers(0)) == len(brokers(500)) == LASTING + PASSING
    True
    >>> len({name for r in range(1440) for name in brokers(r)})
    1092
    """
    found = [f"lasting-{number}" for number in range(LASTING)]
    for place in range(PASSING):
        life = (round_ + place * BROKER_LIVES // PASSING) // BROKER_LIVES
        found.append(f"passing-{place}-{life}")
    return found


def groups_of_change(change: int) -> list[str]:
    """The groups that a change puts; none before the day.

    >>> len({name for change in range(288) for name in groups_of_change(change)})
    10080
    """
    if change < 0:
        return []
    return [f"tenant-{n % 7}/namespace-{change}-{n}" for n in range(GROUPS_PER_CHANGE)]


def put_and_deleted(change: int) -> tuple[list[str], list[str]]:
    """The groups that a change puts, and those that it deletes."""
    return groups_of_change(change), groups_of_change(change - _GROUP_LIVES)


def groups(round_: int) -> list[str]:
    """The groups that have a quota in a round.

    >>> len(groups(0)), len(groups(1400))
    (35, 420)
    """
    newest = round_ // CHANGE_EVERY
    changes = range(newest - _GROUP_LIVES + 1, newest + 1)
    return [name for change in changes for name in groups_of_change(change)]


def undefined_group(round_: int) -> str:
    """A group that all brokers report in a round, and that no one ever gave a quota."""
    return f"undefined/namespace-{round_}"


def has_group(broker: str, group: str) -> bool:
    """Whether a broker has a group: each is on about a third of them."""
    return (_third(broker) + _third(group)) % 3 == 0


@lru_cache(maxsize=2000)
def entries(round_: int) -> int:
    """How many groups with a quota all brokers report in a round, together.

    >>> entries(700) == sum(has_group(b, g) for b in brokers(700) for g in groups(700))
    True
    """
    of_brokers, of_groups = (Counter(map(_third, names(round_))) for names in (brokers, groups))
    return sum(count * of_groups[-third % 3] for third, count in of_brokers.items())


@lru_cache(maxsize=1000)
def _third(name: str) -> int:
    """The same in each process, other than ``hash``."""
    return sum(ord(letter) * (place + 1) for place, letter in enumerate(name)) % 3
