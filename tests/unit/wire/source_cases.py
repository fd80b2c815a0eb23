"""Reports as Spark hands them to the decoding tasks, and what these make of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from quotaplane.arrow import unpack
from quotaplane.settings import Reports
from quotaplane.streams import sources
from quotaplane.streams.sender_checks import SenderChecks
from quotaplane.wire.intake import Intake
from quotaplane.wire.shard_inputs import unpack_reports

NOW_MS: Final = 1_790_000_000_000
MOST: Final = 1024
"""Bytes of a message that a task gets whole; of a longer one it gets the beginning."""

Letter = dict[str, Any]


def rows(
    values: Sequence[bytes],
    ages_s: Sequence[float] = (),
    first: int = 0,
    at: str = "t/0",
    most: int = MOST,
    now_ms: int = NOW_MS,
    **columns: Any,
) -> pa.RecordBatch:
    """Reports of these ages, from position ``at@first`` on; ``columns``: key or topic."""
    ages_s = ages_s or [0.0] * len(values)
    return pa.record_batch(
        {
            "value": pa.array([v[:4096] if len(v) > most else v for v in values], pa.binary()),
            "size": pa.array(map(len, values), pa.int32()),
            "published_at_ms": [now_ms - round(age_s * 1000) for age_s in ages_s],
            "position": [f"{at}@{first + number}" for number in range(len(values))],
            "now_ms": [now_ms] * len(values),
            **columns,
        }
    )


def events_of(
    batches: Iterable[pa.RecordBatch], reports: Reports, oldest_s: float = 120.0, *more: Any
) -> dict[str, list[bytes]]:
    """The payloads of a task, by kind."""
    payloads: dict[str, list[bytes]] = {}
    for events in sources._to_report_events(reports, 1, oldest_s, *more)(batches):
        for kind, payload in zip(events["kind"], events["payload"], strict=True):
            payloads.setdefault(kind.as_py(), []).append(payload.as_py())
    return payloads


class Taken:
    """Output of a task for batches that it reads."""

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        intake: Intake | None = None,
        checks: SenderChecks | None = None,
    ) -> None:
        payloads = events_of(batches, Reports(), 120.0, checks or SenderChecks(), intake)
        headers, self.entries = unpack_reports(payloads.get("reports", []))
        self.brokers: list[str] = headers["broker"].to_pylist()
        """Brokers of the reports that are used."""
        letters = {
            kind: [row for one in many for table in unpack(one) for row in table.to_pylist()]
            for kind, many in payloads.items()
            if kind != "reports"
        }
        self.letters: list[Letter] = letters.get("rejected", [])
        self.left_out: list[Letter] = letters.get("left_out", [])
        """Reports that are to be recorded later."""

    @property
    def refused(self) -> list[Letter]:
        return [*self.letters, *self.left_out]
