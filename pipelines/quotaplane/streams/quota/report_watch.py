"""Notices that reports stop arriving, or arrive and can't be used. Pure.

Each watch takes one round after another. ``now_s`` is a monotonic clock's time at the start of the
round.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quotaplane.agents.conditions import Condition, Conditions
from quotaplane.agents.known_conditions import (
    BACKLOG,
    NO_REPORTS,
    OTHER_TIME,
    REFUSED_SHARE,
    SLOW_ROUNDS,
    UNUSABLE,
)
from quotaplane.errors import NoUsableReportsError
from quotaplane.streams.quota.broker_clocks import BrokerClocks
from quotaplane.streams.refused_brokers import REASONS, note_refused_brokers
from quotaplane.streams.silence_watch import SilenceWatch
from quotaplane.streams.status import by_reason
from quotaplane.wire.reasons import FUTURE, OTHER_INCARNATION, STALE

PATIENCE_INTERVALS: Final = 3
"""A warning comes after so many intervals without a report, or without a usable one."""
DUPLICATE: Final = "duplicate"
OUTDATED: Final = "outdated"
_NOT_IN_SHARE: Final = frozenset({DUPLICATE, OUTDATED, OTHER_INCARNATION}) | REASONS
"""Not counted in the share of unusable reports: harmless, or a condition of its own."""
_HIGH_SHARE, _LOW_SHARE = 0.1, 0.05
"""Share of unusable reports at which the condition begins, and below which it does not go on."""
_WINDOW_S: Final = 10.0
_MAX_AGES: Final = 100
_SLOW_IN_A_ROW: Final = 3
"""The number of rounds that begin the condition, or end it: the first after a start take longer."""


@dataclass(frozen=True)
class Arrivals:
    """The reports that a round read."""

    used: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Reports that were not used, by reason; also duplicates and outdated ones."""
    age_s: float | None = None
    """Median age of reports refused for their publish time; negative: it is in the future."""
    examples: tuple[str, ...] = ()
    """Positions of some refused reports."""
    ages_s: Mapping[str, float] = field(default_factory=dict)
    """Age of a report that its broker's clock may be to blame for, by broker."""
    of_two: tuple[str, ...] = ()
    """Brokers in whose names two programs report."""

    @property
    def total(self) -> int:
        """All reports, used or not."""
        return self.used + sum(self.rejected.values())


class ReportWatch:
    """All watches of the reports topics.

    ``stop_after_intervals``: ``check`` raises after so many intervals in which reports arrived and
    none could be used; None: never. ``broker_from`` is the setting.
    """

    def __init__(
        self,
        interval_s: float,
        stop_after_intervals: float | None = None,
        broker_from: str = "payload",
    ) -> None:
        self._silence = SilenceWatch(
            NO_REPORTS,
            PATIENCE_INTERVALS * interval_s,
            "brokers keep their limits until the leases end. Check that brokers run and send to the"
            " topics that the ready line names",
        )
        self._unusable = _Unusable(interval_s, stop_after_intervals)
        self.clocks = BrokerClocks(interval_s, PATIENCE_INTERVALS * interval_s)
        self._share = _RefusedShare()
        self._broker_from = broker_from
        self._slow_rounds = _SlowRounds(interval_s)

    def check(self) -> None:
        """End the job if the previous rounds require it.

        Call this before a round, not after it: the previous rounds are then committed, and a
        restart continues behind them instead of failing at them again.

        Raises:
            NoUsableReportsError: no report could be used for too long.
        """
        if self._unusable.stop_reason is not None:
            raise NoUsableReportsError(self._unusable.stop_reason)

    def round_ended(
        self, now_s: float, arrivals: Arrivals, conditions: Conditions, took_s: float = 0.0
    ) -> None:
        """Add a round, which took ``took_s``, and state what is wrong."""
        self._silence.after(now_s, arrivals.total, conditions)
        self._unusable.after(now_s, arrivals, conditions)
        self._share.after(now_s, arrivals, conditions, quiet=self._unusable.cause is not None)
        note_refused_brokers(conditions, self._broker_from, arrivals.rejected, arrivals.of_two)
        self.clocks.after(now_s, conditions, quiet=not arrivals.used)
        if arrivals.total:
            self._slow_rounds.after(took_s, conditions)


