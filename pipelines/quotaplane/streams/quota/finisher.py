"""The end of a quota round: turns all shards' outputs into rows, messages and counts."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.agents.conditions import Conditions
from quotaplane.arrow import unpack
from quotaplane.history.left_out import Stretch, left_out_stretch, skipped_stretches
from quotaplane.history.table_parts import replaced_by, replacing
from quotaplane.history.tables import LEFT_OUT
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.round_counts import RoundCounts, merged
from quotaplane.streams.letter_budget import Allowance, LetterBudget
from quotaplane.streams.quota.attachments_publisher import AttachmentsPublisher
from quotaplane.streams.quota.dead_letters import UNKNOWN_GROUP
from quotaplane.streams.quota.first_limits import FirstLimits
from quotaplane.streams.quota.program import NOT_COUNTED
from quotaplane.streams.quota.recorded_program import NO_SHARD, SETTINGS, recording_rows
from quotaplane.streams.quota.recorder import BACKLOG_SKIPPED, Recorder
from quotaplane.streams.quota.report_watch import DUPLICATE, OUTDATED, Arrivals, ReportWatch
from quotaplane.streams.quota.round_status import quota_status
from quotaplane.streams.sink import Finished, Finisher, Packed, joined
from quotaplane.transport.base import Message, Transport
from quotaplane.wire.reasons import (
    FUTURE,
    NOT_BAD,
    STALE,
    TOO_MANY_REPORTS,
    TOO_MUCH,
    TWO_INCARNATIONS,
)
from quotaplane.wire.rejected_reports import condensed, median_time_ms, reports_by_reason
from quotaplane.wire.shard_inputs import REJECTED
from quotaplane.wire.signatures import SigningKeys

COUNTERS: Final = ("reports", "uncounted", "limits", "quota_changes")
GAUGES: Final = ("brokers_live", "brokers_stale", "lag_s", "unrecorded")
"""Fields of the quota job's status line; docs/operate/run-the-job.md explains them."""

IDLE_ROW_MS: Final = 30_000
"""Rounds in which nothing happened get a row of ``rounds`` this often."""

LATE_ROUNDS: Final = 20
"""After so many rounds in a row without a portion of the recorder, while reports wait for one, the
next round has one even if it is late: a job that is always late must not lose them to retention."""

MOST_NOTED: Final = 1_000_000
"""Reports whose positions may be noted for the recorder at once, and again per hour; others become
dead letters. A position takes some 50 bytes, so nobody can fill the disk with old reports."""

_SURPLUS: Final = pa.array([TOO_MANY_REPORTS, TOO_MUCH])
"""Reasons for leaving out a report because more arrived than a round reads."""

_EXAMPLES: Final = 3
_FULL: Final = 0.9
"""Part of ``most_per_batch`` from which a batch may have left reports unread."""


