"""Rounds of one shard of the quota job: what it gets, as bytes, and what it gives."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotaplane.arrow import unpack
from quotaplane.model import BASIC, RATE_COLUMNS, IntArray, group_id
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.shard_program import Output
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.reports import decode
from quotaplane.wire.shard_inputs import pack_groups, pack_reports


def raw_settings(folder: Path | str = "data", **sections: Any) -> dict[str, Any]:
    """Settings of a job with embedded topics, as a file has them; ``sections`` are added."""
    return {
        "transport": {"kind": "delta", "path": f"{folder}/topics"},
        "history": {"path": f"{folder}/history"},
        "checkpoint": f"{folder}/checkpoint",
        **sections,
    }


def job_settings(folder: Path | str = "data", **sections: Any) -> Settings:
    return parse_settings(raw_settings(folder, **sections))


SETTINGS: Final = job_settings(reports={"interval_s": 1.0})
PROGRAM: Final = quota_program(SETTINGS, epoch=1)


def usage_report(
    broker: str = "b1", groups: Sequence[str] | None = ("g",), rate: float = 3.0, **fields: Any
) -> bytes:
    """A report in our own format: ``rate`` of each group, in the first four dimensions."""
    count = len(fields["group_ids"] if groups is None else groups)
    usual = {
        "started_at_ms": 1,
        "sequence": 1,
        "window_ms": 1000,
        "groups": groups,
        "usage": np.full((count, BASIC), rate),
    }
    return encode_report(broker=broker, **{**usual, **fields})


def packed(*values: bytes, at_ms: int | IntArray, now_ms: int | None = None) -> list[bytes]:
    """The payload of reports that were published at these times and are read together."""
    times = np.broadcast_to(np.asarray(at_ms, np.int64), len(values))
    decoded = decode(
        values,
        times,
        [f"r/0@{number}" for number in range(len(values))],
        now_ms=int(times.max()) if now_ms is None else now_ms,
        reports=SETTINGS.reports,
    )
    assert decoded.rejected.num_rows == 0
    return [payload for _, payload in pack_reports(decoded, 1)]


def group_changes(
    *groups: str, rate: float = 10.0, dimensions: int = len(RATE_COLUMNS), **columns: Any
) -> list[bytes]:
    """The payload of groups that are put, with a quota in the first ``dimensions``.

    ``columns`` have a value for each group.
    """
    usual = {
        "group": groups,
        "group_id": list(map(group_id, groups)),
        "deleted": [False] * len(groups),
        "version": [0] * len(groups),
        **dict.fromkeys(RATE_COLUMNS[:dimensions], pa.array([rate] * len(groups))),
    }
    return [payload for _, payload in pack_groups(pa.table({**usual, **columns}), 1)]


def tables(outputs: Iterable[Output]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each kind."""
    return {
        output.kind: [json.loads(output.payload)]
        if output.kind == "counts"
        else unpack(output.payload)[0].to_pylist()
        for output in outputs
    }


def dataframe(outputs: Iterable[Output]) -> Any:
    """In place of a micro-batch's DataFrame: what the sink asks it for."""
    rows = list(outputs)
    kinds = pa.array([output.kind for output in rows], pa.string())
    payloads = pa.array([output.payload for output in rows], pa.binary())
    table = pa.table({"kind": kinds, "payload": payloads})
    return SimpleNamespace(toArrow=lambda: table)