class _Unusable:
    """Reports arrive and none can be used, because of their content or because clocks disagree.

    If publish times are the reason, a backlog differs from a wrong clock: while the job catches up,
    the reports that it reads become less old.
    """

    def __init__(self, interval_s: float, stop_after_intervals: float | None) -> None:
        self._interval_s = interval_s
        self._patience_s = PATIENCE_INTERVALS * interval_s
        self._stop_after_s = (
            None if stop_after_intervals is None else stop_after_intervals * interval_s
        )
        self.stop_reason: str | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._since_s: float | None = None  # first round with reports but no usable one
        self._progress_s = 0.0  # last time the age fell by an interval or more
        self._progress_age_s = 0.0
        self._last_s = 0.0  # last round that read reports
        self._refused: Counter[str] = Counter()
        self._ages: deque[float] = deque(maxlen=_MAX_AGES)  # since the last progress
        self._first_age_s = 0.0
        self.cause: Condition | None = None
        """Why no report has been usable for ``_patience_s``; None: some were."""

    def after(self, now_s: float, arrivals: Arrivals, conditions: Conditions) -> None:
        if arrivals.used:
            self._begin_anew()
        elif arrivals.total:
            self._take_in(now_s, arrivals)
        if self._lasts(now_s):
            # While the causes can't be distinguished, it is the one that it was.
            self.cause = self._cause_of(now_s) or self.cause
            self._stop_if_asked(now_s)
        for cause in (UNUSABLE, BACKLOG, OTHER_TIME):
            is_it = cause == self.cause
            text = self._text(now_s, cause, arrivals.examples) if is_it else None
            conditions.note(cause, "", text)

    def _lasts(self, now_s: float) -> bool:
        """Reports, and not only a few at first, have been unusable for ``_patience_s``."""
        if self._since_s is None or now_s - self._since_s < self._patience_s:
            return False
        return self._last_s - self._since_s >= self._patience_s - self._interval_s

    def _take_in(self, now_s: float, arrivals: Arrivals) -> None:
        if self._since_s is None:
            self._since_s = self._progress_s = now_s
        self._last_s = now_s
        self._refused.update(arrivals.rejected)
        age_s = arrivals.age_s
        if age_s is None:
            return
        if not self._ages:
            self._first_age_s = self._progress_age_s = age_s
        if 0 < age_s < self._progress_age_s - self._interval_s:
            self._progress_s, self._progress_age_s = now_s, age_s
            self._ages.clear()
        self._ages.append(age_s)

    def _cause_of(self, now_s: float) -> Condition | None:
        """None: a clock and a backlog can't be distinguished yet."""
        if 2 * (self._refused[STALE] + self._refused[FUTURE]) <= self._refused.total():
            return UNUSABLE
        if not self._ages:  # publish times that no clock writes
            return UNUSABLE
        unchanged_s = now_s - self._progress_s
        if unchanged_s >= self._patience_s:
            return OTHER_TIME
        return BACKLOG if unchanged_s < self._interval_s else None

    def _text(self, now_s: float, cause: Condition, examples: tuple[str, ...]) -> str:
        assert self._since_s is not None
        total = self._refused.total()
        text = (
            f"0 of {total} reports could be used for {now_s - self._since_s:.0f} s: "
            f"{_reasons(self._refused)}"
        )
        if cause == UNUSABLE:
            return f"{text}{_places(examples)}. For the reasons see the table rejected_reports"
        if cause == BACKLOG:
            return (
                f"{text}. They are a backlog: {self._first_age_s:.0f} s old at first, "
                f"{self._ages[-1]:.0f} s now; "
                "reports are used again when the job has caught up"
            )
        age_s = min(self._ages)  # time in the queue only adds to the difference of the clocks
        ours, theirs = ("ahead", "behind") if age_s > 0 else ("behind", "ahead")
        return (
            f"{text}. Their publish times are {_off(age_s)} and stay so: this host's clock is "
            f"{ours}, or the clock that stamps reports is {theirs}"
            + (", or reports wait so long before they are read" if age_s > 0 else "")
            + ". Compare `date -u` on both, and check that NTP runs"
        )

    def _stop_if_asked(self, now_s: float) -> None:
        begun_s = max(self._since_s or 0.0, self._progress_s)
        if (
            self._stop_after_s is not None
            and now_s - begun_s >= self._stop_after_s
            and now_s - self._last_s <= 2 * self._interval_s
        ):
            self.stop_reason = (
                f"{self._text(now_s, self.cause or OTHER_TIME, ())} "
                "(the job ends because reports.stop_when_unusable_intervals is set)"
            )


