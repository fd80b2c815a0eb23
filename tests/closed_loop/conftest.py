"""Runs the whole loop without Spark: simulated brokers, real bytes, the real decoder and step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.arrow import unpack
from quotaplane.model import DIMENSIONS, group_id
from quotaplane.quota.state import ShardState
from quotaplane.settings import Settings, parse_settings
from quotaplane.sim.broker_fleet import BrokerSpec, Report
from quotaplane.sim.broker_throttle import BY_DEFAULT
from quotaplane.sim.demand_schedule import Change, build_schedule
from quotaplane.sim.world import Interval, World
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.shard_program import Batch
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.wire.sender_rules import ANY_SENDER, SenderRules
from quotaplane.wire.shard_inputs import (
    DEPARTURES,
    GROUPS,
    pack_departures,
    pack_groups,
    pack_reports,
)
from tests.unit.wire.wire_cases import decode_fresh

START_MS = 1_700_000_000_000

Mangle = Callable[[list[Report]], list[Report]]


def settings_with(**parts: Any) -> Settings:
    """Settings with a report every second; nothing in them is opened."""
    base = {
        "transport": {"kind": "delta", "path": "unused"},
        "history": {"path": "unused"},
        "checkpoint": "unused",
        "reports": {"interval_s": 1.0},
    }
    return parse_settings({**base, **parts})


def at(second: float) -> datetime:
    """A time of a loop."""
    return datetime.fromtimestamp(START_MS / 1000 + second, tz=timezone.utc)


def group_row(
    group: str, version: int = 0, *, deleted: bool = False, **columns: Any
) -> dict[str, Any]:
    """A row of ``group_table``; what is not given is not set."""
    names = {"group": group, "group_id": group_id(group), "deleted": deleted, "version": version}
    return dict.fromkeys(GROUPS.names) | names | columns


def group_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Changes of groups, as the change feed has them."""
    return pa.Table.from_pylist(rows, schema=GROUPS)


