"""The begin of a limit's lease, on a clock that can't be set."""

from __future__ import annotations


def issued_on_steady_clock(issued_at_ms: int, wall_ms: float, steady_ms: float) -> int:
    """The time of issue of a message that arrives now, on a clock that can't be set.

    Not later than now, so no limit holds for longer than a lease after it arrived, however wrong
    the reader's clock or the job's is.

    >>> issued_on_steady_clock(9_000, wall_ms=10_000, steady_ms=500)
    -500
    >>> issued_on_steady_clock(3_610_000, wall_ms=10_000, steady_ms=500)
    500
    """
    return int(steady_ms - max(wall_ms - issued_at_ms, 0.0))
