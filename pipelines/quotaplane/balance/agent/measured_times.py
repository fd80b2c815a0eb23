"""When a broker's numbers were measured, as far as a reader can know. No I/O, no clock."""

from __future__ import annotations


class MeasuredTimes:
    """The earliest time at which each broker may have measured what it answers.

    A stock broker measures its bundles every ``stats_interval_s`` and does not say when. New
    numbers were measured after the previous read; unchanged ones when they were new, or later, but
    never longer ago than the interval. At a broker's first read only the latter is known.

    >>> times = MeasuredTimes(stats_interval_s=60)
    >>> [times.note("b1", mark, at_ms) for mark, at_ms in
    ...     [(b"x", 100_000), (b"y", 110_000), (b"y", 120_000), (b"y", 200_000)]]
    [40000, 100000, 100000, 140000]
    """

    def __init__(self, stats_interval_s: float) -> None:
        self._interval_ms = stats_interval_s * 1000.0
        self._known: dict[str, tuple[bytes, int, int]] = {}
        """By broker: mark of its numbers, when they were measured, time of the last read."""

    def note(self, broker: str, mark: bytes, read_at_ms: int) -> int:
        """A broker answered numbers with this mark; returns when they were measured."""
        oldest = int(read_at_ms - self._interval_ms)
        if broker not in self._known:
            measured = oldest
        else:
            before, measured, last_read = self._known[broker]
            measured = max(last_read if mark != before else measured, oldest)
        self._known[broker] = (mark, measured, read_at_ms)
        return measured

    def forget(self, broker: str) -> None:
        """The broker is gone."""
        self._known.pop(broker, None)
