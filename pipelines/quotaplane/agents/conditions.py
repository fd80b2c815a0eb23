"""Conditions of programs now: lines when one begins, goes on and is over; a status; a metric.

Pure but for the clock and the printing functions that it is given.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quotaplane.errors import QuotaplaneError
from quotaplane.texts import first_few

Say = Callable[[str], None]

AGAIN_AFTER_S: Final = 60.0
"""Least time between two lines of a condition: one that comes and goes must not fill the log."""
_MOST: Final = 10_000
"""Items that are remembered for each condition; anybody may invent names."""


class Condition(NamedTuple):
    """A thing that can be wrong; ``known_conditions`` has all of them."""

    name: str
    """Each of its lines begins with it; label of the metric ``quotaplane_condition``."""
    meaning: str
    unready: bool = False
    """The program can't do its work meanwhile."""
    forget_s: float = math.inf
    """It is over for an item that was not noted for so long."""
    remind_s: float = math.inf
    """A line comes again after so long, while it goes on."""
    text: str = ""
    """Its line, with ``{}`` for the items; empty: each call gives its own."""


@dataclass
class _Standing:
    """A condition now; it is over if it has no items."""

    items: dict[str, float] = field(default_factory=dict)
    """When each was noted last; the oldest is the first."""
    said: frozenset[str] = frozenset()
    """The items that lines were about; empty: nothing was said since it began."""
    begun_s: float | None = None
    said_s: float = -math.inf
    times: int = 0
    unsaid: int = 0
    """Times since the last line."""


