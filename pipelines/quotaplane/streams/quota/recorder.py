"""Records reports that rounds did not read, as they were too old or too many to decide with.

A round notes them in the table ``left_out``; the recorder reads them from their topics again, a
portion after a round, and appends their entries to ``usage`` as not counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import Transaction

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import LOST, UNRECORDED
from quotaplane.arrays import find
from quotaplane.errors import TransportError
from quotaplane.groups.ids import ids_of
from quotaplane.history.left_out import (
    RECORDER,
    CountedWindows,
    Stretch,
    defined_groups,
    known_brokers,
    rows_of,
    stretch,
    waiting,
)
from quotaplane.history.tables import REJECTED_REPORTS, USAGE
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import RATE_COLUMNS, BoolArray, IntArray, Round
from quotaplane.quota.report_matching import with_same_name
from quotaplane.quota.report_tables import summed, used_entries
from quotaplane.settings import Settings
from quotaplane.streams.letter_budget import LetterBudget
from quotaplane.streams.letters import letters_of, letters_of_senders
from quotaplane.streams.new_brokers import beyond_max_brokers
from quotaplane.streams.quota.dead_letters import UNKNOWN_GROUP
from quotaplane.streams.quota.history_rows import usage_history
from quotaplane.streams.sender_checks import SenderChecks
from quotaplane.transport.base import Transport, is_stored
from quotaplane.wire.reasons import GONE, TOO_MANY_BROKERS
from quotaplane.wire.rejected_reports import condensed
from quotaplane.wire.reports import decode
from quotaplane.wire.sender_rules import AllowedBrokers, SenderRules
from quotaplane.wire.shard_inputs import REJECTED, Decoded, some_reports

MOST_REPORTS: Final = 1000
MOST_BYTES: Final = 4 << 20
"""A portion ends after so many reports, or with the report that reaches so many bytes."""

BACKLOG_SKIPPED: Final = "backlog_skipped"
"""Output of a batch that skips its input; the payload is empty."""

_MOST_STRETCHES: Final = 8
"""Stretches of a portion: to begin one may take a tenth of a second, for a new connection."""
_AT_ONCE: Final = 100
"""Reports that are decoded together, as by Spark."""
_KNOWN_S: Final = 60.0
"""How long the lists of groups and brokers are used before they are read again."""
_SHOWN: Final = 3
_AGAIN_AFTER_S: Final = 60.0


class Recorder:
    """The reports that are still to be recorded. Not thread-safe.

    Args:
        history: appends to ``usage`` and ``rejected_reports``.
        transport: reads the reports again.
        settings: of the job.
        allowed: the names that brokers may have; None: every name.
        most_reports, most_bytes: of a portion. It also ends after a quarter of an interval.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        history: HistoryWriter,
        transport: Transport,
        settings: Settings,
        allowed: Callable[[], AllowedBrokers | None] = lambda: None,
        *,
        most_reports: int = MOST_REPORTS,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history, self._tables, self._transport = history, settings.history, transport
        self._reports, self._allowed = settings.reports, allowed
        self._checks = SenderChecks.of(settings.reports, settings.own_topics[0])
        self._most_reports, self._most_bytes, self._clock = most_reports, most_bytes, clock
        # Reports that rounds used lie between them: a lot may have to be read for a few.
        self._may_last_s = settings.reports.interval_s / 4
        # Where own reports can be read again, observations of the same usage would count twice.
        observed = settings.enforce.report_topic
        others = [topic for topic in settings.own_topics[0] if topic != observed]
        self._with_observed = not any(map(is_stored, others))
        self._done = self._committed = history.newest(USAGE.name, RECORDER) or 0
        stretches, self._last, self._noted = waiting(self._tables, self._done)
        self._waiting = deque(stretches)
        self._reading: _Reading | None = None
        self._groups: _Groups | None = None
        self._gone = self._undefined = 0
        self._not_until_s = self._known_until_s = float("-inf")
        self._taken_in: set[str] = set()
        """Brokers that no round knew, of which a report was recorded."""

    @property
    def reports_waiting(self) -> int:
        """Reports that are still to be recorded."""
        return self._last - self._done

    def note(self, stamp: Round, left_out: list[Stretch]) -> pa.Table | None:
        """Take in what a round left out (``number`` is not used); rows for ``left_out``.

        None: nothing, or the round noted it before it ran again.
        """
        if not left_out or (stamp.epoch, stamp.seq) <= self._noted:
            return None
        numbered = []
        for each in left_out:
            numbered.append(each._replace(number=self._last))
            self._last += each.reports
        self._noted = stamp.epoch, stamp.seq
        self._waiting.extend((each.number, each.reports) for each in numbered)
        return rows_of(numbered)

    def record(self, stamp: Round, budget: LetterBudget, conditions: Conditions) -> None:
        """Record a portion, beside the round that just ended; states what is wrong.

        ``budget``: of the job's dead letters.

        Raises:
            HistoryError: the tables can't be read or written, or another process records, too.
        """
        now_s = self._clock()
        if not self._waiting or now_s < self._not_until_s:
            return
        try:
            self._portion(stamp, budget, until_s=now_s + self._may_last_s)
        except TransportError as error:
            # The portion is begun anew.
            self._reading, self._not_until_s = None, self._clock() + _AGAIN_AFTER_S
            self._waiting = deque(waiting(self._tables, self._done).stretches)
            text = f"{self.reports_waiting} wait to be recorded in usage: {error}; they are tried"
            conditions.note(UNRECORDED, "", f"{text} again in {_AGAIN_AFTER_S:.0f} s")
            return
        conditions.note(UNRECORDED, "", None)
        if self._gone:
            gone, self._gone = self._gone, 0
            text = (
                f"{gone} that rounds left out are missing in usage: their topics lost them before "
                "they were recorded. Dead letters with the reason gone, in the table "
                "rejected_reports, say which; let the topics keep reports for longer than a pause "
                "of the job"
            )
            conditions.note(LOST, "", text, gone)

    def _portion(self, stamp: Round, budget: LetterBudget, *, until_s: float) -> None:
        found: list[tuple[Decoded, BoolArray]] = []
        letters = [REJECTED.empty_table()]
        self._undefined = 0
        reports = size_bytes = ended = gone = 0
        done = self._done
        while (
            self._waiting
            and reports < self._most_reports
            and size_bytes < self._most_bytes
            and ended < _MOST_STRETCHES
            and self._clock() < until_s
        ):
            reading = self._opened()
            piece = reading.next_piece()
            done = reading.stretch.number + reading.taken
            if piece is not None:
                piece = reading.new_of(piece)
                if not len(piece):
                    continue
                reports, size_bytes = reports + len(piece), size_bytes + piece.nbytes
                decoded = self._decoded(piece, stamp.now_ms)
                found.append((decoded, reading.first_of(decoded.headers)))
                letters.append(decoded.rejected)
                continue
            done = reading.stretch.last
            letters.append(reading.gone_letter())
            gone += reading.stretch.reports - reading.taken
            ended += 1
            self._reading = None
            self._waiting.popleft()
        rows = [self._rows(*each) for each in self._let_in(found, letters, stamp)]
        letters.append(self._undefined_letter(stamp))
        refused = budget.cut(condensed(pa.concat_tables(letters)), stamp.now_ms)
        self._commit(stamp, rows, refused, done)
        self._gone += gone

    def _opened(self) -> _Reading:
        """The stretch that is being read, or the next one."""
        if self._reading is None:
            found = stretch(self._tables, *self._waiting[0])
            self._reading = _Reading(found, self._transport, max(self._done - found.number, 0))
            if self._clock() >= self._known_until_s:
                self._groups = _Groups(defined_groups(self._tables))
                self._brokers = known_brokers(self._tables)
                self._known_until_s = self._clock() + _KNOWN_S
        return self._reading

    def _decoded(self, piece: pa.RecordBatch, now_ms: int) -> Decoded:
        allowed = self._allowed()
        if allowed is not None and not allowed.patterns:
            # A broker that left the cluster's list since was in it when it reported.
            allowed = replace(allowed, names=allowed.names | self._brokers)
        return decode(
            piece["value"].to_pylist(),
            piece["published_at_ms"].to_numpy(),
            piece["position"].to_pylist(),
            now_ms=now_ms,
            reports=self._reports,
            senders=SenderRules(self._checks.named(piece), self._checks.source, allowed),
        )

    def _let_in(
        self, found: list[tuple[Decoded, BoolArray]], letters: list[pa.Table], stamp: Round
    ) -> Iterator[tuple[Decoded, BoolArray]]:
        """``found``, without reports of brokers beyond the bounds that rounds have, too.

        Observations of usage that is known otherwise are left out, too.
        """
        if not found:
            return
        names = ["broker", "position", "published_at_ms", "window_s", "observed"]
        parts = [
            decoded.headers.select([n for n in names if n in decoded.headers.column_names])
            for decoded, _ in found
        ]
        headers = pa.concat_tables(parts, promote_options="default")
        known = [*self._brokers | self._taken_in]
        most = self._reports.max_brokers
        refused, beyond = beyond_max_brokers(known, headers["broker"], most, stamp)
        detail = f"{beyond}; reports.max_brokers is {most}"
        rows = headers.filter(pa.array(refused))
        letters.append(letters_of_senders(rows, TOO_MANY_BROKERS, detail))
        kept = ~refused
        if "observed" in headers.column_names:
            kept &= ~self._known_otherwise(headers)
        recorded = pc.unique(headers["broker"].filter(pa.array(kept))).to_pylist()
        self._taken_in |= set(recorded) - self._brokers
        at = 0
        for decoded, first in found:
            yield decoded, first & kept[at : at + len(first)]
            at += len(first)

    def _rows(self, decoded: Decoded, kept: BoolArray) -> pa.Table:
        """Rows of ``usage``."""
        headers, entries = some_reports(decoded.headers, decoded.entries, kept)
        assert self._groups is not None  # the stretch is open
        chosen, group = self._groups.of(entries)
        self._undefined += len(entries) - len(chosen)
        counted = np.zeros(len(chosen), bool)
        totals = summed(entries, chosen, self._groups.dimensions)
        return usage_history(
            used_entries(entries, headers, chosen, self._groups.names, group, totals, counted)
        )

    def _known_otherwise(self, headers: pa.Table) -> BoolArray:
        """(n,) observations of usage by other reports.

        Those are brokers' own that can be read again, or reports that limits were decided with:
        the job was there, and did not need these observations.
        """
        observed: BoolArray = headers["observed"].fill_null(False).to_numpy()
        if not self._with_observed or not observed.any():
            return observed
        of = headers.filter(pa.array(observed))
        window_ms = of["window_s"].to_numpy() * 1000
        middle_ms = of["published_at_ms"].to_numpy() - window_ms / 2
        longest_ms = max(self._reports.interval_s * 1000, window_ms.max())
        counted = CountedWindows(self._tables, middle_ms.min(), middle_ms.max() + longest_ms)
        known = observed.copy()
        known[observed] = counted.cover(of["broker"].to_pylist(), middle_ms)
        return known

    def _undefined_letter(self, stamp: Round) -> pa.Table:
        """A dead letter, if entries of the portion are of groups that are not defined."""
        return letters_of(
            min(self._undefined, 1),
            reason=UNKNOWN_GROUP,
            position=f"left_out@{self._done}",
            published_at_ms=-1,
            detail=f"{self._undefined} entries of reports that rounds left out are of groups that "
            "are not defined: usage lacks them",
            reports=0,
        )

    def _commit(self, stamp: Round, rows: Sequence[pa.Table], letters: pa.Table, done: int) -> None:
        """Append to the tables, in one commit each; that of ``usage`` is the progress."""
        of = Transaction(RECORDER, done)
        if len(letters):
            self._history.append(REJECTED_REPORTS.name, letters, stamp, of)
        used = pa.concat_tables(rows, promote_options="permissive") if rows else pa.table({})
        if len(used):
            self._history.append(USAGE.name, used, stamp, of, since=self._committed)
            self._committed = done
        self._done = done


