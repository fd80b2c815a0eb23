"""How many bundles may be on the move at once: one more while it goes well, half when it does not.

Additive increase, multiplicative decrease, as TCP and Cruise Control's adjuster do it, on the
measured time from a move's begin until the new owner serves.
"""

from __future__ import annotations


class MovePace:
    """The number of moves under way at once, between 1 and ``most``.

    >>> pace = MovePace(most=8, slow_s=2.0)
    >>> for _ in range(3):
    ...     pace.note(0.1)
    >>> pace.at_once
    3
    >>> pace.note(5.0)
    >>> pace.at_once
    1
    """

    def __init__(self, most: int, slow_s: float) -> None:
        self._most, self._slow_s = most, slow_s
        self._good = 0
        self._ignored = 0
        """Moves that began before the last decrease; they say nothing about the new pace."""
        self.at_once = 1
        self.failures_in_a_row = 0

    def note(self, took_s: float | None) -> None:
        """A move ended: how long it took; None = it failed.

        One more is allowed once all of the present number went well. Half is allowed after one that
        was slow or failed; others that were under way then don't halve it again.
        """
        self.failures_in_a_row = self.failures_in_a_row + 1 if took_s is None else 0
        ignored, self._ignored = self._ignored > 0, max(self._ignored - 1, 0)
        if took_s is not None and took_s <= self._slow_s:
            self._good += 1
            if self._good >= self.at_once and self.at_once < self._most:
                self.at_once, self._good = self.at_once + 1, 0
        elif not ignored:
            self._ignored = self.at_once - 1
            self.at_once, self._good = max(self.at_once // 2, 1), 0
