"""The record of what the executor did, and why: the history table ``balance_actions``."""

from __future__ import annotations

import asyncio
import getpass
import socket
import time
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa

from quotabalance.record.tables import BALANCE_ACTIONS
from quotabalance.wire.balance_plans import PlanMessage
from quotaplane.console.terminal import inform
from quotaplane.history.store import ensure_tables, require_history
from quotaplane.history.tables import STAMP_COLUMNS
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History

_COLUMNS: Final = {
    field.name: field.type
    for field in BALANCE_ACTIONS.schema
    if field.name not in (*STAMP_COLUMNS, "decided_at")
} | {"decided_at_ms": pa.int64()}


class Action(NamedTuple):
    """One row; columns of ``BALANCE_ACTIONS`` that differ from action to action."""

    action: str
    """``plan``, ``move`` or ``split``."""
    outcome: str
    bundle: str = ""
    source: str = ""
    target: str = ""
    """The new owner that was wished for; of a split its boundaries."""
    owner: str = ""
    """The owner after it."""
    bytes_per_s: float = 0.0
    attempts: int = 0
    took_ms: float = 0.0
    message: str = ""


class ActionRecord:
    """Appends actions to the history. Rows are on the disk when ``write`` returns.

    Args:
        history: where the tables are; missing ones are created.
        why: the administrator's reason; "" for automatic execution.
        mode: ``manual`` or ``auto``.

    Raises:
        ConfigError: there is no history.
        HistoryError: the tables can't be created or opened.
    """

    def __init__(self, history: History, why: str, mode: str) -> None:
        require_history(history, "the balance job creates one")
        ensure_tables(history, inform)
        self._constants = {
            "why": why,
            "mode": mode,
            "executed_by": f"{getpass.getuser()}@{_host()}",
        }
        self._run = uuid4().hex
        self._writer = HistoryWriter(history, self._run, (BALANCE_ACTIONS,), None)
        self._epoch = int(time.time())
        self._seq = 0
        self._turn = asyncio.Lock()

    async def write(self, plan: PlanMessage, *rows: Action) -> None:
        """Append rows about a plan.

        Raises:
            HistoryError: they could not be written.
        """
        if not rows:
            return
        columns = {name: [getattr(row, name) for row in rows] for name in Action._fields}
        fixed = {
            "plan_hash": plan.plan_hash,
            "plan_epoch": plan.epoch,
            "plan_seq": plan.seq,
            "decided_at_ms": plan.decided_at_ms,
        }
        for name, value in (fixed | self._constants).items():
            columns[name] = [value] * len(rows)
        table = pa.table({name: pa.array(columns[name], kind) for name, kind in _COLUMNS.items()})
        async with self._turn:
            self._seq += 1
            stamp = Round(self._epoch, self._seq, int(time.time() * 1000))
            await asyncio.to_thread(self._writer.append, BALANCE_ACTIONS.name, table, stamp)

    def close(self) -> None:
        """All rows have been written by then."""
        self._writer.close()


def _host() -> str:
    return socket.gethostname() or "?"
