"""Hand-made events for the step, and a shard that keeps its state and limits between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.laws import get_law
from quotaplane.model import (
    DIMENSIONS,
    IN_FORCE_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    Round,
    Transition,
    group_id,
)
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import step
from tests.state_invariants import check_state

CONFIG = StepConfig(
    law=get_law("max_min"), stale_after_ms=10_000, expire_after_ms=15_000, price=0.0
)
"""Without a price, limits are simple numbers: who is held back gives nothing for headroom. An idle
broker that reports no refusals then gets nothing, and so never wakes; settings allow no price of 0.
"""
WITH_PRICE = replace(CONFIG, price=0.05)
STRICT = replace(
    CONFIG,
    transition=Transition.STRICT,
    lease_ms=60_000,
    refresh_rounds=1_000_000,
    learns=False,
)
T0 = 1_000_000
NOTHING = Events()


Rates = float | None | Mapping[str, float]
"""A rate of published messages, or rates by dimension."""


def by_column(rates: Rates) -> dict[str, float | None]:
    """Rates by column; None in dimensions that are not given."""
    given = rates if isinstance(rates, Mapping) else {DIMENSIONS[0]: rates}
    named = {f"{dimension}_per_s": rate for dimension, rate in given.items()}
    return dict.fromkeys(RATE_COLUMNS) | named


def quotas(*changes: tuple[str, Rates] | str, version: int = 0) -> Events:
    """``("g", 100)`` sets a quota on publish messages, ``"g"`` deletes the group."""
    rows = []
    for number, change in enumerate(changes):
        name, quota = (change, None) if isinstance(change, str) else change
        row: dict[str, Any] = {**by_column(quota)}
        row |= {"group": name, "group_id": group_id(name), "deleted": isinstance(change, str)}
        rows.append(row | {"version": version + number})
    return Events(groups=pa.table({k: pa.array([r[k] for r in rows], KINDS[k]) for k in rows[0]}))


KINDS = {
    **dict.fromkeys(RATE_COLUMNS, pa.float64()),
    "group": pa.string(),
    "group_id": pa.int64(),
    "deleted": pa.bool_(),
    "version": pa.int64(),
}


def report(
    broker: str,
    at_ms: int,
    uses: Mapping[str, Rates],
    *,
    throttled: Rates = np.nan,
    applied_seqs: int | None = None,
    limit: Rates = np.nan,
    **header: Any,
) -> dict[str, Any]:
    """One report; ``throttled``, ``applied_seqs`` and ``limit`` hold for all its groups."""
    return {
        "broker": broker,
        "started_at_ms": 0,
        "sequence": at_ms,
        "published_at_ms": at_ms,
        "window_s": 5.0,
        "applied_epoch": -1,
        "applied_seq": -1,
        "uses_ids": False,
        "position": f"reports/0@{broker}-{at_ms}",
        **header,
        "uses": uses,
        "more": {
            **{f"throttled_{name}": rate for name, rate in by_column(throttled).items()},
            **{f"limit_{name}": rate for name, rate in by_column(limit).items()},
            "applied_seq": np.nan if applied_seqs is None else float(applied_seqs),
        },
    }


def reports(*made: dict[str, Any]) -> Events:
    """Reports, each made with ``report``, as events."""
    if not made:
        return NOTHING
    entries = [(i, g, u) for i, r in enumerate(made) for g, u in r["uses"].items()]
    names = [g for _, g, _ in entries]
    usage = [by_column(u) for _, _, u in entries]
    more = {
        name: np.array([made[i]["more"].get(name, np.nan) for i, _, _ in entries], np.float64)
        for name in (*THROTTLED_COLUMNS, *IN_FORCE_COLUMNS)
    }
    return Events(
        headers=pa.Table.from_pylist(
            [{k: v for k, v in r.items() if k not in ("uses", "more")} for r in made]
        ),
        entries=pa.table(
            {
                "report": pa.array([i for i, _, _ in entries], pa.int32()),
                "group_id": pa.array(map(group_id, names), pa.int64()),
                "group": pa.array(names, pa.string()),
                **{c: np.array([u[c] for u in usage], np.float64) for c in RATE_COLUMNS},
                **more,
            }
        ),
    )


class Shard:
    """A shard under test, with its state and the limits in force by group and broker."""

    def __init__(self, config: StepConfig = CONFIG, epoch: int = 1) -> None:
        self.config, self.state, self.seq, self.epoch = config, ShardState(), 0, epoch
        self.in_force: dict[tuple[str, str], float] = {}

    def run(self, events: Events = NOTHING, *, now_ms: int) -> Outcome:
        """Run one round, and write and read the state as a checkpoint does."""
        round_ = Round(epoch=self.epoch, seq=self.seq, now_ms=now_ms)
        self.state, outcome = step(self.state, events, round_, self.config)
        check_state(self.state)
        self.state = load(dump(self.state))
        self.seq += 1
        for row in outcome.limits.to_pylist():
            self.in_force[row["group"], row["broker"]] = row[RATE_COLUMNS[0]]
        for row in outcome.ended.to_pylist():
            self.in_force.pop((row["group"], row["broker"]), None)
        return outcome

    def report(self, now_ms: int, uses: Mapping[str, Rates], **more: Any) -> Outcome:
        """A round with a report of each broker, which says what it uses of the group ``g``."""
        made = (report(broker, now_ms, {"g": used}, **more) for broker, used in uses.items())
        return self.run(reports(*made), now_ms=now_ms)


def with_quotas(
    *changes: tuple[str, Rates] | str, config: StepConfig = CONFIG, epoch: int = 1
) -> Shard:
    """A shard after its first round, which sets these ``quotas``."""
    shard = Shard(config, epoch)
    shard.run(quotas(*changes), now_ms=T0)
    return shard


def sigma(rate: float) -> float:
    """The standard deviation, per second, with which a broker's first ``report`` of so many
    messages a second is counted: it reports no refusals, and nothing is known of it yet.

    Twice the variance of counting over its 5 s, as it reports none, and that of one mean again.
    """
    return float(np.sqrt(rate / 5.0 * 2.0 * 2.0))


def started(quota: Rates, config: StepConfig = CONFIG, **uses: Rates) -> Shard:
    """A shard with the group ``g``, after one report of each broker."""
    shard = with_quotas(("g", quota), config=config)
    shard.report(T0, uses)
    return shard
