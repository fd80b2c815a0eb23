"""The quota job's program: one round of one shard, from bytes to bytes.

The operator passes what arrived for a shard and gets the outputs. Tests, replays and the simulator
run the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import no_rows
from quotaplane.history.tables import LEFT_OUT
from quotaplane.laws import get_law
from quotaplane.model import BoolArray, Round, Transition
from quotaplane.quota.config import NO_EARLIER_LIMITS, EarlierLimits, Events, StepConfig
from quotaplane.quota.incarnations import one_incarnation
from quotaplane.quota.observed_pairs import observed_ones
from quotaplane.quota.report_order import newest_ms, on_hold, too_old
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import next_due_ms, step
from quotaplane.round_counts import MOST_NAMED
from quotaplane.settings import Settings
from quotaplane.streams.letters import letters_of_senders, refused_reports
from quotaplane.streams.new_brokers import beyond_max_brokers
from quotaplane.streams.quota.dead_letters import bad_definitions, dead_letters
from quotaplane.streams.quota.history_rows import limit_history, usage_history
from quotaplane.streams.quota.id_collisions import without_clashes
from quotaplane.streams.quota.limit_messages import limit_messages
from quotaplane.streams.shard_program import Arrived, Batch, Output
from quotaplane.wire.reasons import (
    OTHER_INCARNATION,
    STALE,
    TOO_MANY_BROKERS,
    TWO_INCARNATIONS,
)
from quotaplane.wire.shard_inputs import (
    DEPARTURES,
    ENTRIES,
    HEADERS,
    OBSERVED,
    REJECTED,
    START,
    senders,
    some_reports,
    unpack_departures,
    unpack_groups,
    unpack_reports,
    unpack_start,
)

NOT_COUNTED: Final = "not_counted"
"""Output with a row (``REJECTED``) per report that limits were not decided with, which is recorded
all the same."""

_ANOTHER_COUNTS: Final = (
    "another incarnation of the broker counts, and its reports arrive (started_at_ms, 0 in stock "
    "reports)"
)


class _Sorted(NamedTuple):
    """The reports of a round by what becomes of them; reports are headers and entries."""

    headers: pa.Table = no_rows(HEADERS)
    """Headers of the reports that are not refused."""
    counted: tuple[pa.Table, pa.Table] = (no_rows(HEADERS), no_rows(ENTRIES))
    """The reports to decide with."""
    aside: tuple[pa.Table, pa.Table] | None = None
    """Reports that are recorded only, as after a quick restart."""
    not_counted: pa.Table = no_rows(REJECTED)
    """Rows about those in ``aside``."""
    refused: pa.Table = no_rows(REJECTED)
    """Dead letters of the others."""


@dataclass(frozen=True)
class QuotaProgram:
    """Runs the quota step for each shard, with settings that all rounds share.

    Inputs: packed ``reports``, changes of ``groups``, ``rejected`` reports, ``departures`` of
    brokers, and the job's ``start``. Outputs: ``counts`` (JSON), ``messages`` (a table of broker
    and value for the limits topic), and rows of history tables by the tables' names.
    """

    step: StepConfig
    epoch: int
    max_brokers: int | None = None
    name: str = "shard"
    has_timer: bool = True

    def load(self, blob: bytes | None) -> ShardState:
        """Decode a state."""
        return ShardState() if blob is None else load(blob)

    def dump(self, state: ShardState) -> bytes:
        """Encode a state."""
        return dump(state)

    def due_ms(self, state: ShardState) -> int | None:
        """The next time at which a broker of the shard counts as silent."""
        return next_due_ms(state, self.step)

    def run(
        self, state: ShardState, arrived: Arrived, batch: Batch
    ) -> tuple[ShardState, Sequence[Output]]:
        """Unpack the inputs, take one step, and make its results tables."""
        round_ = Round(self.epoch, batch.seq, batch.now_ms)
        events = Events()
        definitions = None
        if arrived.get("groups"):
            changes = unpack_groups(arrived["groups"])
            groups, clashes = without_clashes(changes, state.groups)
            events = replace(events, groups=groups)
            definitions = bad_definitions(changes, clashes)
        arrivals, old_reports_s = _Sorted(), dict[str, float]()
        if arrived.get("reports"):
            state, arrivals = self._sorted(state, arrived["reports"], round_)
            if not batch.shard:
                old_reports_s = self._old_reports_s(state, arrivals.headers, round_)
            headers, entries = arrivals.counted
            events = replace(events, headers=headers, entries=entries, aside=arrivals.aside)
        if arrived.get(DEPARTURES):
            events = replace(events, departures=unpack_departures(arrived[DEPARTURES]))
        events = replace(events, start=unpack_start(arrived.get(START, ())))
        state, outcome = step(state, events, round_, self.step)

        lease_ms = int(self.step.lease_ms)
        messages = list(limit_messages(outcome, batch.shard, round_, lease_ms))
        # Every shard gets the headers of all reports, so only shard 0 records these letters.
        letters_here = [] if batch.shard else [arrivals.refused]
        refused = refused_reports(arrived.get("rejected", ()), letters_here)
        letters, rejected = dead_letters(refused, definitions, outcome)
        counts = replace(
            outcome.counts,
            rejected=rejected.reports,
            rejected_by_reason=rejected.by_reason,
            quota_changes=0 if events.groups is None else len(events.groups),
            messages_sent=len(messages),
            brokers_live=int((~state.brokers.stale).sum()),
            brokers_stale=int(state.brokers.stale.sum()),
            newest_report_ms=_published_ms(pc.max, events.headers),
            oldest_report_ms=_published_ms(pc.min, events.headers),
            old_reports_s=old_reports_s,
            shard=batch.shard,
        )
        tables = {
            "messages": _message_rows(messages),
            "usage": None if outcome.usage is None else usage_history(outcome.usage),
            "limits": limit_history(outcome, lease_ms),
            "brokers": outcome.brokers,
            "rejected_reports": letters,
            # Every shard gets the headers of all reports, so only shard 0 says which do not count.
            NOT_COUNTED: None if batch.shard else arrivals.not_counted,
        }
        outputs = [
            Output(name, table)
            for name, table in tables.items()
            if table is not None and len(table)
        ]
        outputs += [Output(LEFT_OUT.name, payload) for payload in arrived.get(LEFT_OUT.name, ())]
        if outputs or counts.something_happened():
            outputs.append(Output("counts", counts.to_bytes()))
        return state, outputs

    def _sorted(
        self, state: ShardState, payloads: Sequence[bytes], round_: Round
    ) -> tuple[ShardState, _Sorted]:
        """Sort the reports that arrived by what becomes of them.

        In the state, brokers may have another incarnation that counts.
        """
        headers, entries = unpack_reports(payloads)
        unknown, beyond = beyond_max_brokers(
            state.brokers.names, headers["broker"], self.max_brokers, round_
        )
        brokers, held, disputed, recorded = one_incarnation(
            state.brokers, headers, observed_ones(headers), round_.now_ms, self.step
        )
        state = replace(state, brokers=brokers)
        why = np.full(len(headers), "", object)  # the first one holds
        for reason, which in (
            (TOO_MANY_BROKERS, unknown),
            (TWO_INCARNATIONS, disputed),
            (OTHER_INCARNATION, held),
        ):
            why[which & (why == "")] = reason
        counting = why == ""
        late = self._too_old(state, headers.filter(pa.array(counting)), round_)
        why[np.flatnonzero(counting)[late]] = STALE
        aside = (why == STALE) | (why == OTHER_INCARNATION) & recorded
        details = {TOO_MANY_BROKERS: f"{beyond}; reports.max_brokers is {self.max_brokers}"}
        details |= dict.fromkeys((TWO_INCARNATIONS, OTHER_INCARNATION), _ANOTHER_COUNTS)

        def letters(which: BoolArray) -> pa.Table:
            rows, reasons = headers.filter(pa.array(which)), why[which].tolist()
            texts = [details.get(reason, "") for reason in reasons]
            return letters_of_senders(rows, pa.array(reasons), pa.array(texts, pa.string()))

        counts: BoolArray = why == ""
        if counts.all():
            return state, _Sorted(headers, (headers, entries))
        refused = ~counts & ~aside
        return state, _Sorted(
            headers.filter(pa.array(~refused)),
            some_reports(headers, entries, counts),
            some_reports(headers, entries, aside) if aside.any() else None,
            letters(aside),
            letters(refused),
        )

    def _too_old(self, state: ShardState, headers: pa.Table, round_: Round) -> BoolArray:
        sender = senders(headers)  # each has a clock of its own
        published_at_ms = headers["published_at_ms"].to_numpy()
        late = too_old(sender, published_at_ms, self.step.lease.quarter_ms)
        if self.step.transition is Transition.STRICT:
            known_ms = int(state.brokers.seen_at_ms.max(initial=0))
            timely_from_ms = round_.now_ms - self.step.stale_after_ms
            late |= on_hold(sender, published_at_ms, known_ms, timely_from_ms)
        return late

    def _old_reports_s(
        self, state: ShardState, headers: pa.Table, round_: Round
    ) -> dict[str, float]:
        """See ``RoundCounts``. Slow rounds make no report that old."""
        if not len(headers) or not state.last_round_ms:
            return {}
        if OBSERVED.name in headers.column_names:
            headers = headers.filter(pc.invert(headers[OBSERVED.name]))
        coded = headers["broker"].combine_chunks().dictionary_encode()
        newest = newest_ms(coded.indices.to_numpy(), headers["published_at_ms"].to_numpy())
        before_ms = state.last_round_ms - self.step.stale_after_ms
        old = np.flatnonzero(newest < before_ms)
        old = old[np.argsort(newest[old], kind="stable")][:MOST_NAMED]
        names = coded.dictionary.take(pa.array(old)).to_pylist()
        return dict(zip(names, ((round_.now_ms - newest[old]) / 1000).tolist(), strict=True))


def _message_rows(messages: Sequence[tuple[str, bytes]]) -> pa.Table:
    """Rows of broker and value, for the limits topic."""
    return pa.table(
        {
            "broker": pa.array([broker for broker, _ in messages], pa.string()),
            "value": pa.array([value for _, value in messages], pa.binary()),
        }
    )


def _published_ms(which: Callable[[pa.ChunkedArray], pa.Scalar], headers: pa.Table | None) -> int:
    """Publish time of the newest or oldest report of a round; 0 without reports."""
    return 0 if headers is None else int(which(headers["published_at_ms"]).as_py() or 0)


def quota_program(
    settings: Settings, epoch: int, earlier: EarlierLimits = NO_EARLIER_LIMITS
) -> QuotaProgram:
    """The program for these settings; for ``earlier`` see ``StepConfig``.

    Raises:
        ConfigError: there is no such law, or it has no such option.
    """
    interval_ms = settings.reports.interval_s * 1000.0
    return QuotaProgram(
        step=StepConfig(
            law=get_law(settings.law.name, settings.law.options),
            stale_after_ms=settings.brokers.stale_after_intervals * interval_ms,
            expire_after_ms=settings.brokers.expire_after_intervals * interval_ms,
            refresh_rounds=settings.limits.refresh_rounds,
            lease_ms=settings.limits.lease_s * 1000.0,
            transition=settings.limits.transition,
            max_step=settings.limits.max_step,
            over=settings.limits.over,
            round_ms=max(interval_ms, settings.trigger.interval_s * 1000.0),
            safe_share=settings.limits.safe_share_or_default,
            max_clock_skew_ms=settings.reports.max_clock_skew_s * 1000.0,
            earlier=earlier,
        ),
        epoch=epoch,
        max_brokers=settings.reports.max_brokers,
    )