def reports_by_reason(letters: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Number of reports with each reason, from dead letters."""
    found: Counter[str] = Counter()
    for letter in letters:
        found[letter["reason"]] += letter["reports"]
    return dict(found)


class Loop:
    """Rounds: brokers send reports, the step decides, brokers apply the limits.

    A round is a second unless ``reports.interval_s`` of the settings says otherwise.
    """

    def __init__(
        self,
        wants: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
        quotas: Mapping[str, Mapping[str, float]],
        *,
        settings: Settings | None = None,
        specs: Mapping[str, BrokerSpec] | None = None,
        dimension: str = DIMENSIONS[0],
        changes: Sequence[Change] = (),
        mangle: Mangle = lambda reports: reports,
        poisson: Sequence[str] = (),
        seed: int = 0,
        limits_late: int = 0,
        throttle: ThrottleTerms = BY_DEFAULT,
        senders: Callable[[list[Report]], SenderRules] = lambda _: ANY_SENDER,
        departures: Callable[[int], Mapping[str, int]] = lambda _: {},
        has_round: Callable[[int], bool] = lambda _: True,
        interval_s: float | None = None,
    ) -> None:
        """Set up the loop.

        Args:
            wants: demand by group and broker, as (second, rate) steps in ``dimension``.
            quotas: by group and dimension.
            settings: of the job.
            specs: kinds of brokers, by name.
            dimension: see ``wants``.
            changes: more changes of demand.
            mangle: what the network does to a round's reports.
            poisson: groups whose demand is Poisson noise around ``wants``.
            seed: of that noise.
            limits_late: after how many rounds limits arrive.
            throttle: how brokers enforce limits.
            senders: what the job checks of the senders of these reports.
            departures: by round, the brokers that left the cluster's list, and when.
            has_round: whether the job has a round in this interval; else reports wait for the next.
            interval_s: of rounds and reports; None: as the settings say.
        """
        self.settings = settings or settings_with()
        self._interval_s = interval_s or self.settings.reports.interval_s
        steps = [
            Change(at_s, broker, group, {dimension: rate})
            for group, brokers in wants.items()
            for broker, pairs in brokers.items()
            for at_s, rate in pairs
        ] + list(changes)
        names = tuple(sorted({change.broker for change in steps}))
        self.groups = tuple(sorted({change.group for change in steps}))
        self.world = World(
            tuple((specs or {}).get(name, BrokerSpec(name)) for name in names),
            self.groups,
            build_schedule(names, self.groups, steps),
            poisson=poisson,
            interval_s=self._interval_s,
            seed=seed,
            started_at_ms=START_MS,
            throttle=throttle,
        )
        for group in self.groups:
            taking_part = {change.broker for change in steps if change.group == group}
            self.world.attach(group, np.array([name in taking_part for name in names]))
        self.names = names
        self.intervals: list[Interval] = []
        self.rejected: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        """Dead letters of the program, which is not given the decoder's here."""
        self.messages: list[bytes] = []
        self._mangle, self._senders, self._departures = mangle, senders, departures
        self._has_round, self._waiting = has_round, list[Report]()
        self._on_their_way: list[list[bytes]] = [[] for _ in range(limits_late)]
        self._program = quota_program(self.settings, epoch=1)
        self._states = [ShardState() for _ in range(self.settings.shards)]
        self._pending: list[tuple[str, Mapping[str, float] | None]] = list(quotas.items())
        self._version = 0

    def put(self, group: str, quota: Mapping[str, float]) -> None:
        """Set a quota from the next round on."""
        self._pending.append((group, quota))

    def delete(self, group: str) -> None:
        """Delete a group."""
        self._pending.append((group, None))

    def run(self, rounds: int) -> Loop:
        """Run so many rounds."""
        for _ in range(rounds):
            self._round()
        return self

    def _round(self) -> None:
        number = len(self.intervals)
        t_s = number * self._interval_s
        now_ms = START_MS + round(1000 * t_s)
        interval = self.world.interval(t_s, now_ms)
        self.intervals.append(interval)
        self._waiting += self._mangle(list(interval.reports))
        if not self._has_round(number):
            return
        arrived, self._waiting = self._waiting, []
        shards = self.settings.shards
        by_shard: list[dict[str, list[bytes]]] = [
            {"reports": [], "groups": []} for _ in range(shards)
        ]
        if arrived:
            decoded = decode_fresh(
                [report.value for report in arrived],
                np.array([report.published_at_ms for report in arrived], dtype=np.int64),
                [f"{number}#{place}" for place in range(len(arrived))],
                now_ms=now_ms + 200,
                reports=self.settings.reports,
                oldest_s=self.settings.limits.lease_s,
                senders=self._senders(arrived),
            )
            self.rejected += decoded.rejected.to_pylist()
            for shard, payload in pack_reports(decoded, shards):
                by_shard[shard]["reports"].append(payload)
        for shard, payload in self._changes(shards):
            by_shard[shard]["groups"].append(payload)
        left_at_ms = self._departures(number)
        if left_at_ms:
            for inputs in by_shard:
                inputs[DEPARTURES] = [pack_departures(left_at_ms)]
        sent: list[bytes] = []
        for shard in range(shards):
            self._states[shard], outputs = self._program.run(
                self._states[shard], by_shard[shard], Batch(shard, number, now_ms + 200)
            )
            for output in outputs:
                if output.kind == "rejected_reports" and shard == 0:
                    (letters,) = unpack(output.payload)
                    self.letters += letters.to_pylist()
            sent += [
                value
                for output in outputs
                if output.kind == "messages"
                for value in unpack(output.payload)[0]["value"].to_pylist()
            ]
        self.messages += sent
        self._on_their_way.append(sent)
        self.world.receive(self._on_their_way.pop(0))

    def _changes(self, shards: int) -> list[tuple[int, bytes]]:
        if not self._pending:
            return []
        rows = []
        for group, quota in self._pending:
            self._version += 1
            rates = {f"{name}_per_s": rate for name, rate in (quota or {}).items()}
            rows.append(group_row(group, self._version, deleted=quota is None, **rates))
        self._pending = []
        return pack_groups(group_table(rows), shards)

    def series(self, what: str, group: str, dimension: str = DIMENSIONS[0]) -> np.ndarray:
        """``usage``, ``limit``, ``wanted`` or ``demand`` of a group, (rounds, brokers).

        ``share`` is min(wanted, limit): the usage once a broker's burst is used up, but for the
        size of a request.
        """
        if what == "share":
            wanted, limit = (self.series(name, group, dimension) for name in ("wanted", "limit"))
            return np.minimum(wanted, limit)
        at = (slice(None), self.groups.index(group), DIMENSIONS.index(dimension))
        return np.array([getattr(interval, what)[at] for interval in self.intervals])

    def last(self, what: str, group: str, dimension: str = DIMENSIONS[0]) -> dict[str, float]:
        """The latest round's values, by broker that has the group."""
        attached = self.world.brokers.attached[:, self.groups.index(group)]
        values = self.series(what, group, dimension)[-1]
        return {self.names[b]: float(values[b]) for b in np.flatnonzero(attached)}
