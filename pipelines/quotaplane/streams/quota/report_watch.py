"""Warns when reports stop arriving, or arrive and can't be used. Pure.

Each watch takes one round after another and returns lines to print: one when a condition begins and
one when it ends. ``now_s`` is a monotonic clock's time at the start of the round.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from quotaplane.errors import NoUsableReportsError
from quotaplane.streams.quota.broker_clocks import BrokerClocks
from quotaplane.streams.quota.slow_rounds import SlowRounds
from quotaplane.streams.refused_brokers import RefusedBrokers
from quotaplane.streams.silence_watch import AGAIN_AFTER_S, Line, SilenceWatch
from quotaplane.streams.status import by_reason
from quotaplane.wire.reasons import FUTURE, OTHER_INCARNATION, STALE

PATIENCE_INTERVALS: Final = 3
"""A warning comes after so many intervals without a report, or without a usable one."""
DUPLICATE: Final = "duplicate"
OUTDATED: Final = "outdated"
_OTHERWISE_PRINTED: Final = (
    frozenset({DUPLICATE, OUTDATED, OTHER_INCARNATION}) | RefusedBrokers.REASONS
)
"""Not counted in the share of unusable reports: harmless, or ``RefusedBrokers`` has a line."""
_HIGH_SHARE, _LOW_SHARE = 0.1, 0.05
"""Share of unusable reports at which a warning begins, and below which it ends."""
_WINDOW_S: Final = 10.0
_CALM_WINDOWS: Final = 6
_MAX_AGES: Final = 100


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
            PATIENCE_INTERVALS * interval_s,
            "reports",
            "brokers keep their limits until the leases end. Check that brokers run and send to the"
            " topics that the ready line names",
        )
        self._unusable = _Unusable(interval_s, stop_after_intervals)
        self.clocks = BrokerClocks(interval_s, PATIENCE_INTERVALS * interval_s)
        self._share = _RefusedShare()
        self._brokers = RefusedBrokers(broker_from)
        self._slow_rounds = SlowRounds(interval_s)

    def check(self) -> None:
        """End the job if the previous rounds require it.

        Call this before a round, not after it: the previous rounds are then committed, and a
        restart continues behind them instead of failing at them again.

        Raises:
            NoUsableReportsError: no report could be used for too long.
        """
        if self._unusable.stop_reason is not None:
            raise NoUsableReportsError(self._unusable.stop_reason)

    def round_ended(self, now_s: float, arrivals: Arrivals, took_s: float = 0.0) -> list[Line]:
        """Add a round, which took ``took_s``; returns the lines to print."""
        lines = self._silence.after(now_s, arrivals.total)
        lines += self._unusable.after(now_s, arrivals)
        lines += self._share.after(now_s, arrivals, quiet=self._unusable.warned)
        lines += self._brokers.after(now_s, arrivals.rejected, arrivals.of_two)
        lines += self.clocks.lines(now_s, quiet=not arrivals.used)
        if arrivals.total:
            lines += self._slow_rounds.after(now_s, took_s)
        return lines


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
        self._again_s = 0.0
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._since_s: float | None = None  # first round with reports but no usable one
        self._progress_s = 0.0  # last time the age fell by an interval or more
        self._progress_age_s = 0.0
        self._last_s = 0.0  # last round that read reports
        self._refused: Counter[str] = Counter()
        self._ages: deque[float] = deque(maxlen=_MAX_AGES)  # since the last progress
        self._first_age_s = 0.0
        self._warned_cause = ""

    @property
    def warned(self) -> bool:
        """A warning was printed and still applies."""
        return bool(self._warned_cause)

    def after(self, now_s: float, arrivals: Arrivals) -> list[Line]:
        if arrivals.used:
            lines = self._recovered(now_s, arrivals)
            self._begin_anew()
            return lines
        if arrivals.total:
            self._take_in(now_s, arrivals)
        if self._since_s is None or now_s - self._since_s < self._patience_s:
            return []
        if self._last_s - self._since_s < self._patience_s - self._interval_s:
            return []  # a few arrived and then none: that is silence
        cause = self._cause(now_s)
        lines = []
        due = now_s >= self._again_s
        if self.warned:  # a backlog that stops shrinking is a wrong clock
            due = self._warned_cause == "backlog" != cause
        if cause and due:
            lines = [("warning", self._text(now_s, cause, arrivals.examples))]
            self._warned_cause, self._again_s = cause, now_s + AGAIN_AFTER_S
        self._stop_if_asked(now_s)
        return lines

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

    def _cause(self, now_s: float) -> str:
        """``content``, ``clock`` or ``backlog``; empty while these can't be distinguished."""
        if 2 * (self._refused[STALE] + self._refused[FUTURE]) <= self._refused.total():
            return "content"
        if not self._ages:  # publish times that no clock writes
            return "content"
        unchanged_s = now_s - self._progress_s
        if unchanged_s >= self._patience_s:
            return "clock"
        return "backlog" if unchanged_s < self._interval_s else ""

    def _text(self, now_s: float, cause: str, examples: tuple[str, ...]) -> str:
        assert self._since_s is not None
        total = self._refused.total()
        text = (
            f"0 of {total} reports could be used for {now_s - self._since_s:.0f} s: "
            f"{_reasons(self._refused)}"
        )
        if cause == "content":
            return f"{text}{_places(examples)}. For the reasons see the table rejected_reports"
        if cause == "backlog":
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
                f"{self._text(now_s, self._cause(now_s), ())} "
                "(the job ends because reports.stop_when_unusable_intervals is set)"
            )

    def _recovered(self, now_s: float, arrivals: Arrivals) -> list[Line]:
        if not self.warned or self._since_s is None:
            return []
        text = (
            f"reports are used again: {arrivals.used} of {arrivals.total}, after "
            f"{now_s - self._since_s:.0f} s in which {self._refused.total()} could not be used"
        )
        return [("recovered", text)]


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
        self._late_before = self._warned = False
        self._calm = 0
        self._refused_since_warning = 0

    def after(self, now_s: float, arrivals: Arrivals, *, quiet: bool) -> list[Line]:
        if self._begun_s is None:
            self._begun_s = now_s
        self._arrived += arrivals.total
        for reason, count in arrivals.rejected.items():
            if reason not in _OTHERWISE_PRINTED:
                self._refused[reason] += count
        self._examples = self._examples or arrivals.examples
        self._age_s = arrivals.age_s if self._age_s is None else self._age_s
        if not quiet and now_s - self._begun_s < _WINDOW_S:
            return []
        lines = [] if quiet else self._window_ended(now_s - self._begun_s)
        self._begun_s, self._arrived, self._examples, self._age_s = now_s, 0, (), None
        self._refused = Counter()
        return lines

    def _window_ended(self, window_s: float) -> list[Line]:
        if not self._arrived:
            return []
        late, late_before = self._refused[STALE] + self._refused[FUTURE], self._late_before
        self._late_before = late >= _HIGH_SHARE * self._arrived
        bad = self._refused.total() - (0 if late_before else late)
        share = bad / self._arrived
        self._refused_since_warning += bad
        what = f"{self._refused.total()} of {self._arrived} reports in {window_s:.0f} s"
        if not self._warned and share >= _HIGH_SHARE:
            self._warned, self._calm, self._refused_since_warning = True, 0, bad
            text = (
                f"{what} could not be used: {_reasons(self._refused)}{_places(self._examples)}. "
                "Those that are too old or too many are recorded in usage and do not count; the "
                "others are dead letters in the table rejected_reports"
            )
            if 2 * late > self._refused.total() and self._age_s is not None:
                text += f". Those refused for their time are {_off(self._age_s)}: compare clocks"
            return [("warning", text)]
        if not self._warned:
            return []
        self._calm = self._calm + 1 if share < _LOW_SHARE else 0
        if self._calm < _CALM_WINDOWS:
            return []
        self._warned = False
        more = f"{self._refused_since_warning} since the warning"
        return [("recovered", f"almost all reports can be used again: {what} could not, {more}")]


def _off(age_s: float) -> str:
    return f"{abs(age_s):.1f} s {'behind' if age_s > 0 else 'ahead of'} this host's clock"


def _reasons(refused: Mapping[str, int]) -> str:
    _, _, reasons = by_reason(refused).partition("(")
    return reasons.rstrip(")")


def _places(examples: tuple[str, ...]) -> str:
    return f", for example at {', '.join(examples)}" if examples else ""