class Conditions:
    """The conditions of one program. Thread-safe.

    A condition is about the program or about items of it: brokers, groups, requests. A line is
    printed when it begins, or when it is about another item, but not sooner than ``AGAIN_AFTER_S``
    after its last line; and when it is over, if its begin was said.

    Args:
        say: prints that something is wrong.
        say_over: prints that it is over; None: ``say``.
        clock: monotonic, in seconds.

    >>> conditions = Conditions(print, clock=iter([0.0, 2.0, 70.0, 80.0, 99.0]).__next__)
    >>> slow = Condition("slow disks", "a disk is slow")
    >>> conditions.note(slow, "sda", "0.5 s per write")
    slow disks: sda: 0.5 s per write
    >>> conditions.note(slow, "sdb", QuotaplaneError("no answer"))
    >>> conditions.note(slow, "sdb", QuotaplaneError("no answer"))
    slow disks: still: sdb: no answer; retrying (2 times since the last line)
    >>> conditions.set(slow, ["sdb"], "0.9 s per write")
    >>> conditions.set(slow, [], "")
    slow disks: over after 99 s (2 times)
    """

    def __init__(
        self, say: Say, say_over: Say | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.say, self._say_over, self._clock = say, say_over or say, clock
        self._lock = threading.RLock()
        self._known: dict[Condition, _Standing] = {}
        self.failures: Counter[str] = Counter()
        """Exceptions that were noted since the start, by the condition's name."""

    def set(self, what: Condition, about: Collection[str], text: str = "") -> None:
        """State that exactly these items are wrong now; ``text``: the line, if not declared."""
        with self._lock:
            now_s, standing = self._now(what)
            for gone in standing.items.keys() - about:
                del standing.items[gone]
            if about:
                new_first = sorted(about, key=lambda item: (item in standing.said, item))
                text = text or what.text.format(first_few(map(repr, new_first)))
                self._go_on(what, standing, frozenset(about), text, now_s)
            else:
                self._end(what, standing, now_s)

    def set_each(self, what: Condition, wrong: Mapping[str, str]) -> None:
        """As ``set``, with a text for each item; a line has those of new items first."""
        with self._lock:
            said = self._now(what)[1].said
            new_first = sorted(wrong, key=lambda item: (item in said, item))
            self.set(what, wrong, first_few(wrong[item] for item in new_first))

    def note(
        self, what: Condition, item: str, wrong: str | Exception | None, times: int = 0
    ) -> None:
        """State that one item is wrong, and how, or is not (None); "" is the program itself.

        ``times``: counted in later lines. An exception is a failure of what is tried again.
        """
        with self._lock:
            now_s, standing = self._now(what)
            if wrong is None:
                if standing.items.pop(item, None) is not None:
                    self._end(what, standing, now_s)
                return
            if isinstance(wrong, Exception):
                self.failures[what.name] += 1
                wrong, times = f"{describe_error(wrong)}; retrying", 1
            standing.times += times
            standing.unsaid += times
            text = f"{item}: {wrong}" if item else wrong
            self._go_on(what, standing, frozenset({item}), text, now_s)

    def retain(self, what: Condition, stays: Callable[[str], bool]) -> None:
        """Forget the items for which ``stays`` is false: they do not exist any more."""
        with self._lock:
            now_s, standing = self._now(what)
            if gone := [item for item in standing.items if not stays(item)]:
                for item in gone:
                    del standing.items[item]
                self._end(what, standing, now_s)

    def items(self, what: Condition) -> frozenset[str]:
        """The items that this is wrong with now."""
        with self._lock:
            return frozenset(self._now(what)[1].items)

    def active(self) -> dict[str, list[str]]:
        """All that is wrong now: items by the condition's name; [""] is the program itself."""
        with self._lock:
            now = {what.name: sorted(self.items(what)) for what in self._known}
        return {name: items for name, items in sorted(now.items()) if items}

    def numbers(self) -> dict[tuple[str, ...], float]:
        """The metric ``quotaplane_condition``: how many items there are, by the name."""
        return {(name,): len(items) for name, items in self.active().items()}

    def _now(self, what: Condition) -> tuple[float, _Standing]:
        """The time, and how the condition stands without items that are forgotten."""
        now_s, standing = self._clock(), self._known.setdefault(what, _Standing())
        items = standing.items
        if items and now_s - next(iter(items.values())) >= what.forget_s:
            for item, noted_s in [*items.items()]:
                if now_s - noted_s < what.forget_s:
                    break
                del items[item]
            self._end(what, standing, now_s)
        return now_s, standing

    def _go_on(
        self, what: Condition, standing: _Standing, about: frozenset[str], text: str, now_s: float
    ) -> None:
        if standing.begun_s is None:
            standing.begun_s = now_s
        for item in about:
            standing.items.pop(item, None)  # so that the last one is the one noted last
            if len(standing.items) < _MOST:
                standing.items[item] = now_s
        wait_s = what.remind_s if about <= standing.said else min(AGAIN_AFTER_S, what.remind_s)
        # Also after a clock was set back.
        if 0.0 <= now_s - standing.said_s < wait_s:
            return
        still = "still: " if standing.said else ""
        more = (
            f" ({standing.unsaid} times since the last line)" if still and standing.unsaid else ""
        )
        standing.said = (standing.said & standing.items.keys()) | about
        standing.said_s, standing.unsaid = now_s, 0
        self.say(f"{what.name}: {still}{text}{more}")

    def _end(self, what: Condition, standing: _Standing, now_s: float) -> None:
        if standing.items or standing.begun_s is None:
            return
        if standing.said:
            times = f" ({standing.times} times)" if standing.times > 1 else ""
            lasted_s = max(0.0, now_s - standing.begun_s)
            self._say_over(f"{what.name}: over after {lasted_s:.0f} s{times}")
        self._known[what] = _Standing(said_s=standing.said_s)


def describe_error(error: Exception) -> str:
    """The text of an error; of a bug, which must not end a long-running program, with its type.

    >>> describe_error(QuotaplaneError("no answer")), describe_error(KeyError("b"))
    ('no answer', "KeyError: 'b'")
    """
    return str(error) if isinstance(error, QuotaplaneError) else f"{type(error).__name__}: {error}"