class _Reading:
    """A stretch that is being read; ``skip``: so many of its reports are done."""

    def __init__(self, of: Stretch, transport: Transport, skip: int) -> None:
        self.stretch, self.taken = of, skip
        self._missing = dict.fromkeys(of.chosen or ())
        self._known: set[tuple[Any, ...]] = set()
        self._pieces = self._read(transport, skip)

    def next_piece(self) -> pa.RecordBatch | None:
        """The next reports (``READ_AGAIN``), few at a time or none; None: there are no more."""
        piece = next(self._pieces, None)
        self.taken += 0 if piece is None else len(piece)
        return piece

    def new_of(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """The reports that no earlier epoch recorded."""
        after_ms = self.stretch.after_ms
        if after_ms is None:
            return piece
        return piece.filter(pc.greater(piece["published_at_ms"], pa.scalar(after_ms, pa.float64())))

    def first_of(self, headers: pa.Table) -> BoolArray:
        """(n,) the reports that repeat no other one of the stretch: a broker sent it twice."""
        numbers = [headers[n].to_pylist() for n in ("broker", "started_at_ms", "sequence")]
        first = np.zeros(len(headers), bool)
        for row, key in enumerate(zip(*numbers, strict=True)):
            first[row] = key not in self._known
            self._known.add(key)
        return first

    def gone_letter(self) -> pa.Table:
        """A dead letter, if the topic does not have all reports of the stretch any more."""
        of = self.stretch
        gone = of.reports - self.taken
        whole = "not known" if of.end is None else f"{of.begin} to {of.end}"
        some = [*self._missing][:_SHOWN] or [whole]
        return letters_of(
            min(gone, 1),
            reason=GONE,
            position=", ".join(some),
            published_at_ms=-1,
            detail=f"{gone} of {of.reports} reports that a round left out are not in the topic any "
            "more, so usage lacks them",
            reports=gone,
        )

    def _read(self, transport: Transport, skip: int) -> Iterator[pa.RecordBatch]:
        of = self.stretch
        chosen = None if of.chosen is None else pa.array(of.chosen, pa.string())
        left = of.reports - (skip if of.chosen is None else 0)
        begin = of.begin
        if of.end is None:
            return
        if skip and of.chosen is None:
            # By offset: retention may have taken some of those that are done.
            [(topic, offsets)] = begin.items()
            begin = {topic: {part: offset + skip for part, offset in offsets.items()}}
            skip = 0
        for rows in transport.read_between(begin, of.end):
            if chosen is not None:
                rows = rows.filter(pc.is_in(rows["position"], value_set=chosen))
                for position in rows["position"].to_pylist():
                    self._missing.pop(position, None)
            left -= len(rows)
            skipped, skip = min(skip, len(rows)), max(skip - len(rows), 0)
            rows = rows.slice(skipped)
            for at in range(0, max(len(rows), 1), _AT_ONCE):  # none: reading them took time, too
                yield rows.slice(at, _AT_ONCE)
            if left <= 0:
                return


class _Groups:
    """The defined groups, and which of them entries name."""

    def __init__(self, rows: pa.Table) -> None:
        """``rows`` has the column ``resource_group`` and the quotas."""
        ids = np.array(ids_of(rows["resource_group"].to_pylist()), np.int64)
        order = np.argsort(ids)
        self.names: pa.StringArray = rows["resource_group"].take(pa.array(order)).combine_chunks()
        self._ids = ids[order]
        self.dimensions = [
            place for place, name in enumerate(RATE_COLUMNS) if rows[name].null_count < len(rows)
        ]
        """The dimensions in which some group has a quota."""

    def of(self, entries: pa.Table) -> tuple[IntArray, IntArray]:
        """(m,) rows of the entries of defined groups, and the index of each one's group."""
        group = find(self._ids, entries["group_id"].to_numpy())
        chosen = np.flatnonzero(with_same_name(group, entries["group"], self.names))
        return chosen, group[chosen]
