"""The real step of the quota job as the controller of a simulated loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from quotaplane.laws import Law
from quotaplane.model import (
    BASIC,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    FloatArray,
    Round,
    Transition,
    group_id,
)
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.state import ShardState
from quotaplane.quota.step import step
from quotaplane.sim.loop import ArrivedReports
from quotaplane.wire.shard_inputs import GROUPS, HEADERS, entries_schema

ROUND_MS: Final = 1000
"""Default length of a round."""

SILENT_ROUNDS: Final = 3, 4
"""Rounds without a report after which a broker is stale, and expired."""

LEASE_ROUNDS: Final = 30

_GROUP: Final = "g"
_ENTRIES: Final = entries_schema(THROTTLED_COLUMNS[:BASIC], ("applied_seq",))


def step_config(
    law: Law,
    transition: Transition = Transition.FAST,
    delay_rounds: int = 0,
    round_ms: int = ROUND_MS,
    over: float = 0.0,
) -> StepConfig:
    """The step's config in rounds; brokers may be silent for ``delay_rounds`` longer."""
    stale, gone = (round_ms * (rounds + delay_rounds) for rounds in SILENT_ROUNDS)
    return StepConfig(
        law=law,
        stale_after_ms=stale,
        expire_after_ms=gone,
        lease_ms=round_ms * LEASE_ROUNDS,
        transition=transition,
        over=over,
        round_ms=round_ms,
        learns=False,  # all brokers start with the loop
    )


class StepController:
    """One group with one quota in the first dimension, controlled by ``quota.step.step``.

    Reports have our own format: with refused rates (if ``ArrivedReports`` has them) and with the
    round whose decision was in force. The end of round r is step r + 1; a report has a window of
    ``round_ms``.
    """

    def __init__(self, config: StepConfig, brokers: int, round_ms: int = ROUND_MS) -> None:
        self.initial_limit = 0.0 if config.transition is Transition.STRICT else np.inf
        self.state = ShardState()
        self._config, self._round_ms = config, round_ms
        self._names: Sequence[str] = [f"b{number}" for number in range(brokers)]
        self._quota: float | None = None
        self._decided = np.full(brokers, -1)
        self._started_at_ms = np.zeros(brokers, np.int64)

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        """The limits published at the end of a round, (brokers,); NaN: none for this broker."""
        now = Round(epoch=1, seq=round_ + 1, now_ms=(round_ + 1) * self._round_ms)
        headers, entries = self._reports(arrived) if len(arrived.broker) else (None, None)
        changes = None
        if quota != self._quota:
            changes, self._quota = _quota(quota, version=now.seq), quota
        self.state, outcome = step(self.state, Events(headers, entries, changes), now, self._config)
        answer = np.full(len(self._names), np.nan)
        names = outcome.limits["broker"].to_pylist()
        at = np.fromiter((int(name[1:]) for name in names), np.int64, len(names))
        answer[at] = outcome.limits[RATE_COLUMNS[0]].to_numpy()
        return answer

    def _reports(self, arrived: ArrivedReports) -> tuple[pa.Table, pa.Table]:
        count = len(arrived.broker)
        self._notice_restarts(arrived)
        applied = arrived.decided_round >= 0
        applied_seq = np.where(applied, arrived.decided_round + 1, -1)
        headers = {
            "broker": [self._names[b] for b in arrived.broker],
            "started_at_ms": self._started_at_ms[arrived.broker],
            "sequence": arrived.about_round,
            "published_at_ms": (arrived.about_round + 1) * self._round_ms,
            "window_s": np.full(count, self._round_ms / 1000.0),
            "applied_epoch": np.where(applied, 1, -1),
            "applied_seq": applied_seq,
            "uses_ids": np.zeros(count, bool),
            "position": [""] * count,
        }
        unused = np.full(count, np.nan)
        entries = {
            "report": np.arange(count, dtype=np.int32),
            "group_id": np.full(count, group_id(_GROUP)),
            "group": [_GROUP] * count,
            **dict.fromkeys((*RATE_COLUMNS[:BASIC], *THROTTLED_COLUMNS[:BASIC]), unused),
            RATE_COLUMNS[0]: arrived.usage,
            THROTTLED_COLUMNS[0]: arrived.throttled,
            "applied_seq": applied_seq.astype(np.float64),
        }
        return pa.table(headers, schema=HEADERS), pa.table(entries, schema=_ENTRIES)

    def _notice_restarts(self, arrived: ArrivedReports) -> None:
        """Give brokers that had limits and have none now a new start time: they were restarted."""
        for index in np.argsort(arrived.about_round, kind="stable"):
            broker, decided = arrived.broker[index], arrived.decided_round[index]
            if decided < 0 <= self._decided[broker]:
                self._started_at_ms[broker] = arrived.about_round[index]
            self._decided[broker] = decided


def _quota(quota: float, version: int) -> pa.Table:
    row = {
        **{name: [None] for name in GROUPS.names},
        "group": [_GROUP],
        "group_id": [group_id(_GROUP)],
        RATE_COLUMNS[0]: [quota if np.isfinite(quota) else None],
        "deleted": [False],
        "version": [version],
    }
    return pa.table(row, schema=GROUPS)
