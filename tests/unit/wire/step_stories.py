"""Random rounds for the step: the reports and group changes of a cluster, generated from a seed.

A report is a header row with its entries. ``Events`` can be built from a round's reports and
changes in any order and in any number of payloads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotaplane.groups.policy_options import FLOOR_COLUMNS
from quotaplane.model import (
    BASIC,
    DIMENSIONS,
    IN_FORCE_COLUMNS,
    LIMIT_COLUMNS,
    PARTS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    Transition,
    group_id,
)
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.outcome import Outcome
from quotaplane.wire.shard_inputs import (
    GROUPS,
    HEADERS,
    NAMED_EVERY,
    OPTIONAL_ENTRIES,
    Decoded,
    entries_schema,
    pack_groups,
    pack_reports,
    unpack_groups,
    unpack_reports,
)
from tests.unit.quota.step_cases import CONFIG, T0

EPOCH: Final = 7
NAMES: Final = ("g", "h", "t", "t::a", "t::a::x", "t::b", "s")
UNDEFINED: Final = ("nobody's", "t::nobody's")
BROKERS: Final = ("b10", "b2", "a", "z9", "c", "stock-1", "stock-0")
_NUMBERS: Final = frozenset((*RATE_COLUMNS, *THROTTLED_COLUMNS, *IN_FORCE_COLUMNS))

Row = dict[str, Any]


@dataclass
class BrokerState:
    """The state of one broker."""

    started_at_ms: int = 0
    sequence: int = 0
    """Number of the last report."""
    limits: dict[str, tuple[int, int, dict[str, float]]] = field(default_factory=dict)
    """By group: epoch and seq of the limit, and its rates by dimension."""


class Story:
    """The rounds of a seed; ``deliver`` gives each round's limits to the brokers, which obey."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.now_ms = T0
        self.version = 0
        self.config = self._settings()
        names = self.rng.permutation(BROKERS)[: self.rng.integers(2, len(BROKERS))]
        self.brokers = {str(name): BrokerState() for name in names}
        self._start_brokers()
        self.loss = float(self.rng.choice([0.0, 0.1, 0.4]))

    def _settings(self) -> StepConfig:
        return replace(
            CONFIG,
            price=float(self.rng.choice([0.0, 0.05])),
            transition=list(Transition)[int(self.rng.integers(0, 2))],
            lease_ms=40_000,
            refresh_rounds=int(self.rng.choice([2, 10])),
            max_step=self.rng.choice([None, None, 0.1]),
            learns=bool(self.rng.random() < 0.5),
        )

    def _start_brokers(self) -> None:
        """Some brokers obey an earlier epoch when the first round begins."""
        for broker in self.brokers.values():
            broker.started_at_ms = self.now_ms - int(self.rng.integers(0, 50_000))
            for name in NAMES:
                if self.rng.random() < 0.5:
                    broker.limits[name] = (EPOCH - 1, int(self.rng.integers(0, 9)), self._rates())

    def round(self) -> tuple[int, list[Row], list[Row]]:
        """The next round: its time, reports (headers with entries) and changes of groups."""
        pause_ms = self.rng.choice([200, 1000, 5000, 12_000, 40_000], p=[0.2, 0.4, 0.3, 0.06, 0.04])
        self.now_ms += int(self.rng.integers(1, pause_ms + 1))
        changes = self._changes() if self.rng.random() < 0.4 or self.version == 0 else []
        made: list[Row] = []
        for name, broker in self.brokers.items():
            if self.rng.random() < 0.03:  # restarted
                broker.started_at_ms, broker.sequence = self.now_ms, 0
                broker.limits.clear()
            if self.rng.random() < 0.65:
                for _ in range(int(self.rng.choice([1, 2, 3, 12], p=[0.7, 0.2, 0.08, 0.02]))):
                    made.append(self._report(name, broker))
        for report in list(made):
            if self.rng.random() < 0.1:  # a duplicate, or one that differs in its entries only
                again = {**report, "position": f"{report['position']}+"}
                if self.rng.random() < 0.5:
                    name = report["broker"]
                    again["entries"] = self._entries(name, self.brokers[name])
                made.append(again)
        return self.now_ms, made, changes

    def deliver(self, outcome: Outcome, seq: int) -> None:
        """Send the round's limits to their brokers; some messages are lost."""
        limits, ended = outcome.limits.to_pylist(), outcome.ended.to_pylist()
        for row in limits:
            if row["published"] and self.rng.random() >= self.loss:
                rates = {
                    dimension: (row.get(column, np.inf) if row["enforced"] else np.inf)
                    for dimension, column in zip(DIMENSIONS, RATE_COLUMNS, strict=True)
                }
                self.brokers[row["broker"]].limits[row["group"]] = (EPOCH, seq, rates)
        for row in ended:
            if self.rng.random() >= self.loss:
                self.brokers[row["broker"]].limits.pop(row["group"], None)

    def _rates(self) -> dict[str, float]:
        return {d: float(self.rng.choice([np.inf, self.rng.uniform(0, 90)])) for d in DIMENSIONS}

    def _report(self, name: str, broker: BrokerState) -> Row:
        stock = name.startswith("stock")
        at_ms = self.now_ms - int(self.rng.integers(-500, 6000))
        broker.sequence += 1
        started_at_ms = 0 if stock else broker.started_at_ms
        if self.rng.random() < 0.01:  # a forged report in the broker's name
            started_at_ms = self.now_ms + int(self.rng.choice([20_000, 1 << 50]))
        applied = max((limit[:2] for limit in broker.limits.values()), default=(-1, -1))
        return {
            "broker": name,
            "started_at_ms": started_at_ms,
            "sequence": at_ms // 100 if stock else broker.sequence,
            "published_at_ms": at_ms,
            "window_s": 5.0,
            "applied_epoch": -1 if stock else applied[0],
            "applied_seq": -1 if stock else applied[1],
            "uses_ids": name == "a",
            "position": f"reports/0@{name}-{self.now_ms}-{broker.sequence}",
            "named_every": int(name == "a" and self.rng.choice([0, 1, 4])),
            "entries": self._entries(name, broker),
        }

    def _entries(self, name: str, broker: BrokerState) -> list[Row]:
        stock, reports_refused = name.startswith("stock"), name in ("a", "b2")
        reports_limits = not stock and self.rng.random() < 0.3
        epoch = max((limit[0] for limit in broker.limits.values()), default=-1)
        entries = []
        for group in (*NAMES, *UNDEFINED):
            if self.rng.random() < 0.3:
                continue
            row: Row = {"group_id": group_id(group), "group": None if name == "a" else group}
            in_force = broker.limits.get(group)
            seq = in_force[1] if in_force is not None and in_force[0] == epoch else -1
            if not stock:
                row["applied_seq"] = float(seq)
            idle = self.rng.random() < 0.1
            for index, dimension in enumerate(DIMENSIONS):
                limit = in_force[2][dimension] if in_force is not None else np.inf
                wants = float(self.rng.choice([0.0, self.rng.uniform(0, 120), 33.0]))
                unchanged = idle or self.rng.random() < 0.2 or (stock and index >= BASIC)
                total = index in PARTS and self.rng.random() < 0.8
                if unchanged or total:
                    row[RATE_COLUMNS[index]] = np.nan
                    continue
                row[RATE_COLUMNS[index]] = min(wants, limit)
                if reports_refused and self.rng.random() < 0.95:
                    row[THROTTLED_COLUMNS[index]] = max(wants - limit, 0.0)
            if reports_limits and in_force is not None:
                row |= dict(zip(LIMIT_COLUMNS, in_force[2].values(), strict=True))
            entries.append(row)
        return entries

    def _changes(self) -> list[Row]:
        rows = []
        for _ in range(int(self.rng.integers(1, 5)) if self.version else 6):
            self.version += self.rng.random() < 0.9  # else one commit changes the group twice
            name = str(self.rng.choice(NAMES))
            row: Row = dict.fromkeys(GROUPS.names)
            row |= {"group": name, "group_id": group_id(name), "version": self.version}
            row["deleted"] = bool(self.version > 6 and self.rng.random() < 0.2)
            if not row["deleted"]:
                row |= self._definition()
            rows.append(row)
        return rows

    def _definition(self) -> Row:
        row: Row = {}
        for column in RATE_COLUMNS:
            if self.rng.random() < 0.4:
                row[column] = float(self.rng.choice([0.0, 100.0, self.rng.uniform(1, 300)]))
        if self.rng.random() < 0.4:
            row["mode"] = str(self.rng.choice(["hard", "soft", "shadow"]))
        if self.rng.random() < 0.3:
            row["enforcement_percent"] = float(self.rng.choice([0.0, 30.0, 60.0, 100.0]))
        if self.rng.random() < 0.2:
            row["weight"] = float(self.rng.uniform(0.1, 5))
            row["priority"] = float(self.rng.integers(-3, 3))
            row[str(self.rng.choice(FLOOR_COLUMNS))] = float(self.rng.uniform(0, 60))
        if self.rng.random() < 0.3:
            row["brokers"] = json.dumps(self._terms())
        if self.rng.random() < 0.2:
            row["throttle"] = json.dumps({"*": {"samples": int(self.rng.integers(2, 5))}})
        return row

    def _terms(self) -> dict[str, Any]:
        named = [*self.rng.permutation(BROKERS)[:2].tolist(), "*"]
        column = str(self.rng.choice(RATE_COLUMNS))
        kinds = (
            {"weight": float(self.rng.uniform(0.1, 9))},
            {"priority": int(self.rng.integers(-2, 3))},
            {"floor": {column: float(self.rng.uniform(0, 50))}},
            {"ceiling": {column: float(self.rng.uniform(0, 80))}},
        )
        return {name: kinds[int(self.rng.integers(0, len(kinds)))] for name in named}


