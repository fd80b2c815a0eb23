"""Checks in the background whether the server can do its work, for ``/readyz``.

A check may hang with the disk; the answer, which needs memory only, then reports that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import CLOCK_OF_JOB, HISTORY
from quotaplane.errors import QuotaplaneError
from quotaplane.history.store import one_line, open_table
from quotaplane.history.tables import RESOURCE_GROUPS, ROUNDS
from quotaplane.server.workers import Repeated
from quotaplane.settings import History

EVERY_S: Final = 2.0
HANGS_AFTER_S: Final = 10.0
"""A check that takes longer means that the disk hangs."""
_AHEAD_S: Final = 5.0
"""The job's clock may be ahead of this host's by this many seconds."""


class CheckState(NamedTuple):
    """The state of one thing that the server needs."""

    name: str
    ok: bool
    state: str
    age_s: float | None


class Readiness(Repeated):
    """The state of the history and of the job, checked every ``EVERY_S`` seconds."""

    thread_name = "server-readiness"

    def __init__(
        self,
        history: History,
        max_round_age_s: float,
        conditions: Conditions,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        super().__init__()
        self._history, self._max_round_age_s = history, max_round_age_s
        self._conditions = conditions
        self._clock, self._now = clock, now
        self._failure: str | None = "not looked yet"
        self._looked_at: float | None = None
        self._last_round: datetime | None = None
        self._version, self._new_round_at = -1, clock()

    def checks(self) -> list[CheckState]:
        """The results of the last check, from memory."""
        return [self._history_check(), self._job_check()]

    def _history_check(self) -> CheckState:
        age_s = None if self._looked_at is None else self._clock() - self._looked_at
        if self._failure is not None:
            return CheckState("history", False, self._failure, age_s)
        if age_s is None or age_s > HANGS_AFTER_S:
            return CheckState("history", False, "the disk does not answer", age_s)
        return CheckState("history", True, "ok", age_s)

    def _job_check(self) -> CheckState:
        if self._last_round is None:
            return CheckState("job", False, "no round is recorded", None)
        age_s = (self._now() - self._last_round).total_seconds()
        if age_s < -_AHEAD_S:
            # The job's clock is ahead of this one: its rounds would look new for as long.
            age_s = self._clock() - self._new_round_at
        if age_s > self._max_round_age_s:
            late = f"the last recorded round is older than {self._max_round_age_s:g} s"
            return CheckState("job", False, late, age_s)
        return CheckState("job", True, "ok", age_s)

    def repeat(self) -> float:
        """See ``Repeated``."""
        self.check_once()
        return EVERY_S

    def check_once(self) -> None:
        """Check once."""
        failure, unread = None, None
        try:
            open_table(self._history, RESOURCE_GROUPS.name)
            rounds = open_table(self._history, ROUNDS.name)
            newest, version = _newest(rounds), rounds.version()
        except (QuotaplaneError, DeltaError, OSError, ValueError) as error:
            # The answer needs no token, so the details go to stderr only.
            failure, unread = "can't be read", f"can't be read: {one_line(error)}"
        else:
            self._last_round = newest
            if version != self._version:  # not by time: the job's clock may have been set back
                self._version, self._new_round_at = version, self._clock()
            self._compare_clocks()
        self._conditions.note(HISTORY, "", unread)
        self._failure = failure
        self._looked_at = self._clock()

    def _compare_clocks(self) -> None:
        ahead_s = 0.0
        if self._last_round is not None:
            ahead_s = (self._last_round - self._now()).total_seconds()
        text = (
            f"the newest round is {ahead_s:.0f} s ahead of this host's clock. If this clock is "
            "wrong, tokens are accepted for as long after they expired. Compare `date -u` here and "
            "on the job's host, and check that NTP runs"
        )
        self._conditions.note(CLOCK_OF_JOB, "", text if ahead_s > _AHEAD_S else None)


def _newest(rounds: DeltaTable) -> datetime | None:
    """The time of the newest recorded round, from the files' statistics; None: there is none."""
    files = pa.table(rounds.get_add_actions(flatten=True))
    if not len(files) or "max.round_at" not in files.column_names:
        return None
    newest = pc.max(files["max.round_at"]).as_py()
    if newest is None:
        return None
    assert isinstance(newest, datetime)
    return newest if newest.tzinfo else newest.replace(tzinfo=timezone.utc)
