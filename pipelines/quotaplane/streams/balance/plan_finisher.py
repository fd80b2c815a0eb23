"""The end of a micro-batch of the balance job: rows, the plan's message, counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from quotaplane.model import Round
from quotaplane.streams.quota.letter_budget import LetterBudget
from quotaplane.streams.sink import Finished, Finisher, Packed, joined
from quotaplane.streams.status import StatusUpdate
from quotaplane.transport.base import Message
from quotaplane.wire.rejected_reports import reports_by_reason

COUNTERS: Final = ("reports", "decided", "moves", "splits", "skips")
GAUGES: Final = ("brokers_live", "brokers_silent", "bundles", "imbalance_pct", "lag_s")
"""Fields of the status line; docs/balance-job.md explains them."""


class BalanceFinisher(Finisher):
    """See ``sink.Finisher``. ``positions`` returns a round's offsets, by its seq."""

    def __init__(self, cluster: str, positions: Callable[[int], dict[str, Any]]) -> None:
        self._cluster = cluster
        self._positions = positions
        self._letters = LetterBudget()

    def finish(self, stamp: Round, packed: Packed) -> Finished:
        """Rows by history table, at most one plan, and counts."""
        apart = ("counts", "plan")
        tables = {kind: joined(payloads) for kind, payloads in packed.items() if kind not in apart}
        counts = json.loads(packed["counts"][0]) if "counts" in packed else {}
        rejected: dict[str, int] = {}
        if "rejected_reports" in tables:
            letters = tables["rejected_reports"]
            rejected = reports_by_reason(letters)
            tables["rejected_reports"] = self._letters.cut(letters, stamp.now_ms)
        if "balance_rounds" in tables:
            positions = pa.array([json.dumps(self._positions(stamp.seq))], pa.string())
            rounds = tables["balance_rounds"]
            tables["balance_rounds"] = rounds.append_column("positions", positions)
        messages = [Message(self._cluster, value) for value in packed.get("plan", ())]
        return Finished(tables, messages, _status(counts, rejected))


def _status(counts: dict[str, float], rejected: dict[str, int]) -> StatusUpdate:
    gauges: dict[str, float] = {name: counts[name] for name in GAUGES if name in counts}
    if counts.get("newest_ms", -1) > 0:
        gauges["lag_s"] = time.time() - counts["newest_ms"] / 1000
    arrived = int(counts.get("reports", 0) + counts.get("superseded", 0)) + sum(rejected.values())
    added = {name: int(counts.get(name, 0)) for name in COUNTERS}
    return StatusUpdate(added, rejected, gauges, arrived)
