"""Runs the whole loop without Spark: simulated brokers, real bytes, the real decoder and step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa

from quotaplane.arrow import unpack
from quotaplane.model import DIMENSIONS, Round, group_id
from quotaplane.quota.config import NO_EARLIER_LIMITS, EarlierLimits
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


class Rounds:
    """The quota job without Spark: reports and changes of groups wait for its next round."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rejected: list[dict[str, Any]] = []
        self.letters: list[dict[str, Any]] = []
        """Dead letters of the program, which is not given the decoder's here."""
        self._senders: Callable[[list[Report]], SenderRules] = lambda _: ANY_SENDER
        self._departures: Callable[[int], Mapping[str, int]] = lambda _: {}
        self._waiting: list[Report] = []
        self._changes: list[dict[str, Any]] = []
        self._version = self._epoch = 0
        self._start(NO_EARLIER_LIMITS)

    def _start(self, earlier: EarlierLimits) -> None:
        """Begin with a new checkpoint."""
        self._epoch, self._seq = self._epoch + 1, 0
        self._program: Any = quota_program(self.settings, self._epoch, earlier)
        self._states = [ShardState() for _ in range(self.settings.shards)]

    def put(self, group: str, quota: Mapping[str, float]) -> None:
        """Set a quota from the next round on."""
        self.change(group, **{f"{name}_per_s": rate for name, rate in quota.items()})

    def delete(self, group: str) -> None:
        """Delete a group."""
        self.change(group, deleted=True)

    def change(self, group: str, **columns: Any) -> None:
        """Give the next round a row of the change feed."""
        self._version += 1
        self._changes.append(group_row(group, **{"version": self._version, **columns}))

    def _decide(self, number: int, decided_ms: int) -> list[bytes]:
        """The messages of the round after the interval of this number."""
        by_shard = self._inputs(number, decided_ms)
        packed: dict[str, list[bytes]] = defaultdict(list)
        for shard, inputs in enumerate(by_shard):
            self._states[shard], outputs = self._program.run(
                self._states[shard], inputs, Batch(shard, self._seq, decided_ms)
            )
            for output in outputs:
                packed[output.kind].append(output.payload)
                if output.kind == "rejected_reports" and shard == 0:
                    (letters,) = unpack(output.payload)
                    self.letters += letters.to_pylist()
        stamp = Round(self._epoch, self._seq, decided_ms)
        self._seq += 1
        return self._finish(stamp, packed)

    def _inputs(self, number: int, decided_ms: int) -> list[dict[str, list[bytes]]]:
        """The payloads of a round by kind, for each shard."""
        arrived, self._waiting = self._waiting, []
        changes, self._changes = self._changes, []
        shards = self.settings.shards
        by_shard: list[dict[str, list[bytes]]] = [defaultdict(list) for _ in range(shards)]
        if arrived:
            decoded = decode_fresh(
                [report.value for report in arrived],
                np.array([report.published_at_ms for report in arrived], dtype=np.int64),
                [f"reports/0@{number}.{place}" for place in range(len(arrived))],
                now_ms=decided_ms,
                reports=self.settings.reports,
                oldest_s=self.settings.limits.lease_s,
                senders=self._senders(arrived),
            )
            self._refuse(decoded.rejected, by_shard)
            for shard, payload in pack_reports(decoded, shards):
                by_shard[shard]["reports"].append(payload)
        if changes:
            for shard, payload in pack_groups(group_table(changes), shards):
                by_shard[shard]["groups"].append(payload)
        left_at_ms = self._departures(number)
        if left_at_ms:
            for inputs in by_shard:
                inputs[DEPARTURES] = [pack_departures(left_at_ms)]
        return by_shard

    def _refuse(self, rejected: pa.Table, by_shard: list[dict[str, list[bytes]]]) -> None:
        self.rejected += rejected.to_pylist()

    def _finish(self, stamp: Round, packed: Mapping[str, Sequence[bytes]]) -> list[bytes]:
        """The messages of a round."""
        tables = [unpack(payload)[0] for payload in packed.get("messages", ())]
        return [value for table in tables for value in table["value"].to_pylist()]


class Loop(Rounds):
    """Brokers send reports, the step decides, brokers apply the limits.

    A round is a second unless ``reports.interval_s`` of the settings says otherwise.
    """

    def __init__(
        self,
        wants: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
        quotas: Mapping[str, Mapping[str, float]],
        *,
        settings: Settings | None = None,
        specs: Mapping[str, BrokerSpec] | None = None,
        changes: Sequence[Change] = (),
        mangle: Mangle = lambda reports: reports,
        poisson: Sequence[str] = (),
        seed: int = 0,
        throttle: ThrottleTerms = BY_DEFAULT,
        senders: Callable[[list[Report]], SenderRules] = lambda _: ANY_SENDER,
        departures: Callable[[int], Mapping[str, int]] = lambda _: {},
        begin_ms: int = START_MS,
    ) -> None:
        """Set up the loop.

        Args:
            wants: published messages by group and broker, as (second, rate) steps.
            quotas: by group and dimension.
            settings: of the job.
            specs: kinds of brokers, by name.
            changes: more changes of demand, in any dimension.
            mangle: what the network does to a round's reports.
            poisson: groups whose demand is Poisson noise around ``wants``.
            seed: of that noise.
            throttle: how brokers enforce limits.
            senders: what the job checks of the senders of these reports.
            departures: by round, the brokers that left the cluster's list, and when.
            begin_ms: the time of the first round's reports.
        """
        super().__init__(settings or settings_with())
        self._interval_s, self._begin_ms = self.settings.reports.interval_s, begin_ms
        steps = [
            Change(at_s, broker, group, {DIMENSIONS[0]: rate})
            for group, brokers in wants.items()
            for broker, pairs in brokers.items()
            for at_s, rate in pairs
        ] + list(changes)
        self.names = names = tuple(sorted({change.broker for change in steps}))
        self.groups = tuple(sorted({change.group for change in steps}))
        self.world = World(
            tuple((specs or {}).get(name, BrokerSpec(name)) for name in names),
            self.groups,
            build_schedule(names, self.groups, steps),
            poisson=poisson,
            interval_s=self._interval_s,
            seed=seed,
            started_at_ms=begin_ms,
            throttle=throttle,
        )
        for group in self.groups:
            taking_part = {change.broker for change in steps if change.group == group}
            self.world.attach(group, np.array([name in taking_part for name in names]))
        self.intervals: list[Interval] = []
        self.messages: list[bytes] = []
        self._mangle, self._senders, self._departures = mangle, senders, departures
        for group, quota in quotas.items():
            self.put(group, quota)

    @property
    def second(self) -> float:
        """The time since the begin."""
        return len(self.intervals) * self._interval_s

    @property
    def now_ms(self) -> int:
        """The time of the next interval's reports."""
        return self._begin_ms + round(1000 * self.second)

    def run(self, rounds: int) -> Loop:
        """Run so many rounds."""
        for _ in range(rounds):
            number, now_ms = len(self.intervals), self.now_ms
            self._pass()
            sent = self._decide(number, now_ms + 200)
            self.messages += sent
            self._deliver(sent)
        return self

    def _pass(self) -> None:
        """Let an interval of the brokers pass; what they report of it waits."""
        interval = self.world.interval(self.second, self.now_ms)
        self.intervals.append(interval)
        self._waiting += self._mangle(list(interval.reports))

    def _deliver(self, limits: list[bytes]) -> None:
        self.world.receive(limits)

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