class QuotaFinisher(Finisher):
    """See ``sink.Finisher``.

    Args:
        watch: receives the counts of arrived reports.
        positions: returns a round's offsets, by its seq.
        settings: recorded with the first round; None: rounds are not recorded.
        law: the name of the law, for the table ``rounds``.
        interval_s: how often brokers report.
        lease_s: of limits.
        most_per_batch: reports that a batch may have; None: no limit.
        keys: sign the messages; None: they are not signed.
        between: the offsets where the input of a round, by its seq, begins and ends; for the
            recorder.
        recorder_of: makes the recorder of reports that rounds leave out; None: what rounds leave
            out is not recorded.
        recorded_ms: reports published up to then were recorded by an earlier epoch.
        most_noted: reports that may be left to the recorder at once, and again per hour.
        attachments_of: makes the publisher of attachments; None: they are not published.
    """

    def __init__(
        self,
        watch: ReportWatch,
        positions: Callable[[int], dict[str, Any]],
        settings: dict[str, Any] | None = None,
        law: str | None = None,
        *,
        interval_s: float,
        lease_s: float = 0.0,
        most_per_batch: int | None = None,
        keys: SigningKeys | None = None,
        between: Callable[[int], tuple[Any, Any]] = lambda seq: (None, None),
        recorder_of: Callable[[HistoryWriter, Transport], Recorder] | None = None,
        recorded_ms: float = -math.inf,
        most_noted: int = MOST_NOTED,
        attachments_of: Callable[[HistoryWriter, Transport], AttachmentsPublisher] | None = None,
    ) -> None:
        self._between, self._recorder_of = between, recorder_of
        self._recorder: Recorder | None = None
        self._attachments_of = attachments_of
        self._attachments: AttachmentsPublisher | None = None
        self._stamp = Round(0, 0, 0)
        self._is_behind = False
        self._without_portion = 0
        """Rounds in a row after which nothing was recorded while reports waited."""
        self._recorded_ms = recorded_ms
        self._notes = Allowance(most_noted)
        self._may_last_s = interval_s / 2
        self._law = law
        self._keys = keys
        self._watch = watch
        self._first_limits = FirstLimits(interval_s)
        self._first_lines: list[tuple[str, str]] = []
        self._lease_s = lease_s
        self._most_per_batch = most_per_batch
        self._reports_wait = False
        self._of_shards: dict[int, RoundCounts] = {}
        self._positions = positions
        self._settings = settings
        self._letters = LetterBudget(exempt={UNKNOWN_GROUP})  # their number has a limit of its own
        self._began_s = 0.0
        self._previous_ms: int | None = None
        self._row_at_ms: int | None = None
        self._has_row = False
        """The history has a row of the current round."""
        self._brokers_live = 0
        self._arrivals = Arrivals()

    def connect(self, history: HistoryWriter, transport: Transport) -> None:
        """Open the recorder, and the publisher of attachments."""
        if self._recorder_of is not None:
            self._recorder = self._recorder_of(history, transport)
        if self._attachments_of is not None:
            self._attachments = self._attachments_of(history, transport)

    def begin(self) -> None:
        """Check that reports can be used.

        Raises:
            NoUsableReportsError: no report was usable for too long, and the settings ask to stop.
        """
        self._watch.check()
        # Kafka's source rounds the part of each partition down.
        most = self._most_per_batch
        self._reports_wait = most is not None and self._arrivals.total >= _FULL * most
        self._began_s, self._arrivals = time.monotonic(), Arrivals()
        self._is_behind = self._has_row = False
        self._first_lines = []

    def finish(self, stamp: Round, packed: Packed) -> Finished:
        """Rows by history table, limits messages, and counts of all shards."""
        self._stamp = stamp
        others = ("counts", "leases", NOT_COUNTED, BACKLOG_SKIPPED)
        tables = {kind: joined(payloads) for kind, payloads in packed.items() if kind not in others}
        if "leases" in packed:
            tables["leases"] = _snapshots(packed["leases"])
        if self._settings is not None:
            row = recording_rows(NO_SHARD, [(SETTINGS, json.dumps(self._settings).encode())])
            before = [tables["recording"]] if "recording" in tables else []
            tables["recording"] = pa.concat_tables([*before, row])
            self._settings = None
        of_round = [RoundCounts.from_bytes(payload) for payload in packed.get("counts", ())]
        self._of_shards |= {counts.shard: counts for counts in of_round}
        counts = merged(of_round, self._of_shards.values())
        left_out = tables.pop(LEFT_OUT.name, REJECTED.empty_table())
        not_counted = _refused(left_out, *packed.get(NOT_COUNTED, ()))
        surplus = pc.any(pc.is_in(left_out["reason"], value_set=_SURPLUS)).as_py()
        self._is_behind = BACKLOG_SKIPPED in packed or bool(surplus)
        noted, left_out = self._divided(left_out, stamp.now_ms)
        stretches = self._left_out(stamp, noted, backlog_skipped=BACKLOG_SKIPPED in packed)
        backlog_skipped = sum(each.reports for each in stretches if each.chosen is None)
        counts = replace(counts, uncounted=len(not_counted) + backlog_skipped)
        # Before a shard has run, it is not known which groups there are.
        self._first_lines = self._first_limits.after(counts) if self._of_shards else []
        messages = _messages(tables.pop("messages", None))
        if self._keys is not None:  # here and not in the program: executors have no secrets
            messages = [each._replace(value=self._keys.sign(each.value)) for each in messages]
        if "brokers" in tables:  # each shard records a broker's change of status
            tables["brokers"] = _distinct(tables["brokers"])
        letters = tables.get("rejected_reports", REJECTED.empty_table())
        refused = pa.concat_tables([letters, not_counted])
        if len(left_out):
            letters = condensed(pa.concat_tables([letters, left_out]))
        if self._recorder is not None:
            rows = self._recorder.note(stamp, stretches)
            if rows is not None:
                tables[LEFT_OUT.name] = rows
        letters = tables["rejected_reports"] = self._letters.cut(letters, stamp.now_ms)
        tables["rounds"] = self._row(stamp, counts)
        self._arrivals = self._arrivals_of(counts, refused, stamp.now_ms)
        dead_letters = len(letters)
        self._watch.clocks.note(self._began_s, self._arrivals.ages_s)
        wrong_clocks = self._watch.clocks.wrong()
        status = quota_status(
            counts, self._arrivals, dead_letters, stamp.now_ms, self._lease_s, wrong_clocks
        )
        if self._recorder is not None:
            status.gauges["unrecorded"] = self._recorder.reports_waiting
        return Finished(tables, messages, status)

    def _divided(self, left_out: pa.Table, now_ms: int) -> tuple[pa.Table, pa.Table]:
        """Divide the reports that a round left out: noted for the recorder, and dead letters."""
        if self._recorder is None:
            return left_out.slice(0, 0), left_out
        # A new checkpoint may read reports again that an earlier one has recorded.
        new = left_out.filter(pc.greater(left_out["published_at_ms"], self._recorded_ms))
        noted = self._notes.spend(len(new), now_ms)
        return new.slice(0, noted), new.slice(noted)

    def _left_out(
        self, stamp: Round, left_out: pa.Table, *, backlog_skipped: bool
    ) -> list[Stretch]:
        """The stretches that the round leaves to the recorder."""
        if self._recorder is None or not (backlog_skipped or len(left_out)):
            return []
        begin, end = self._between(stamp.seq)
        if backlog_skipped:
            # A new checkpoint may begin far back in the topics.
            after_ms = self._recorded_ms if math.isfinite(self._recorded_ms) else None
            return skipped_stretches(begin, end, after_ms)
        return left_out_stretch(left_out["position"].to_pylist(), begin, end)

    def idle(self, stamp: Round) -> Mapping[str, pa.Table]:
        """A row of ``rounds`` if the last one is old: the history shows that the job runs."""
        self._stamp = stamp
        if self._row_at_ms is not None and stamp.now_ms - self._row_at_ms < IDLE_ROW_MS:
            return {}
        return {"rounds": self._row(stamp, RoundCounts(brokers_live=self._brokers_live))}

    def _row(self, stamp: Round, counts: RoundCounts) -> pa.Table:
        self._row_at_ms, self._brokers_live = stamp.now_ms, counts.brokers_live
        self._has_row = True
        newest_ms, oldest_ms = counts.newest_report_ms, counts.oldest_renewal_ms
        row = {
            "positions": json.dumps(self._positions(stamp.seq)),
            **counts.stored(),
            "duration_ms": _ms_since(self._began_s),
            "previous_duration_ms": self._previous_ms,
            "lag_ms": round(time.time() * 1000) - newest_ms if newest_ms else None,
            "law": self._law,
            "renewal_age_ms": stamp.now_ms - oldest_ms if oldest_ms else None,
        }
        return pa.table({name: pa.array([value]) for name, value in row.items()})

    def end(self, conditions: Conditions) -> Iterable[tuple[str, str]]:
        """States whether reports stay away or can't be used; lines about the first limits.

        Publishes attachments that have changed. Records some of the reports that were left out,
        unless the job is late; see ``LATE_ROUNDS``.
        """
        self._previous_ms = _ms_since(self._began_s)
        took_s = self._previous_ms / 1000
        self._watch.round_ended(self._began_s, self._arrivals, conditions, took_s)
        if self._attachments is not None and self._has_row:
            self._attachments.publish(self._stamp, conditions)
        if self._recorder is not None:
            late = self._is_behind or time.monotonic() - self._began_s > self._may_last_s
            if not late or self._without_portion >= LATE_ROUNDS:
                self._without_portion = 0
                self._recorder.record(self._stamp, self._letters, conditions)
            elif self._recorder.reports_waiting:
                self._without_portion += 1
        return self._first_lines

    def _arrivals_of(self, counts: RoundCounts, letters: pa.Table, now_ms: int) -> Arrivals:
        """``letters``: of all reports that were not used."""
        refused: dict[str, int] = {DUPLICATE: counts.duplicates, OUTDATED: counts.outdated}
        # After a round that did not read all, a report may be old because it waited.
        ages_s = {} if self._reports_wait else dict(counts.old_reports_s)
        # Leave out letters about single entries of a usable report, and about definitions.
        good = pc.is_in(letters["reason"], value_set=pa.array(sorted(NOT_BAD)))
        whole = letters.filter(pc.or_(letters["counts_as_bad"], good))
        refused |= reports_by_reason(whole)
        by_time = whole.filter(pc.is_in(whole["reason"], value_set=pa.array([STALE, FUTURE])))
        times = (by_time[name].to_numpy() for name in ("published_at_ms", "reports"))
        at_ms = median_time_ms(*times)
        age_s = (now_ms - at_ms) / 1000 if at_ms >= 0 else None
        examples = tuple(whole["position"].slice(0, _EXAMPLES).to_pylist())
        for sender, published_ms in zip(
            by_time["sender"].to_pylist(), by_time["published_at_ms"].to_pylist(), strict=True
        ):
            of_sender_s = (now_ms - published_ms) / 1000
            # A younger one was left out because its broker's newer ones were used.
            too_old = of_sender_s > self._lease_s and not self._reports_wait
            if sender is not None and (of_sender_s < 0 or too_old):
                ages_s[sender] = of_sender_s
        two = whole.filter(pc.equal(whole["reason"], TWO_INCARNATIONS))["sender"].unique()
        of_two = tuple(sorted(two.drop_null().to_pylist()))
        return Arrivals(counts.reports, refused, age_s, examples, ages_s, of_two)


def _snapshots(payloads: Sequence[bytes]) -> pa.Table:
    """The leases of several shards, with the numbers of these shards."""
    parts = [table for payload in payloads for table in unpack(payload)]
    shards = [shard for part in parts for shard in replaced_by(part)]
    rows = pa.concat_tables(parts, promote_options="permissive").unify_dictionaries()
    return replacing(rows, shards)


def _ms_since(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)


def _refused(left_out: pa.Table, *payloads: bytes) -> pa.Table:
    """The reports that limits are not decided with (``REJECTED``)."""
    return pa.concat_tables([left_out, *(table for each in payloads for table in unpack(each))])


def _messages(table: pa.Table | None) -> Sequence[Message]:
    if table is None:
        return []
    return list(map(Message, table["broker"].to_pylist(), table["value"].to_pylist()))


def _distinct(table: pa.Table) -> pa.Table:
    return table.group_by(table.column_names, use_threads=False).aggregate([])
