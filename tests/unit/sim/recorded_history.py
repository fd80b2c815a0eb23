"""Histories that the real program recorded: simulated brokers, real bytes, the real decoder, step
and finisher; only Spark and the topics are left out. Rounds are a second long."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from quotaplane.agents.conditions import Conditions
from quotaplane.arrow import pack
from quotaplane.deltalog.checksums import record
from quotaplane.deltalog.log import list_log
from quotaplane.deltalog.read import read_rows
from quotaplane.history.store import open_table, table_uri
from quotaplane.history.tables import APPENDED, RESOURCE_GROUPS, TABLES
from quotaplane.history.writer import stamped
from quotaplane.model import DIMENSIONS, Round, group_id
from quotaplane.quota.config import NO_EARLIER_LIMITS, EarlierLimits
from quotaplane.quota.state import ShardState
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History, parse_settings
from quotaplane.sim.broker_fleet import BrokerSpec, Report
from quotaplane.sim.demand_schedule import Change, build_schedule
from quotaplane.sim.world import Interval, World
from quotaplane.streams.quota.finisher import QuotaFinisher
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.shard_program import Batch
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode
from quotaplane.wire.shard_inputs import pack_groups, pack_reports
from tests.histories import make_history
from tests.unit.history.history_cases import NOON_MS
from tests.unit.wire.wire_cases import decode_fresh

Wants = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""Demand by group and broker: rates from a second on."""

POLICY: Final = [
    n
    for n in RESOURCE_GROUPS.schema.names
    if n not in ("resource_group", "updated_at", "updated_by")
]


_DECIDED_AFTER_MS: Final = 200
"""A round is decided so long after its reports were published."""


def at(second: float) -> datetime:
    """A time of a recording."""
    return datetime.fromtimestamp(NOON_MS / 1000 + second, tz=timezone.utc)