def report_payloads(made: list[Row], rng: np.random.Generator | None = None) -> list[bytes]:
    """Reports packed in order as one payload; with ``rng`` shuffled, in several payloads."""
    parts = [made]
    if rng is not None:
        cuts = np.sort(rng.integers(0, len(made) + 1, int(rng.integers(0, 4))))
        parts = [[made[i] for i in p] for p in np.split(rng.permutation(len(made)), cuts)]
    return [_payload(part) for part in parts if part]


def _payload(made: list[Row]) -> bytes:
    schema_of_headers = HEADERS
    if any(report["named_every"] for report in made):
        schema_of_headers = HEADERS.append(NAMED_EVERY)
    header = [{name: report[name] for name in schema_of_headers.names} for report in made]
    entries = [{"report": i, **row} for i, report in enumerate(made) for row in report["entries"]]
    given = {name for row in entries for name in row}
    schema = entries_schema(*(names for names in OPTIONAL_ENTRIES if given.intersection(names)))
    columns = {
        name: [row.get(name, np.nan if name in _NUMBERS else None) for row in entries]
        for name in schema.names
    }
    decoded = Decoded(
        pa.Table.from_pylist(header, schema=schema_of_headers),
        pa.table(columns, schema=schema),
        pa.table({}),
    )
    ((_, payload),) = pack_reports(decoded, 1)
    return payload


def change_payloads(changes: list[Row], rng: np.random.Generator | None = None) -> list[bytes]:
    """Changes packed in order as one payload; with ``rng`` shuffled, in two payloads."""
    parts = [changes]
    if rng is not None:
        order = rng.permutation(len(changes))
        parts = np.split(order, [int(rng.integers(0, len(changes) + 1))])
        parts = [[changes[i] for i in part] for part in parts]
    return [
        payload
        for part in parts
        if part
        for _, payload in pack_groups(pa.Table.from_pylist(part, schema=GROUPS), 1)
    ]


def events_of(reports: list[bytes], groups: list[bytes]) -> Events:
    headers, entries = unpack_reports(reports) if reports else (None, None)
    return Events(headers, entries, unpack_groups(groups) if groups else None)
