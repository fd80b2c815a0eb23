"""Is each report in the history once? Compares what brokers sent with what a job recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import isclose
from typing import Any, NamedTuple

Row = Mapping[str, Any]

USAGE_COLUMNS = ("broker", "publish_messages_per_s", "publish_bytes_per_s", "window_ms")
ROUNDS_COLUMNS = ("epoch", "seq", "reports", "uncounted")


class Tally(NamedTuple):
    """Reports that were sent, and what the history has of them."""

    sent: int
    counted: int
    """Those sent that are in ``usage``, each once."""
    lost: int
    doubled: int
    """Rows too many: of a report that has a row, or that nobody has sent."""
    decided: int
    """Reports in ``rounds``: used for decisions, or recorded only."""
    rounds_doubled: int
    messages_sent: float
    """All messages that the brokers say were used."""
    messages_counted: float

    @property
    def complete(self) -> bool:
        """Whether all that was sent is in the history, once or more often."""
        return not self.lost and self.decided >= self.sent

    @property
    def exact(self) -> bool:
        """Whether each report counts once: in usage, in rounds, and in the sum of messages."""
        return (
            not (self.lost or self.doubled or self.rounds_doubled)
            and self.decided == self.sent
            and isclose(self.messages_sent, self.messages_counted)
        )


def tally(
    sent: Mapping[tuple[str, int], float], usage: Iterable[Row], rounds: Iterable[Row]
) -> Tally:
    """Compare.

    Args:
        sent: messages used, by broker and number of the report. A report has its number as the rate
            of published bytes.
        usage: rows with ``USAGE_COLUMNS``.
        rounds: rows with ``ROUNDS_COLUMNS``.

    >>> row = {"broker": "a", "publish_messages_per_s": 30.0, "publish_bytes_per_s": 1.0}
    >>> rounds = [{"epoch": 1, "seq": 0, "reports": 2, "uncounted": 0}]
    >>> found = tally({("a", 1): 60.0, ("a", 2): 60.0}, [{**row, "window_ms": 2000}], rounds)
    >>> found.counted, found.lost, found.doubled, found.messages_counted, found.exact
    (1, 1, 0, 60.0, False)
    """
    rows, of_rounds = list(usage), list(rounds)
    recorded = Counter((row["broker"], round(row["publish_bytes_per_s"])) for row in rows)
    counted = len(sent.keys() & recorded.keys())
    seqs = {(row["epoch"], row["seq"]) for row in of_rounds}
    return Tally(
        sent=len(sent),
        counted=counted,
        lost=len(sent) - counted,
        doubled=len(rows) - counted,
        decided=sum(row["reports"] + row["uncounted"] for row in of_rounds),
        rounds_doubled=len(of_rounds) - len(seqs),
        messages_sent=sum(sent.values()),
        messages_counted=sum(
            row["publish_messages_per_s"] * row["window_ms"] / 1000 for row in rows
        ),
    )
