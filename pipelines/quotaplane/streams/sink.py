"""The end of a micro-batch: one round's outputs to the history, then to the limits topic."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quotaplane.errors import TooManyBadReportsError
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.packing import unpack
from quotaplane.transport import Message, Transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHARED = ("reports", "duplicates", "outdated")
"""Counts that every shard reports alike, as each hears of every report."""


class BadShare:
    """Stops the job when too many of the latest reports could not be used.

    It is asked before a round, not after: the round that was too much is then committed, and a
    restart goes on behind it instead of failing at it again.

    >>> share = BadShare(max_share=0.5, window=10)
    >>> share.note(good=8, bad=2)
    >>> share.note(good=0, bad=12)
    >>> share.check()
    Traceback (most recent call last):
        ...
    quotaplane.errors.TooManyBadReportsError: 12 of the last 12 reports could not be used \
(reports.max_bad_share is 0.5): see the table rejected_reports for why
    """

    def __init__(self, max_share: float, window: int) -> None:
        self._max_share = max_share
        self._window = window
        self._rounds: deque[tuple[int, int]] = deque()

    def note(self, good: int, bad: int) -> None:
        """Count a round's reports."""
        if not good + bad:
            return
        self._rounds.append((good, bad))
        # Whole rounds: as many as it takes to fill the window.
        while sum(map(sum, self._rounds)) - sum(self._rounds[0]) >= self._window:
            self._rounds.popleft()

    def check(self) -> None:
        """Stop if the rounds noted so far say so.

        Raises:
            TooManyBadReportsError: of at least a window of reports more than the share were bad.
        """
        bad = sum(bad for _, bad in self._rounds)
        total = sum(map(sum, self._rounds))
        if total >= self._window and bad > self._max_share * total:
            raise TooManyBadReportsError(
                f"{bad} of the last {total} reports could not be used (reports.max_bad_share is "
                f"{self._max_share:g}): see the table rejected_reports for why"
            )


class RoundSink:
    """``foreachBatch``'s function.

    The micro-batch is run once, by the collect; its outputs are small (bytes packed by shard).
    History comes first, so that no broker acts on a limit that nobody can audit; both may happen
    again after a crash: the history drops what it has, and limits are absolute.
    """

    def __init__(
        self,
        history: HistoryWriter,
        transport: Transport,
        positions: Callable[[int], dict[str, Any]],
        epoch: int,
        bad_share: BadShare,
    ) -> None:
        self._history = history
        self._transport = transport
        self._positions = positions
        self._epoch = epoch
        self._bad_share = bad_share

    def __call__(self, outputs: DataFrame, seq: int) -> None:
        self._bad_share.check()
        packed: dict[str, list[bytes]] = defaultdict(list)
        # As Arrow: rows would be pickled in the JVM and be read one by one here.
        for kind, payload in zip(*map(pa.ChunkedArray.to_pylist, outputs.toArrow()), strict=True):
            packed[kind].append(payload)
        if not packed:
            return
        counts = _added_up(list(map(json.loads, packed.pop("counts"))))
        tables = {name: _joined(payloads) for name, payloads in packed.items()}
        messages = _messages(tables.pop("messages", None))
        if "brokers" in tables:  # every shard notices a broker's change of status by itself
            tables["brokers"] = _distinct(tables["brokers"])
        bad = counts.pop("bad")
        tables["rounds"] = _round_row(counts, self._positions(seq))
        self._history.append_round(Round(self._epoch, seq, counts["now_ms"]), tables)
        self._transport.publish(messages)
        self._bad_share.note(good=counts["reports"], bad=bad)


def _messages(table: pa.Table | None) -> list[Message]:
    if table is None:
        return []
    return list(map(Message, table["broker"].to_pylist(), table["value"].to_pylist()))


def _added_up(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = dict.fromkeys(counts[0], 0)
    total["rejected_by_reason"] = Counter()
    for one in counts:
        for name, value in one.items():
            if name == "rejected_by_reason":
                total[name].update(value)
            else:
                alike = name in (*_SHARED, "now_ms", "brokers_live")
                total[name] = max(total[name], value) if alike else total[name] + value
    return total


def _round_row(counts: dict[str, Any], positions: dict[str, Any]) -> pa.Table:
    columns = {name: [value] for name, value in counts.items() if name not in _NOT_IN_TABLE}
    return pa.table({"positions": [json.dumps(positions)], **columns})


_NOT_IN_TABLE = frozenset({"now_ms", "limits_changed", "rejected_by_reason"})


def _joined(payloads: Sequence[bytes]) -> pa.Table:
    tables = [table for payload in payloads for table in unpack(payload)]
    return pa.concat_tables(tables, promote_options="permissive")


def _distinct(table: pa.Table) -> pa.Table:
    return table.group_by(table.column_names, use_threads=False).aggregate([])
