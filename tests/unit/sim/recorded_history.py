"""Histories that the real program recorded: simulated brokers, real bytes, the real decoder, step
and finisher; only Spark and the topics are left out. Rounds are a second long."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from quotaplane.arrow import pack
from quotaplane.deltalog.checksums import record
from quotaplane.deltalog.log import list_log
from quotaplane.deltalog.read import read_rows
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.store import open_table, table_uri
from quotaplane.history.tables import APPENDED, RESOURCE_GROUPS, TABLES
from quotaplane.model import DIMENSIONS, Round
from quotaplane.quota.config import EarlierLimits
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from quotaplane.sim.broker_fleet import BrokerSpec, Report
from quotaplane.streams.sink import Packed
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode
from quotaplane.wire.shard_inputs import GROUPS
from tests.closed_loop.conftest import Mangle, settings_with
from tests.closed_loop.recorded_loop import FinishedLoop
from tests.unit.history.history_cases import NOON_MS

Wants = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""Demand by group and broker: rates from a second on."""

POLICY: Final = [name for name in GROUPS.names if name in RESOURCE_GROUPS.schema.names]
_DECIDED_AFTER_MS: Final = 200
"""A round is decided so long after its reports were published."""


def at(second: float) -> datetime:
    """A time of a recording."""
    return datetime.fromtimestamp(NOON_MS / 1000 + second, tz=timezone.utc)


def garbage_at(second: int) -> Mangle:
    """A network in which a report that can't be read arrives in this second."""
    seconds = count()

    def mangle(reports: list[Report]) -> list[Report]:
        if next(seconds) != second:
            return reports
        return [*reports, Report("?", b"?", reports[0].published_at_ms)]

    return mangle


class Recording(FinishedLoop):
    """Runs a cluster from noon on and records it; ``write`` makes the history."""

    def __init__(
        self,
        history: History,
        wants: Wants,
        *,
        begin_ms: int = NOON_MS,
        loop: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """``settings`` are sections of the job's settings, ``loop`` more arguments of ``Loop``.

        Brokers report refusals and let no bursts through, unless ``loop`` says otherwise.
        """
        names = {name for of_group in wants.values() for name in of_group}
        given = {
            "specs": {name: BrokerSpec(name, throttled=True) for name in names},
            "throttle": ThrottleTerms(law=ThrottleLaw.SLIDING_WINDOW, mode=ThrottleMode.HARD),
            **(loop or {}),
        }
        super().__init__(
            history,
            wants,
            {},
            settings=settings_with(history={"path": history.path}, **settings),
            begin_ms=begin_ms,
            records=False,
            **given,
        )
        self._rows: dict[str, list[pa.Table]] = defaultdict(list)

    def put(  # type: ignore[override]
        self, group: str, quota: float | Mapping[str, float], by: str = "ann", **policy: Any
    ) -> Recording:
        """Set a quota (by dimension) and policy now, as `quotaplane groups put` would."""
        quotas = np.full((1, len(DIMENSIONS)), np.nan)
        rates = quota if isinstance(quota, Mapping) else {DIMENSIONS[0]: quota}
        for name, rate in rates.items():
            quotas[0, DIMENSIONS.index(name)] = rate
        columns = {name: pa.array([value]) for name, value in policy.items()}
        put_groups(self.history, [group], quotas, by, policy=pa.table(columns) if columns else None)
        return self._committed(group)

    def delete(self, group: str, by: str = "ann") -> Recording:  # type: ignore[override]
        """Delete a group now."""
        delete_groups(self.history, [group], by)
        return self._committed(group)

    def alive(self, broker: str, alive: bool) -> Recording:
        """Kill a broker, or bring it back."""
        self.world.brokers.alive[self.names.index(broker)] = alive
        return self

    def run(self, seconds: int) -> Recording:
        """Run rounds, one in each of the brokers' intervals."""
        super().run(int(seconds) // round(self._interval_s))
        return self

    def pause(self, seconds: int) -> Recording:
        """Let time pass while the job is down; the reports wait for its next round."""
        for _ in range(seconds // round(self._interval_s)):
            self._pass()
        return self

    def restart(self) -> Recording:
        """Go on with a new checkpoint, which knows nothing but the groups."""
        last_ms = self.now_ms + int(self.settings.limits.lease_s * 1000)
        self._start(EarlierLimits(last_ms))
        self._changes = []
        version, policies = self._table()
        for group, policy in policies.items():
            self.change(group, version=version, **policy)
        return self

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

    def _refuse(self, rejected: pa.Table, by_shard: list[dict[str, list[bytes]]]) -> None:
        if rejected.num_rows:
            by_shard[0]["rejected"].append(pack(rejected))

    def _write(self, stamp: Round, tables: dict[str, pa.Table], packed: Packed) -> None:
        for name, rows in tables.items():
            if name == "rounds":
                # Decided at the recording's time, not now.
                lag = pc.if_else(rows["lag_ms"].is_valid(), _DECIDED_AFTER_MS, rows["lag_ms"])
                rows = rows.set_column(rows.column_names.index("lag_ms"), "lag_ms", lag)
            if rows.num_rows:
                self._rows[name].append(stamped(TABLES[name], rows, stamp))

    def _committed(self, group: str) -> Recording:
        """Give the newest commit the recording's time, and the change to the next round."""
        set_commit_time(Path(table_uri(self.history, RESOURCE_GROUPS.name)), self.now_ms)
        version, policies = self._table()
        deleted = group not in policies
        self.change(group, version=version, deleted=deleted, **policies.get(group, {}))
        return self

    def _table(self) -> tuple[int, dict[str, dict[str, Any]]]:
        """The table's version, and the policies by group."""
        table = open_table(self.history, RESOURCE_GROUPS.name)
        rows = read_rows(table).to_pylist()
        policies = {row["resource_group"]: {name: row[name] for name in POLICY} for row in rows}
        return table.version(), policies


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
    wants = {
        "acme/orders": {"b1": [(0, 80)], "b2": [(0, 80), (30, 10)], "b3": [(0, 5), (25, 80)]},
        "acme/logs": {"b1": [(0, 50)], "b2": [(0, 10), (20, 90)]},
        "acme/quiet": {"b1": [(0, 2)], "b2": [(0, 2)]},
        "globex": {"b1": [(0, 5)], "b3": [(0, 40)]},
        "globex::batch": {"b1": [(0, 30)], "b3": [(0, 40)]},
        "nobody put this": {"b2": [(0, 3)]},
    }
    loop = {"mangle": garbage_at(5), "poisson": tuple(wants) if is_noisy else ()}
    recording = Recording(history, wants, loop=loop, **sections)
    recording.put("acme/orders", 100.0).put("acme/logs", 60.0, mode="soft")
    recording.put("acme/quiet", 100.0).put("globex", 50.0).put("globex::batch", 40.0)
    recording.run(20).put("acme/orders", 150.0, by="bob").run(20)
    recording.alive("b3", False).run(50).alive("b3", True).run(20)
    recording.put("acme/orders", 90.0, by="bob").run(30).put("globex", 80.0, by="eve").run(60)
    return recording.write()
