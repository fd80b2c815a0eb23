"""Reads the quotas and the quota job's newest round from the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from quotaplane.agents.conditions import Condition, Conditions
from quotaplane.agents.known_conditions import EPOCHS, QUOTAS
from quotaplane.enforce.quota_caps import TableQuotas
from quotaplane.errors import HistoryError, QuotaplaneError
from quotaplane.history.cached_table import CachedTable
from quotaplane.history.store import one_line
from quotaplane.history.tables import RESOURCE_GROUPS, ROUNDS
from quotaplane.model import BASIC, RATE_COLUMNS, Mode
from quotaplane.registry.table import list_groups
from quotaplane.settings import History

_Read = TypeVar("_Read")


class QuotaTable:
    """The tables ``resource_groups`` and ``rounds``, read in threads.

    A failed read is reported, and the quotas read last stay in use. ``patience_s``: how long a read
    may take, for storage that does not answer.
    """

    def __init__(
        self,
        history: History,
        conditions: Conditions,
        *,
        take_over: bool = False,
        patience_s: float = 10.0,
    ) -> None:
        self._history, self._conditions = history, conditions
        self._patience_s = patience_s
        self._without_quotas = (
            "rates stay as they are" if take_over else "limits are not capped by quotas"
        )
        self._groups = CachedTable(history, RESOURCE_GROUPS.name)
        self._rounds = CachedTable(history, ROUNDS.name)
        self._version = -1
        self._reading: dict[Condition, asyncio.Future[Any]] = {}
        self.looked = False
        """Whether the quotas were read once, even if in vain."""
        self.quotas: TableQuotas | None = None
        """None: they could not be read so far."""
        self.newest_epoch: int | None = None
        """Highest epoch of all rounds, 0 = no rounds; None: the last read failed."""
        self.newest_round_ms = -np.inf
        """When the newest round that was read was decided, by the job's clock."""

    async def look(self) -> TableQuotas | None:
        """Read the quotas again if the table changed; None: that failed."""
        meanwhile = "the quotas read last stay in use" if self.quotas else self._without_quotas
        quotas = await self._in_thread(QUOTAS, self._read_quotas, meanwhile)
        self.quotas = quotas or self.quotas
        self.looked = True
        return quotas

    async def look_anew(self) -> TableQuotas | None:
        """Read the quotas, also of a table that was replaced and has the same version."""
        if QUOTAS in self._reading:
            await self.look()  # This read began earlier.
        self._version = -1
        return await self.look()

    async def look_at_epochs(self) -> None:
        """Read the newest epoch again."""
        meanwhile = "epochs of limits are checked against the clock only"
        newest = await self._in_thread(EPOCHS, self._read_rounds, meanwhile)
        self.newest_epoch, round_ms = newest or (None, -np.inf)
        self.newest_round_ms = max(self.newest_round_ms, round_ms)

    async def _in_thread(
        self, part: Condition, read: Callable[[], _Read], meanwhile: str
    ) -> _Read | None:
        """Read in a thread; None: the read failed or takes too long (reported, with ``meanwhile``).

        A read that takes too long goes on, and the next call waits for it again instead of starting
        a second one, as threads are few.
        """
        loop = asyncio.get_running_loop()
        if part not in self._reading:
            self._reading[part] = loop.run_in_executor(None, read)
        reading = self._reading[part]
        done, _ = await asyncio.wait({reading}, timeout=self._patience_s)
        late = f"no answer within {self._patience_s:g} s; {meanwhile}"
        error: Exception | None = HistoryError(late)
        result = None
        if done:
            try:
                self._reading.pop(part, None)
                result, error = reading.result(), None
            except QuotaplaneError as failed:
                error = HistoryError(f"{failed}; {meanwhile}")
            except Exception as failed:
                # Any exception: a bug in the read must not end the caller.
                error = failed
        self._conditions.note(part, "", error)
        return result

    def _read_quotas(self) -> TableQuotas:
        version = self._groups.open().version()
        if self.quotas is not None and version == self._version:
            return self.quotas
        rows = list_groups(self._history)
        self._version = version
        rates = [rows[name].fill_null(np.inf).to_numpy() for name in RATE_COLUMNS[:BASIC]]
        mode = rows["mode"].fill_null(Mode.HARD.name.lower())
        percent = rows["enforcement_percent"].fill_null(100.0)
        updated_at = rows["updated_at"].cast("int64").fill_null(0)
        quotas = TableQuotas(
            {group: at for at, group in enumerate(rows["group"].to_pylist())},
            np.column_stack(rates),
            # Like the job: an unknown mode counts as hard.
            ~pc.is_in(mode, value_set=pa.array(_NOT_ENFORCED)).to_numpy(),
            pc.less(percent, 100.0).to_numpy(),
            updated_at.to_numpy() / 1000.0,
        )
        before = self.quotas
        if before is None or before.place != quotas.place:
            return quotas
        # Others see by the same object that nothing changed.
        return before if all(map(np.array_equal, before[1:], quotas[1:])) else quotas

    def _read_rounds(self) -> tuple[int, float]:
        """The highest epoch, and when the newest round of it was decided; 0 and -inf: no rounds."""
        table = self._rounds.open()
        columns = ["epoch", "seq", "round_at"]
        try:
            # There are many rounds, so use the files' statistics where possible.
            files = pa.table(table.get_add_actions(flatten=True))
            of_files = [f"max.{name}" for name in columns]
            known = [files[name] for name in of_files if name in files.column_names]
            if len(known) == len(columns) and not any(each.null_count for each in known):
                rows = pa.table(known, columns)
            else:
                rows = pa.RecordBatchReader.from_stream(table.scan(columns=columns)).read_all()
            if not len(rows):
                return 0, -np.inf
            newest = rows.sort_by([(name, "descending") for name in columns]).slice(0, 1)
            at = newest["round_at"].cast(pa.timestamp("ms", "UTC"), safe=False)
            return int(newest["epoch"][0].as_py()), float(at.cast(pa.int64())[0].as_py())
        except (DeltaError, OSError, ValueError) as error:
            raise HistoryError(f"history table rounds: {one_line(error)}") from None


_NOT_ENFORCED: Final = (Mode.SOFT.name.lower(), Mode.SHADOW.name.lower())
