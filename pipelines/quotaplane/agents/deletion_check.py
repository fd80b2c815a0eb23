"""Decides when to believe a cluster's answer that objects no longer exist. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

TIMES: Final = 3
"""Answers in a row that must agree if many objects are missing."""

FEW: Final = 3
_FEW_SHARE: Final = 0.1


class DeletionCheck:
    """Counts in how many consecutive answers objects were missing.

    A few missing objects are believed at once: at most 3, or a tenth of all. Many are doubted,
    because one wrong answer (an empty list) would delete everything: they count as gone only after
    three answers in a row. The counts are in memory, so they begin again after a restart.

    >>> check = DeletionCheck()
    >>> [sorted(check.confirmed("abcd", of=4)) for _ in range(3)]
    [[], [], ['a', 'b', 'c', 'd']]
    >>> sorted(check.confirmed("abc", of=4))
    ['a', 'b', 'c']
    """

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def confirmed(self, missing: Collection[str], of: int) -> set[str]:
        """The missing objects that are gone; ``of``: number of objects including the missing
        ones.
        """
        self._times = {name: self._times.get(name, 0) + 1 for name in missing}
        if len(missing) <= max(FEW, _FEW_SHARE * of):
            return set(missing)
        return {name for name, times in self._times.items() if times >= TIMES}

    def begin_again(self) -> None:
        """Reset the counts: there was no answer, or nothing was missing."""
        self._times.clear()
