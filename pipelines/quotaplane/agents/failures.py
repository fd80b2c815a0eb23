"""Tells when something begins to fail, and when that is over: not each time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from quotaplane.errors import QuotaplaneError

_MOST: Final = 100_000
"""Things of a part that fail at once: more are not kept in mind."""

_NAMED: Final = 5

Say = Callable[[str], None]


def some(names: Collection[str]) -> str:
    """So many names that a line can be read.

    >>> some({"a", "b"}), some("gfedcba")
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    first = sorted(names)[:_NAMED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


class Trouble:
    """What fails now, by part; each part may fail on several things at once.

    >>> trouble = Trouble(print)
    >>> trouble("rates", "a", QuotaplaneError("no answer"))
    rates: a: no answer; it is tried again
    >>> trouble("rates", "b", QuotaplaneError("no answer"))
    >>> trouble("rates", "a", None)
    >>> trouble("rates", "b", None)
    rates: all well again; failed 2 times
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._failing: dict[str, set[str]] = {}
        self._times: dict[str, int] = {}
        self.errors = 0
        """So many errors, since the start."""

    def __call__(self, part: str, of: str, error: Exception | None) -> None:
        """``of`` is well, or failed like this."""
        failing = self._failing.setdefault(part, set())
        if error is None:
            if of in failing:
                failing.remove(of)
                if not failing:
                    self._say(f"{part}: all well again; failed {self._times.pop(part)} times")
            return
        self.errors += 1
        self._times[part] = self._times.get(part, 0) + 1
        if not failing:
            # A mistake of ours must not end the loop, nor stay unseen.
            kind = "" if isinstance(error, QuotaplaneError) else f"{type(error).__name__}: "
            self._say(f"{part}: {f'{of}: ' if of else ''}{kind}{error}; it is tried again")
        if len(failing) < _MOST:
            failing.add(of)

    def forget(self, part: str, of: str) -> None:
        """It is gone, and with it its trouble."""
        self(part, of, None)

    def retain(self, part: str, stays: Callable[[str], bool]) -> None:
        """Forget what is gone of a part; as long as something fails, new trouble is not told."""
        for of in [of for of in self._failing.get(part, ()) if not stays(of)]:
            self.forget(part, of)
