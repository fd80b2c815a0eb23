"""When to believe a cluster's answer that something is gone: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

TIMES: Final = 3
"""Many things must be missing in so many answers in a row."""

FEW: Final = 3
_FEW_SHARE: Final = 0.1
_NAMED: Final = 5


class Vanished:
    """Counts in how many answers in a row things were missing.

    A few may go at once: at most 3, or a tenth of all. More than that is doubted, as one wrong
    answer (an empty list) would lose everything: only what is missing three times in a row is gone.
    The count is kept in memory only, so after a restart it begins again.

    >>> vanished = Vanished()
    >>> [sorted(vanished.believed("abcd", of=4)) for _ in range(3)]
    [[], [], ['a', 'b', 'c', 'd']]
    >>> sorted(vanished.believed("abc", of=4))
    ['a', 'b', 'c']
    """

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def believed(self, missing: Collection[str], of: int) -> set[str]:
        """Which of those that are missing from this answer are gone; ``of`` is how many there were,
        with the missing ones.
        """
        self._times = {name: self._times.get(name, 0) + 1 for name in missing}
        if len(missing) <= max(FEW, _FEW_SHARE * of):
            return set(missing)
        return {name for name, times in self._times.items() if times >= TIMES}

    def begin_again(self) -> None:
        """The row is over: there was no answer, or nothing was missing from it."""
        self._times.clear()


def some_of(names: Iterable[str]) -> str:
    """So many names that a line can be read.

    >>> some_of("cab"), some_of("abcdefg")
    ("'a', 'b', 'c'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    ordered = sorted(names)
    more = len(ordered) - _NAMED
    listed = ", ".join(map(repr, ordered[:_NAMED]))
    return f"{listed} and {more} more" if more > 0 else listed
