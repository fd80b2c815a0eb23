"""The end of a micro-batch of the balance job: rows, the plan's message, counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from quotabalance.balancer_conditions import NO_LOAD_REPORTS
from quotabalance.settings import Balance
from quotaplane.agents.conditions import Conditions
from quotaplane.metrics.readings import Numbers
from quotaplane.model import Round
from quotaplane.streams.letter_budget import LetterBudget
from quotaplane.streams.refused_brokers import note_refused_brokers
from quotaplane.streams.silence_watch import SilenceWatch
from quotaplane.streams.sink import Finished, Finisher, Packed, joined
from quotaplane.streams.status import StatusUpdate
from quotaplane.transport.base import Message
from quotaplane.wire.rejected_reports import reports_by_reason
from quotaplane.wire.signatures import SigningKeys

COUNTERS: Final = ("reports", "decided", "moves", "splits", "skips")
GAUGES: Final = ("brokers_live", "brokers_silent", "bundles", "imbalance_pct", "lag_s")
"""Fields of the status line; docs/operate/balance-job.md explains them."""


class BalanceFinisher(Finisher):
    """See ``sink.Finisher``. ``positions`` returns a round's offsets, by its seq."""

    def __init__(
        self,
        balance: Balance,
        stale_after_s: float,
        positions: Callable[[int], dict[str, Any]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._cluster, self._keys = balance.cluster, SigningKeys.of(balance.signing)
        self._positions = positions
        self._letters = LetterBudget()
        self._silence = SilenceWatch(
            NO_LOAD_REPORTS,
            stale_after_s / 2,
            f"brokers are left out once their numbers are {stale_after_s:g} s old, and then nothing"
            " moves. Check that the collector, or the brokers, run and publish to"
            f" {balance.loads_topic}",
        )
        self._broker_from = balance.broker_from
        self._began_s, self._arrived = 0.0, 0
        self._rejected: dict[str, int] = {}

    def begin(self) -> None:
        """Remember when the batch began."""
        self._began_s, self._arrived, self._rejected = self._clock(), 0, {}

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
        plans = packed.get("plan", ())
        signed = plans if self._keys is None else map(self._keys.sign, plans)
        messages = [Message(self._cluster, value) for value in signed]
        dead_letters = len(tables.get("rejected_reports", ()))
        status = _status(counts, rejected, dead_letters)
        self._arrived, self._rejected = status.arrived, rejected
        return Finished(tables, messages, status)

    def end(self, conditions: Conditions) -> Iterable[tuple[str, str]]:
        """States whether load reports stay away, or are refused because of their brokers."""
        self._silence.after(self._began_s, self._arrived, conditions)
        note_refused_brokers(conditions, self._broker_from, self._rejected)
        return ()


def _status(counts: dict[str, Any], rejected: dict[str, int], dead_letters: int) -> StatusUpdate:
    gauges: dict[str, float] = {name: counts[name] for name in GAUGES if name in counts}
    if counts.get("newest_ms", -1) > 0:
        gauges["newest_report"] = counts["newest_ms"] / 1000
        gauges["lag_s"] = time.time() - counts["newest_ms"] / 1000
    gauges_by: dict[str, Numbers] = {}
    if "imbalance_pct" in counts:
        gauges["imbalance"] = counts["imbalance_pct"] / 100
        brokers: Numbers = {(status,): counts[f"brokers_{status}"] for status in ("live", "silent")}
        gauges_by["balance_brokers"] = brokers
    decisions: Numbers = {
        (decision, label): count
        for decision, labels in counts.get("decisions", {}).items()
        for label, count in labels.items()
    }
    arrived = int(counts.get("reports", 0) + counts.get("superseded", 0)) + sum(rejected.values())
    added = {name: int(counts.get(name, 0)) for name in COUNTERS} | {"dead_letters": dead_letters}
    return StatusUpdate(added, rejected, gauges, arrived, {"decisions": decisions}, gauges_by)
