"""A running job's counts: its status lines and its metrics are made of them.

Pure: the clocks are arguments.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from quotaplane.metrics.of_jobs import ROUND_SECONDS, STAGE_SECONDS
from quotaplane.metrics.readings import Durations, Key, Numbers, Readings

UNKNOWN: Final = "-"


@dataclass(frozen=True)
class StatusUpdate:
    """A finished round's contribution to the counts."""

    counts: Mapping[str, int]
    """Added up, by name; some are in the status line."""
    rejected: Mapping[str, int]
    """Inputs that could not be used, by reason; added up."""
    gauges: dict[str, float]
    """Newest values, by name; some are in the status line."""
    arrived: int
    """Inputs that the round read, used or not."""
    counts_by: Mapping[str, Numbers] = field(default_factory=dict)
    """Added up, by name and by the labels of a metric."""
    gauges_by: Mapping[str, Numbers] = field(default_factory=dict)
    """Newest values, by name and by the labels of a metric."""


@dataclass
class _Sums:
    rounds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    counts_by: dict[str, Counter[Key]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, more: StatusUpdate) -> None:
        self.counts.update(more.counts)
        self.rejected.update(more.rejected)
        for name, numbers in more.counts_by.items():
            self.counts_by[name].update(numbers)


class JobStatus:
    """Counts of a job since its start and since its last status line. Thread-safe.

    ``counters`` and ``gauges`` are the names in the lines, in order.

    >>> now = iter([0.0, 2.0, 2.0, 2.5, 10.0])
    >>> status = JobStatus(["reports"], [], clock=lambda: next(now))
    >>> status.round_began(0)
    >>> status.add(StatusUpdate({"reports": 3}, {"stale": 1}, {}, arrived=4))
    >>> status.round_ended()
    >>> status.period()
    'rounds=1 reports=3 rejected=1 (stale=1) conditions=0 last_round_s=0.5 running_s=- idle_s=8.0'
    """

    def __init__(
        self,
        counters: Sequence[str],
        gauges: Sequence[str],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._counters, self._shown_gauges = tuple(counters), tuple(gauges)
        self._gauges: dict[str, float | None] = {**dict.fromkeys(gauges), "standby": 0}
        self._gauges_by: dict[str, Numbers] = {}
        self._clock, self._wall = clock, wall
        self.wrong_now: Callable[[], Mapping[str, Sequence[str]]] = dict
        """Returns what is wrong now, see ``Conditions.active``."""
        self._lock = threading.Lock()
        self._total, self._period = _Sums(), _Sums()
        self._started_s = clock()
        self._waits_for = UNKNOWN
        self._round: int | None = None
        self._round_began_s = 0.0
        self._last_round_s: float | None = None
        self._last_input_s: float | None = None
        self._round_began_at: float | None = None
        self._round_ended_at = wall()
        self._rounds = Durations(ROUND_SECONDS.buckets)
        self._stages: dict[str, Durations] = {}

    @property
    def rounds(self) -> int:
        """Rounds done since the start."""
        with self._lock:
            return self._total.rounds

    def waits_for(self, what: str) -> None:
        """Record what the start waits for; one word, for the status lines until the first round."""
        with self._lock:
            self._waits_for = what

    def stands_by(self, is_standby: bool) -> None:
        """Record that the job waits until another process is dead, or no longer does."""
        with self._lock:
            self._gauges["standby"] = int(is_standby)
            self._waits_for = "leader" if is_standby else UNKNOWN
            self._round_ended_at = self._wall()

    def start_waits_for(self) -> str | None:
        """The word of ``waits_for``; None: rounds run, or it waits, ready, as a standby."""
        with self._lock:
            started = self._last_input_s is not None or self._waits_for == "leader"
            return None if started else self._waits_for

    def round_began(self, seq: int) -> None:
        """Record that a micro-batch begins to run."""
        now_s = self._clock()
        with self._lock:
            self._round, self._round_began_s = seq, now_s
            self._round_began_at = self._wall()
            if self._last_input_s is None:
                self._last_input_s = now_s

    def stage_ended(self, stage: str, seconds: float) -> None:
        """Record how long a stage of the running round took."""
        with self._lock:
            self._stages.setdefault(stage, Durations(STAGE_SECONDS.buckets)).add(seconds)

    def count(self, name: str, more: int = 1) -> None:
        """Add to a count that does not come from a round's outputs."""
        with self._lock:
            self._total.counts[name] += more
            self._period.counts[name] += more

    def add(self, more: StatusUpdate) -> None:
        """Add a round's counts."""
        now_s = self._clock()
        with self._lock:
            self._total.add(more)
            self._period.add(more)
            self._gauges.update(more.gauges)
            self._gauges_by.update(more.gauges_by)
            if more.arrived:
                self._last_input_s = now_s

    def round_ended(self) -> None:
        """Record that the running round succeeded."""
        now_s = self._clock()
        with self._lock:
            self._round = None
            self._last_round_s = now_s - self._round_began_s
            self._rounds.add(self._last_round_s)
            self._round_ended_at = self._wall()
            self._total.rounds += 1
            self._period.rounds += 1

    def set_gauge(self, name: str, value: float | None) -> None:
        """Set a gauge that does not come from a round, but from a source or Spark."""
        with self._lock:
            self._gauges[name] = value

    def set_gauges(self, name: str, values: Numbers) -> None:
        """Set a gauge that has labels."""
        with self._lock:
            self._gauges_by[name] = dict(values)

    def readings(self) -> Readings:
        """All numbers at this moment, by name; what is not known is left out."""
        wrong: Numbers = {(name,): len(items) for name, items in self.wrong_now().items()}
        with self._lock:
            total = self._total
            known = {name: value for name, value in self._gauges.items() if value is not None}
            known |= {"rounds": total.rounds}
            if not known["standby"]:  # else rounds would seem to stand still
                known["round_ended"] = self._round_ended_at
            if self._round_began_at is not None:
                known["round_started"] = self._round_began_at
            return Readings(
                {
                    **{name: {(): count} for name, count in total.counts.items()},
                    **{name: {(): value} for name, value in known.items()},
                    "rejected": {(reason,): count for reason, count in total.rejected.items()},
                    **{name: dict(numbers) for name, numbers in total.counts_by.items()},
                    **self._gauges_by,
                    "conditions": wrong,
                },
                {
                    "round": {(): self._rounds.read()},
                    "stage": {(stage,): each.read() for stage, each in self._stages.items()},
                },
            )

    def period(self) -> str:
        """The status line: counts since the last call, and the current gauges."""
        now_s, wrong = self._clock(), self.wrong_now()
        with self._lock:
            if self._last_input_s is None:
                started_s = now_s - self._started_s
                return f"starting_s={started_s:.1f} waits_for={self._waits_for}"
            shown = [*self._sums(self._period), f"conditions={_listed(wrong)}"]
            shown += [f"{name}={_number(self._gauges[name])}" for name in self._shown_gauges]
            running_s = None if self._round is None else now_s - self._round_began_s
            shown += [
                f"last_round_s={_seconds(self._last_round_s)}",
                f"running_s={_seconds(running_s)}",
                f"idle_s={_seconds(now_s - self._last_input_s)}",
            ]
            if self._round is not None:
                shown.append(f"running_round={self._round}")
            self._period = _Sums()
        return " ".join(shown)

    def total(self) -> str:
        """The last line: counts since the start."""
        now_s = self._clock()
        with self._lock:
            return " ".join([f"up_s={now_s - self._started_s:.0f}", *self._sums(self._total)])

    def _sums(self, sums: _Sums) -> list[str]:
        counts = [f"{name}={sums.counts[name]}" for name in self._counters]
        return [f"rounds={sums.rounds}", *counts, f"rejected={by_reason(sums.rejected)}"]


def by_reason(rejected: Mapping[str, int]) -> str:
    """A total and its parts, the most frequent first.

    >>> by_reason({"stale": 1, "not_protobuf": 2})
    '3 (not_protobuf=2 stale=1)'
    >>> by_reason({})
    '0'
    """
    ordered = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))
    parts = " ".join(f"{reason}={count}" for reason, count in ordered if count)
    return f"{sum(rejected.values())}" + (f" ({parts})" if parts else "")


def _listed(names: Collection[str]) -> str:
    return f"{len(names)} ({', '.join(names)})" if names else "0"


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _number(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return str(value) if isinstance(value, int) else f"{value:.1f}"