class Recording:
    """Runs a cluster from noon on and records it; ``write`` makes the history."""

    def __init__(
        self,
        history: History,
        wants: Wants,
        *,
        dimension: str = DIMENSIONS[0],
        epoch: int = 1,
        garbage_at_s: int | None = None,
        begin_ms: int = NOON_MS,
        is_noisy: bool = False,
        brokers: Callable[[str], BrokerSpec] = lambda name: BrokerSpec(name, throttled=True),
        **settings: Any,
    ) -> None:
        """``settings`` are sections of the job's settings. Brokers let no bursts through.

        ``garbage_at_s``: in this second a report arrives that can't be read. ``is_noisy``: demand
        is Poisson noise around ``wants``. ``brokers``: of which kind each is, by its name.
        """
        self.history, self._begin_ms = history, begin_ms
        base = {
            "transport": {"kind": "delta", "path": "unused"},
            "history": {"path": history.path},
            "checkpoint": "unused",
            "reports": {"interval_s": 1.0},
        }
        self.settings = parse_settings({**base, **settings})
        steps = [
            Change(at_s, broker, group, {dimension: rate})
            for group, brokers in wants.items()
            for broker, pairs in brokers.items()
            for at_s, rate in pairs
        ]
        self.brokers = tuple(sorted({change.broker for change in steps}))
        groups = tuple(sorted(wants))
        self.world = World(
            tuple(map(brokers, self.brokers)),
            groups,
            build_schedule(self.brokers, groups, steps),
            poisson=groups if is_noisy else (),
            started_at_ms=begin_ms,
            throttle=ThrottleTerms(law=ThrottleLaw.SLIDING_WINDOW, mode=ThrottleMode.HARD),
        )
        for group in groups:
            self.world.attach(group, np.array([name in wants[group] for name in self.brokers]))
        make_history(history)
        self.second = 0
        self._interval_s = round(self.settings.reports.interval_s)
        self._garbage_s = garbage_at_s
        self._epoch = epoch - 1
        self._waiting: list[Report] = []
        self._changes: list[dict[str, Any]] = []
        self._rows: dict[str, list[pa.Table]] = defaultdict(list)
        self._start(NO_EARLIER_LIMITS)

    def _start(self, earlier: EarlierLimits) -> None:
        self._epoch, self._seq = self._epoch + 1, 0
        program = quota_program(self.settings, self._epoch, earlier)
        self._program = RecordedProgram(program, records=False)
        self._states = [ShardState() for _ in range(self.settings.shards)]
        interval_s = self.settings.reports.interval_s
        watch = ReportWatch(interval_s)
        self._finisher = QuotaFinisher(watch, lambda seq: {"end": seq}, interval_s=interval_s)

    def put(
        self, group: str, quota: float | Mapping[str, float], by: str = "ann", **policy: Any
    ) -> Recording:
        """Set a quota (by dimension) and policy now, as `quotaplane groups put` would."""
        quotas = np.full((1, len(DIMENSIONS)), np.nan)
        rates = quota if isinstance(quota, Mapping) else {DIMENSIONS[0]: quota}
        for name, rate in rates.items():
            quotas[0, DIMENSIONS.index(name)] = rate
        columns = {name: pa.array([value]) for name, value in policy.items()}
        put_groups(self.history, [group], quotas, by, policy=pa.table(columns) if columns else None)
        return self._committed(group, deleted=False)

    def delete(self, group: str, by: str = "ann") -> Recording:
        """Delete a group now."""
        delete_groups(self.history, [group], by)
        return self._committed(group, deleted=True)

    def alive(self, broker: str, alive: bool) -> Recording:
        """Kill a broker, or bring it back."""
        self.world.brokers.alive[self.brokers.index(broker)] = alive
        return self

    def run(self, seconds: int) -> Recording:
        """Run rounds, one in each of the brokers' intervals."""
        for _ in range(seconds // self._interval_s):
            self._pass()
            self._round()
            self.second += self._interval_s
        return self

    def pause(self, seconds: int) -> Recording:
        """Let time pass while the job is down; the reports wait for its next round."""
        for _ in range(seconds // self._interval_s):
            self._pass()
            self.second += self._interval_s
        return self

    def restart(self) -> Recording:
        """Go on with a new checkpoint, which knows nothing but the groups."""
        last_ms = self._now_ms + int(self.settings.limits.lease_s * 1000)
        self._start(EarlierLimits(last_ms))
        table = open_table(self.history, RESOURCE_GROUPS.name)
        self._changes = [
            {
                **{name: row[name] for name in POLICY},
                "group": row["resource_group"],
                "group_id": group_id(row["resource_group"]),
                "version": table.version(),
                "deleted": False,
            }
            for row in read_rows(table).to_pylist()
        ]
        return self

    @property
    def _now_ms(self) -> int:
        return self._begin_ms + 1000 * self.second

    def write(self) -> Recording:
        """Write everything recorded since the last call to the history."""
        for table in APPENDED:
            tables = self._rows.pop(table.name, [])
            if table.snapshot:
                tables = tables[-1:]
            if tables:
                rows = pa.concat_tables(tables, promote_options="permissive")
                mode = "overwrite" if table.snapshot else "append"
                write_deltalake(table_uri(self.history, table.name), plain(rows), mode=mode)
        return self

    def _pass(self) -> Interval:
        """Let an interval of the brokers pass; what they report of it waits."""
        interval = self.world.interval(float(self.second), self._now_ms)
        self._waiting += interval.reports
        return interval

    def _round(self) -> None:
        now_ms, shards = self._now_ms, self.settings.shards
        arrived: list[dict[str, list[bytes]]] = [defaultdict(list) for _ in range(shards)]
        values = [report.value for report in self._waiting]
        times_ms = [report.published_at_ms for report in self._waiting]
        self._waiting = []
        if self.second == self._garbage_s:
            values, times_ms = [*values, b"?"], [*times_ms, now_ms]
        if values:
            decoded = decode_fresh(
                values,
                np.array(times_ms, dtype=np.int64),
                [f"reports/0@{self.second}.{n}" for n in range(len(values))],
                now_ms=now_ms + _DECIDED_AFTER_MS,
                reports=self.settings.reports,
                oldest_s=self.settings.limits.lease_s,
            )
            if decoded.rejected.num_rows:
                arrived[0]["rejected"].append(pack(decoded.rejected))
            for shard, payload in pack_reports(decoded, shards):
                arrived[shard]["reports"].append(payload)
        for shard, payload in self._packed_changes(shards):
            arrived[shard]["groups"].append(payload)
        packed: dict[str, list[bytes]] = defaultdict(list)
        for shard in range(shards):
            batch = Batch(shard, self._seq, now_ms + _DECIDED_AFTER_MS)
            self._states[shard], outputs = self._program.run(
                self._states[shard], arrived[shard], batch
            )
            for output in outputs:
                packed[output.kind].append(output.payload)
        stamp = Round(self._epoch, self._seq, now_ms + _DECIDED_AFTER_MS)
        self._seq += 1
        if packed:
            finished = self._finisher.finish(stamp, packed)
            tables = finished.tables
            self._deliver([message.value for message in finished.messages])
        else:
            tables = self._finisher.idle(stamp)
        self._finisher.end(Conditions(str))
        for name, rows in tables.items():
            if name == "rounds":
                # Decided at the recording's time, not now.
                lag = pc.if_else(rows["lag_ms"].is_valid(), _DECIDED_AFTER_MS, rows["lag_ms"])
                rows = rows.set_column(rows.column_names.index("lag_ms"), "lag_ms", lag)
            if rows.num_rows:
                self._rows[name].append(stamped(TABLES[name], rows, stamp))

    def _deliver(self, limits: list[bytes]) -> None:
        self.world.receive(limits)

    def _packed_changes(self, shards: int) -> list[tuple[int, bytes]]:
        if not self._changes:
            return []
        rows, self._changes = self._changes, []
        schema = pa.schema(
            [
                pa.field("group", pa.string()),
                *(RESOURCE_GROUPS.schema.field(name) for name in POLICY),
                pa.field("group_id", pa.int64()),
                pa.field("deleted", pa.bool_()),
                pa.field("version", pa.int64()),
            ]
        )
        return pack_groups(pa.Table.from_pylist(rows, schema), shards)

    def _committed(self, group: str, *, deleted: bool) -> Recording:
        """Give the newest commit the recording's time, and the change to the next round."""
        table = open_table(self.history, RESOURCE_GROUPS.name)
        set_commit_time(
            Path(table_uri(self.history, RESOURCE_GROUPS.name)),
            self._now_ms,
        )
        row = dict.fromkeys(POLICY)
        if not deleted:
            rows = read_rows(table)
            row = rows.filter(pc.equal(rows["resource_group"], group)).select(POLICY).to_pylist()[0]
        change = {"group": group, "group_id": group_id(group), "version": table.version()}
        self._changes.append({**row, **change, "deleted": deleted})
        return self


def plain(rows: pa.Table) -> pa.Table:
    """Rows without dictionaries."""
    fields = [
        pa.field(
            f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type, f.nullable
        )
        for f in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def set_commit_time(table: Path, time_ms: int) -> None:
    """Set the time of a table's newest commit."""
    log = list_log(table)
    commit = log.commit(log.newest)
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in lines:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = time_ms
    commit.write_text("".join(json.dumps(action) + "\n" for action in lines))
    record(table, [commit], anew=True)


def edit(history: History, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the rows of a table in place; a row for which ``change`` returns False is dropped."""
    rows = read_rows(open_table(history, name)).to_pylist()
    kept = [row for row in rows if change(row) is not False]
    table = pa.Table.from_pylist(kept, TABLES[name].schema)
    write_deltalake(table_uri(history, name), _without_comments(table), mode="overwrite")


def _without_comments(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([field.remove_metadata() for field in table.schema]))


def healthy(history: History, *, is_noisy: bool = False, **settings: Any) -> Recording:
    """200 seconds of three brokers: demand and quotas change, a broker dies and comes back.

    Leases are 30 seconds. ``acme/logs`` is soft and exceeds its quota; ``acme/quiet`` uses little
    of its quota; ``globex::batch`` is below ``globex``. A report can't be read, and reports name an
    undefined group.
    """
    limits = {"lease_s": 30, **settings.pop("limits", {})}
    sections = {"limits": limits, "shards": 1, **settings}
    recording = Recording(
        history,
        {
            "acme/orders": {"b1": [(0, 80)], "b2": [(0, 80), (30, 10)], "b3": [(0, 5), (25, 80)]},
            "acme/logs": {"b1": [(0, 50)], "b2": [(0, 10), (20, 90)]},
            "acme/quiet": {"b1": [(0, 2)], "b2": [(0, 2)]},
            "globex": {"b1": [(0, 5)], "b3": [(0, 40)]},
            "globex::batch": {"b1": [(0, 30)], "b3": [(0, 40)]},
            "nobody put this": {"b2": [(0, 3)]},
        },
        garbage_at_s=5,
        is_noisy=is_noisy,
        **sections,
    )
    recording.put("acme/orders", 100.0).put("acme/logs", 60.0, mode="soft")
    recording.put("acme/quiet", 100.0).put("globex", 50.0).put("globex::batch", 40.0)
    recording.run(20).put("acme/orders", 150.0, by="bob").run(20)
    recording.alive("b3", False).run(50).alive("b3", True).run(20)
    recording.put("acme/orders", 90.0, by="bob").run(30).put("globex", 80.0, by="eve").run(60)
    return recording.write()
