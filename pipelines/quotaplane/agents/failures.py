"""Logs failures of a long-running program: one line at the first failure and one at recovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from quotaplane.errors import QuotaplaneError
from quotaplane.texts import first_few

_MOST: Final = 100_000
"""Failing items that are remembered per part."""

Say = Callable[[str], None]


def first_names(names: Collection[str]) -> str:
    """The first few names in order, for a line of output."""
    return first_few(sorted(names))


class FailureLog:
    """Current failures by part of the program; a part may fail on several items at once.

    >>> failures = FailureLog(print)
    >>> failures.note("rates", "a", QuotaplaneError("no answer"))
    rates: a: no answer; retrying
    >>> failures.note("rates", "b", QuotaplaneError("no answer"))
    >>> failures.note("rates", "a", None)
    >>> failures.note("rates", "b", None)
    rates: recovered after 2 failures
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._failing: dict[str, set[str]] = {}
        self._times: dict[str, int] = {}
        self.by_part: Counter[str] = Counter()
        """Failures since the start."""

    @property
    def total(self) -> int:
        """Failures of all parts since the start."""
        return self.by_part.total()

    def note(self, part: str, item: str, error: Exception | None) -> None:
        """Record that an item failed with an error, or succeeded (None)."""
        failing = self._failing.setdefault(part, set())
        if error is None:
            if item in failing:
                failing.remove(item)
                if not failing:
                    self._say(f"{part}: recovered after {_times(self._times.pop(part))}")
            return
        self.by_part[part] += 1
        self._times[part] = self._times.get(part, 0) + 1
        if not failing:
            # A bug must not end the loop, but must be visible: name the exception's type.
            kind = "" if isinstance(error, QuotaplaneError) else f"{type(error).__name__}: "
            self._say(f"{part}: {f'{item}: ' if item else ''}{kind}{error}; retrying")
        if len(failing) < _MOST:
            failing.add(item)

    def forget(self, part: str, item: str) -> None:
        """Stop counting an item as failing, because it no longer exists."""
        self.note(part, item, None)

    def retain(self, part: str, stays: Callable[[str], bool]) -> None:
        """Forget those of a part's items for which ``stays`` is false."""
        for item in [item for item in self._failing.get(part, ()) if not stays(item)]:
            self.forget(part, item)


def _times(failures: int) -> str:
    return "1 failure" if failures == 1 else f"{failures} failures"