class _RefusedShare:
    """The share of reports that can't be used, in windows of ten seconds.

    Reports refused for their time count only if the previous window had many of them too: after a
    pause a healthy system has some.
    """

    def __init__(self) -> None:
        self._begun_s: float | None = None
        self._arrived = 0
        self._refused: Counter[str] = Counter()
        self._examples: tuple[str, ...] = ()
        self._age_s: float | None = None
        self._late_before = False

    def after(
        self, now_s: float, arrivals: Arrivals, conditions: Conditions, *, quiet: bool
    ) -> None:
        """Add a round; ``quiet``: a condition about all reports holds."""
        if self._begun_s is None:
            self._begun_s = now_s
        self._arrived += arrivals.total
        for reason, count in arrivals.rejected.items():
            if reason not in _NOT_IN_SHARE:
                self._refused[reason] += count
        self._examples = self._examples or arrivals.examples
        self._age_s = arrivals.age_s if self._age_s is None else self._age_s
        if not quiet and now_s - self._begun_s < _WINDOW_S:
            return
        if self._arrived and not quiet:
            self._window_ended(now_s - self._begun_s, conditions)
        self._begun_s, self._arrived, self._examples, self._age_s = now_s, 0, (), None
        self._refused = Counter()

    def _window_ended(self, window_s: float, conditions: Conditions) -> None:
        late, late_before = self._refused[STALE] + self._refused[FUTURE], self._late_before
        self._late_before = late >= _HIGH_SHARE * self._arrived
        bad = self._refused.total() - (0 if late_before else late)
        holds = bool(conditions.items(REFUSED_SHARE))
        if bad < (_LOW_SHARE if holds else _HIGH_SHARE) * self._arrived:
            return
        text = (
            f"{self._refused.total()} of {self._arrived} reports in {window_s:.0f} s could not be "
            f"used: {_reasons(self._refused)}{_places(self._examples)}. Those that are too old or "
            "too many are recorded in usage and do not count; the others are dead letters in the "
            "table rejected_reports"
        )
        if 2 * late > self._refused.total() and self._age_s is not None:
            text += f". Those refused for their time are {_off(self._age_s)}: compare clocks"
        conditions.note(REFUSED_SHARE, "", text, bad)


class _SlowRounds:
    """Rounds that read reports take longer than the reports' interval."""

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: of reports."""
        self._interval_s = interval_s
        self._in_a_row = 0
        """Rounds that are not as the condition says."""
        self._is_slow = False

    def after(self, took_s: float, conditions: Conditions) -> None:
        """Add a round."""
        differs = (took_s > self._interval_s) != self._is_slow
        self._in_a_row = self._in_a_row + 1 if differs else 0
        if self._in_a_row == _SLOW_IN_A_ROW:
            self._in_a_row, self._is_slow = 0, not self._is_slow
        text = (
            f"they take {took_s:.1f} s, longer than reports.interval_s ({self._interval_s:g} s): "
            "limits follow usage late. quotaplane_round_stage_seconds says which part takes long; "
            "give the job more cores or a faster disk, or let brokers report less often"
        )
        conditions.note(SLOW_ROUNDS, "", text if self._is_slow else None)


def _off(age_s: float) -> str:
    return f"{abs(age_s):.1f} s {'behind' if age_s > 0 else 'ahead of'} this host's clock"


def _reasons(refused: Mapping[str, int]) -> str:
    _, _, reasons = by_reason(refused).partition("(")
    return reasons.rstrip(")")


def _places(examples: tuple[str, ...]) -> str:
    return f", for example at {', '.join(examples)}" if examples else ""
