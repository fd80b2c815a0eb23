"""The end of a micro-batch: one round's outputs to the history, then to the limits topic."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow_ipc import unpack
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.quota.letter_budget import LetterBudget
from quotaplane.streams.quota.report_watch import DUPLICATE, OUTDATED, Arrivals, ReportWatch
from quotaplane.streams.status import RoundCounts
from quotaplane.transport.base import Message, Transport
from quotaplane.wire.reasons import FUTURE, NOT_BAD, STALE
from quotaplane.wire.rejected_reports import median_time_ms, reports_by_reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTERS: Final = ("reports", "limits", "quota_changes")
GAUGES: Final = ("brokers_live", "brokers_stale", "lag_s")
"""What the status line of the quota job shows; docs/runbook.md says what each means."""

_SHARED: Final = ("reports", "duplicates", "outdated")
"""Counts that every shard reports alike, as each hears of every report."""
_GREATEST: Final = ("now_ms", "brokers_live", "brokers_stale", "newest_report_ms")
_EXAMPLES: Final = 3


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
        watch: ReportWatch,
        lines: JobLines,
    ) -> None:
        self._history = history
        self._transport = transport
        self._positions = positions
        self._epoch = epoch
        self._watch = watch
        self._lines = lines
        self._letters = LetterBudget()

    def __call__(self, outputs: DataFrame, seq: int) -> None:
        self._watch.check()
        began_s = time.monotonic()
        packed: dict[str, list[bytes]] = defaultdict(list)
        # As Arrow: rows would be pickled in the JVM and be read one by one here.
        for kind, payload in zip(*map(pa.ChunkedArray.to_pylist, outputs.toArrow()), strict=True):
            packed[kind].append(payload)
        arrivals = self._write(packed, seq) if packed else Arrivals()
        for kind, text in self._watch.round_ended(began_s, arrivals):
            self._lines.say(kind, text)

    def _write(self, packed: dict[str, list[bytes]], seq: int) -> Arrivals:
        """Write a round's outputs; returns what it read."""
        counts, rejected = _added_up(list(map(json.loads, packed.pop("counts"))))
        tables = {name: _joined(payloads) for name, payloads in packed.items()}
        messages = _messages(tables.pop("messages", None))
        if "brokers" in tables:  # every shard notices a broker's change of status by itself
            tables["brokers"] = _distinct(tables["brokers"])
        now_ms = counts["now_ms"]
        letters = tables.get("rejected_reports")
        if letters is not None:
            tables["rejected_reports"] = self._letters.cut(letters, now_ms)
        tables["rounds"] = _round_row(counts, self._positions(seq))
        self._history.append_round(Round(self._epoch, seq, now_ms), tables)
        self._transport.publish(messages)
        arrivals = _arrivals(counts, letters)
        self._lines.status.add(_shown(counts, rejected, arrivals.total))
        return arrivals


def _arrivals(counts: Mapping[str, int], letters: pa.Table | None) -> Arrivals:
    refused: dict[str, int] = {DUPLICATE: counts["duplicates"], OUTDATED: counts["outdated"]}
    if letters is None:
        return Arrivals(counts["reports"], refused)
    # Not those about some entries of a report that is used otherwise, or about a definition.
    good = pc.is_in(letters["reason"], value_set=pa.array(sorted(NOT_BAD)))
    whole = letters.filter(pc.or_(letters["counts_as_bad"], good))
    refused |= reports_by_reason(whole)
    by_time = whole.filter(pc.is_in(whole["reason"], value_set=pa.array([STALE, FUTURE])))
    at_ms = median_time_ms(*(by_time[name].to_numpy() for name in ("published_at_ms", "reports")))
    age_s = (counts["now_ms"] - at_ms) / 1000 if at_ms >= 0 else None
    examples = tuple(whole["position"].slice(0, _EXAMPLES).to_pylist())
    return Arrivals(counts["reports"], refused, age_s, examples)


def _shown(counts: Mapping[str, int], rejected: Mapping[str, int], arrived: int) -> RoundCounts:
    gauges: dict[str, float] = {name: counts[name] for name in ("brokers_live", "brokers_stale")}
    if counts["newest_report_ms"]:
        gauges["lag_s"] = time.time() - counts["newest_report_ms"] / 1000
    return RoundCounts(
        counts={
            "reports": counts["reports"],
            "limits": counts["limits_sent"],
            "quota_changes": counts["quota_changes"],
        },
        rejected={**rejected, DUPLICATE: counts["duplicates"], OUTDATED: counts["outdated"]},
        gauges=gauges,
        arrived=arrived,
    )


def _messages(table: pa.Table | None) -> list[Message]:
    if table is None:
        return []
    return list(map(Message, table["broker"].to_pylist(), table["value"].to_pylist()))


def _added_up(of_shards: Sequence[dict[str, Any]]) -> tuple[dict[str, int], dict[str, int]]:
    """A round's counts over all shards, and how much was rejected by reason."""
    total: dict[str, int] = {}
    rejected: Counter[str] = Counter()
    for counts in of_shards:
        rejected.update(counts.pop("rejected_by_reason"))
        for name, value in counts.items():
            alike = name in _SHARED or name in _GREATEST
            before = total.get(name, 0)
            total[name] = max(before, value) if alike else before + value
    return total, dict(rejected)


def _round_row(counts: dict[str, Any], positions: dict[str, Any]) -> pa.Table:
    columns = {name: [value] for name, value in counts.items() if name not in _NOT_IN_TABLE}
    return pa.table({"positions": [json.dumps(positions)], **columns})


_NOT_IN_TABLE: Final = frozenset({"now_ms", "limits_changed", "brokers_stale", "newest_report_ms"})


def _joined(payloads: Sequence[bytes]) -> pa.Table:
    tables = [table for payload in payloads for table in unpack(payload)]
    return pa.concat_tables(tables, promote_options="permissive")


def _distinct(table: pa.Table) -> pa.Table:
    return table.group_by(table.column_names, use_threads=False).aggregate([])
