"""Leadership of a job: of several processes of one job, only the newest may publish.

Two quota jobs of one history would divide every quota twice. So a job claims its row of the table
``leaders`` when it starts, and looks at it in each round: if another process has claimed it since,
the older one has been deposed and ends. A claim is one Delta commit, so of two processes that start
at once, one is the newer. A new checkpoint gets its epoch in the same commit: no two have the same.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from quotaplane.deltalog.read import read_rows
from quotaplane.errors import ConfigError, DeposedError
from quotaplane.history.cached_table import CachedTable
from quotaplane.history.commits import merging, optimistically
from quotaplane.history.store import reading
from quotaplane.history.tables import LEADERS
from quotaplane.settings import History
from quotaplane.texts import utc_text


class JobLeader(NamedTuple):
    """A row of the table ``leaders``."""

    job: str
    epoch: int
    checkpoint_id: str
    claim_id: str
    process: str
    claimed_at: datetime

    def __str__(self) -> str:
        """The leader in words.

        >>> at = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
        >>> print(JobLeader("quota", 7, "c", "a", "process 12 on host b, checkpoint /d", at))
        process 12 on host b, checkpoint /d (epoch 7, since 2026-01-31T12:00:00Z)
        """
        return f"{self.process} (epoch {self.epoch}, since {utc_text(self.claimed_at)})"


class Leadership:
    """One process's claim to lead a job; not thread-safe.

    Args:
        history: where the table ``leaders`` is.
        job: its name: ``quota``.
        checkpoint: the checkpoint folder, for messages.
        now: the wall clock in seconds, for ``claimed_at``.
    """

    def __init__(
        self, history: History, job: str, checkpoint: str, now: Callable[[], float] = time.time
    ) -> None:
        self._history, self._job, self._checkpoint, self._now = history, job, checkpoint, now
        self._claim_id = uuid.uuid4().hex
        self._table = CachedTable(history, LEADERS.name)
        self._seen = -1
        """The table's version in which this process led."""
        self._claimed: JobLeader | None = None

    def claim_new(self, checkpoint_id: str, earliest_epoch: int) -> int:
        """Lead with a new checkpoint; returns its epoch, which is later than all claimed before.

        Raises:
            HistoryError: the table can't be read or written.
        """

        def claim(opened: DeltaTable) -> int:
            leader = self._leader(opened)
            epoch = max(earliest_epoch, 0 if leader is None else leader.epoch + 1)
            self._write(opened, epoch, checkpoint_id)
            return epoch

        return optimistically(self._history, LEADERS, claim)

    def claim(self, checkpoint_id: str, epoch: int) -> None:
        """Lead with an existing checkpoint; nothing is written if this process leads already.

        Raises:
            ConfigError: a newer checkpoint has been started since; brokers ignore older epochs.
            DeposedError: this process led before, and another one does now.
            HistoryError: the table can't be read or written.
        """

        def claim(opened: DeltaTable) -> None:
            leader = self._leader(opened)
            if leader is not None:
                if leader.claim_id == self._claim_id and leader.epoch == epoch:
                    return
                self._check_is_newest(leader, checkpoint_id, epoch)
            self._write(opened, epoch, checkpoint_id)

        optimistically(self._history, LEADERS, claim)

    def newest(self) -> str | None:
        """The id of the checkpoint that leads; None: none has yet.

        Raises:
            HistoryError: the table can't be read.
        """
        leader = self._leader(self._table.open())
        return None if leader is None else leader.checkpoint_id

    def check(self) -> None:
        """Check that this process still leads; call this in each round, before anything is written.

        Raises:
            DeposedError: another process has claimed to lead.
            HistoryError: the table can't be read.
        """
        opened = self._table.open()
        version = opened.version()
        if version == self._seen:
            return
        leader = self._leader(opened)
        if leader is None or leader.claim_id != self._claim_id:
            raise self._deposed(leader)
        self._seen = version

    def _check_is_newest(self, leader: JobLeader, checkpoint_id: str, epoch: int) -> None:
        if self._claimed is not None:
            raise self._deposed(leader)
        if leader.epoch >= epoch and leader.checkpoint_id != checkpoint_id:
            raise ConfigError(
                f"checkpoint {self._checkpoint}: its epoch {epoch} is over, as another checkpoint "
                f"has been started since: {leader}; brokers ignore limits of an earlier epoch. "
                "Start with that checkpoint, or with a new folder"
            )

    def _deposed(self, leader: JobLeader | None) -> DeposedError:
        if leader is None:
            why = "the table leaders was emptied; start it again, and it claims to lead"
        else:
            why = f"another process leads now: {leader}; stop one of the two"
        return DeposedError(f"{self._job} job: deposed: {why}")

    def _leader(self, opened: DeltaTable) -> JobLeader | None:
        with reading(LEADERS.name):
            rows = read_rows(opened, LEADERS.schema.names)
        found: list[dict[str, Any]] = rows.filter(pc.equal(rows["job"], self._job)).to_pylist()
        return JobLeader(**found[0]) if found else None

    def _write(self, opened: DeltaTable, epoch: int, checkpoint_id: str) -> None:
        process = f"process {os.getpid()} on host {socket.gethostname()}"
        leader = JobLeader(
            self._job,
            epoch,
            checkpoint_id,
            self._claim_id,
            f"{process}, checkpoint {self._checkpoint}",
            datetime.fromtimestamp(self._now(), tz=timezone.utc),
        )
        row = pa.Table.from_pylist([leader._asdict()], schema=LEADERS.schema)
        merge = merging(opened, row, ("job",), by=process, why=None)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self._claimed = leader
