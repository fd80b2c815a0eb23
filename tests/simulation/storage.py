"""Storage that outlives processes: topics, the table of quotas, checkpoints, history, the leader.

The job's own classes write to these: ``MemoryHistory`` is a ``HistoryWriter`` and
``MemoryLeadership`` a ``Leadership`` whose tables are in memory; their rules are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa

from quotaplane.history.leadership import JobLeader, Leadership
from quotaplane.history.previous_run import Earlier
from quotaplane.history.tables import APPENDED
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import RATE_COLUMNS, Round, group_id
from quotaplane.wire.shard_inputs import GROUPS


class StoredReport(NamedTuple):
    """A message of the reports topic."""

    value: bytes
    published_at_ms: int


class Planned(NamedTuple):
    """A batch in the log of offsets: its time, and where its inputs end."""

    now_ms: int
    reports: int
    changes: int
    live: dict[str, str] | None = None
    """The end in a non-persistent topic, if its reports are spooled."""


@dataclass
class StoredCheckpoint:
    """A checkpoint folder."""

    name: str
    id: str = ""
    epoch: int = -1
    """-1: the folder has no note yet."""
    note: Mapping[str, Any] = field(default_factory=dict)
    begin: Planned = field(default_factory=lambda: Planned(0, 0, 0))
    """Where the first batch begins."""
    offsets: list[Planned] = field(default_factory=list)
    committed: int = 0
    """Number of batches that are committed."""
    synced: int = 0
    """Number of entries of ``offsets`` that survive a power loss."""
    states: dict[int, dict[int, StoredState]] = field(default_factory=dict)
    """States after each of the last batches, by batch and shard."""
    spool: str = ""
    """The folder of spooled reports."""
    fast: bool = False
    """Its job runs under fast, whatever later ones do."""
    power_losses: int = 0
    handed: dict[int, int] = field(default_factory=dict)
    """By batch the start that it was handed last."""
    led: set[int] = field(default_factory=set)
    """Batches of which a process that led may have published something."""
    notes: dict[str, str] = field(default_factory=dict)
    """Files by name."""

    @property
    def path(self) -> str:
        return self.name

    def read(self, name: str) -> str | None:
        return self.notes.get(name)

    def write(self, name: str, text: str) -> None:
        self.notes[name] = text

    def newest_batch(self) -> int | None:
        return len(self.offsets) - 1 if self.offsets else None

    def power_lost(self, *, with_commit: bool) -> None:
        """Entries that were not synced are lost: the newest batch, and perhaps a commit."""
        self.power_losses += 1
        del self.offsets[max(self.synced, self.committed) :]
        planned = len(self.offsets)
        for lost in [each for each in self.states if each >= planned]:
            del self.states[lost]
        before = self.committed - 2
        if with_commit and planned == self.committed and (before in self.states or before == -1):
            self.committed -= 1


class StoredState(NamedTuple):
    """The state of one shard, as Spark stores it."""

    elements: tuple[tuple[bytes], ...]
    timer_ms: int | None


class GroupTable:
    """The table ``resource_groups`` with its change feed; quotas are (dimension: rate)."""

    def __init__(self) -> None:
        self.quotas: dict[str, dict[int, float]] = {}
        self.changes: list[dict[str, Any]] = []
        self.versions: list[dict[str, dict[int, float]]] = [{}]
        """The quotas after so many changes."""

    def put(self, group: str, quota: dict[int, float]) -> None:
        """Set a group's quota."""
        self.quotas[group] = quota
        self._change(group, quota, deleted=False)

    def delete(self, group: str) -> None:
        """Delete a group."""
        self._change(group, self.quotas.pop(group), deleted=True)

    def _change(self, group: str, quota: dict[int, float], *, deleted: bool) -> None:
        self.changes.append(
            {
                **dict.fromkeys(GROUPS.names),
                **{RATE_COLUMNS[d]: rate for d, rate in quota.items()},
                "group": group,
                "group_id": group_id(group),
                "deleted": deleted,
                "version": len(self.changes) + 1,
            }
        )
        self.versions.append(dict(self.quotas))

    def feed(self, begin: int, end: int) -> pa.Table | None:
        """The changes of a batch; a feed that is read from its beginning starts with the table as
        it is then, so only the newest change of each group is in it."""
        rows = self.changes[begin:end]
        if begin == 0:
            newest = {row["group"]: row for row in rows}
            rows = [row for row in newest.values() if not row["deleted"]]
        return pa.Table.from_pylist(rows, schema=GROUPS) if rows else None


