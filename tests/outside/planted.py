"""Violations that must be found in any run, with Kafka or with Pulsar, if they are planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.outside.journal import Exit, Run


def _traceback(run: Run) -> None:
    run.exits.append(Exit(run.end_ms, "job-1", 3, "Traceback (most recent call last) ..."))


def _never_runs_again(run: Run) -> None:
    run.exits.append(Exit(run.end_ms, "job-1", 7, "batch 7 failed three times"))


def _broken_table(run: Run) -> None:
    run.history.append("doctor: exit code 10: table rounds: a file is missing")


IN_ANY_RUN: Final[dict[str, tuple[str, Callable[[Run], None]]]] = {
    "traceback": ("known ends", _traceback),
    "never runs again": ("known ends", _never_runs_again),
    "broken table": ("history", _broken_table),
}
"""By what it is: the check that must find it, and what plants it."""
