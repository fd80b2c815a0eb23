"""Violations that must be found in any run, with Kafka or with Pulsar, if they are planted."""

from __future__ import annotations

from typing import Any, Final

from tests.outside.journal import Exit

IN_ANY_RUN: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "traceback": ("known ends", {"exits": [Exit(0, "job-1", 3, "Traceback (most recent ...")]}),
    "never runs again": ("known ends", {"exits": [Exit(0, "job-1", 7, "batch 7 failed")]}),
    "broken table": ("history", {"history": ["doctor: exit code 10: table rounds"]}),
}
"""By what it is: the check that must find it, and the changed evidence."""