class History:
    """The history's tables, as far as a job reads them again."""

    def __init__(self) -> None:
        self.newest: dict[tuple[str, str], int] = {}
        """Last seq by (table, writer)."""
        self.rounds: dict[int, int] = {}
        """By epoch: time of its last round."""
        self.complete: set[tuple[int, int]] = set()
        """(epoch, seq) of rounds whose rows are all there."""
        self.lease_ms = 0

    def earlier(self, now_ms: int) -> Earlier:
        """Result of ``read_earlier``."""
        if not self.rounds:
            return Earlier(0, 0)
        last_ms = min(max(self.rounds.values()), now_ms)
        return Earlier(max(self.rounds), last_ms + self.lease_ms)


class MemoryHistory(HistoryWriter):
    """A ``HistoryWriter`` whose tables are in memory; ``point`` is called before each append."""

    def __init__(self, store: History, app_id: str, point: Callable[[str], None]) -> None:
        self._store, self._app_id, self._point = store, app_id, point
        self._last = "rounds"
        self._tables = dict.fromkeys(table.name for table in APPENDED)
        self._pool: Any = SimpleNamespace(map=map)

    def append(
        self, name: str, rows: pa.Table | None, stamp: Round, **nothing_written: object
    ) -> bool:
        """Append a round's rows unless the table has them."""
        self._point(f"before table {name}")
        key = name, self._app_id
        if self._store.newest.get(key, -1) >= stamp.seq:
            return False
        self._store.newest[key] = stamp.seq
        if name == self._last:
            last_ms = self._store.rounds.get(stamp.epoch, 0)
            self._store.rounds[stamp.epoch] = max(last_ms, stamp.now_ms)
            self._store.complete.add((stamp.epoch, stamp.seq))
        return True


class LeaderTable:
    """The table ``leaders``: one row, and a version that each claim raises."""

    def __init__(self) -> None:
        self.row: JobLeader | None = None
        self.claims = 0

    def version(self) -> int:
        """Delta's version of the table."""
        return self.claims

    def open(self) -> LeaderTable:
        """In place of ``CachedTable.open``."""
        return self


class MemoryLeadership(Leadership):
    """A ``Leadership`` whose table is in memory.

    ``optimistically`` in its module must be ``claimed_at_once``: a claim is one commit.
    """

    def __init__(self, table: LeaderTable, claim_id: str, checkpoint: str) -> None:
        self._history: Any = table
        self._job, self._checkpoint = "quota", checkpoint
        self._claim_id = claim_id
        self._table: Any = table
        self._seen = -1
        self._claimed: JobLeader | None = None

    def _leader(self, opened: Any) -> JobLeader | None:
        return opened.row

    def _write(self, opened: Any, epoch: int, checkpoint_id: str) -> None:
        process = f"process {self._claim_id}"
        claimed_at = datetime.fromtimestamp(opened.claims, tz=timezone.utc)
        opened.row = JobLeader(self._job, epoch, checkpoint_id, self._claim_id, process, claimed_at)
        opened.claims += 1
        self._claimed = opened.row


def claimed_at_once(history: Any, table: Any, claim: Callable[[Any], Any]) -> Any:
    """In place of ``commits.optimistically``."""
    return claim(history)
