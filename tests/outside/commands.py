"""Commands of quotaplane that a run gives, and questions to its history at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.outside.journal import Put
from tests.outside.processes import now_ms, quotaplane

DOCTOR: Final = {"doctor": ("doctor",)}
_OPTIONS: Final = {
    "publish_messages": "--publish-messages-per-s",
    "publish_bytes": "--publish-bytes-per-s",
}


def put_quota(conf: Path, group: str, dimension: str, quota: float) -> Put:
    """Set a group's quota; says whether the command acknowledged it."""
    begun_ms = now_ms()
    words = ("groups", "put", group, _OPTIONS[dimension], str(quota))
    code, *_ = quotaplane(*words, "--conf", str(conf))
    return Put(begun_ms, now_ms(), group, quota, code == 0)


def quotas_in_table(conf: Path, dimension: str) -> dict[str, float]:
    """Quotas in the table by group; none if the command fails."""
    code, printed, _ = quotaplane("groups", "list", "--json", "--conf", str(conf))
    rows = json.loads(printed) if code == 0 else []
    return {row["group"]: row[f"{dimension}_per_s"] for row in rows}


def complaints(conf: Path, asked: Mapping[str, Sequence[str]]) -> list[str]:
    """Complaints of commands, by the name under which each is to be shown."""
    found = []
    for name, words in asked.items():
        code, printed, error = quotaplane(*words, "--conf", str(conf))
        if code != 0:
            found.append(f"{name}: exit code {code}: {error}{printed[:2000]}")
    return found
