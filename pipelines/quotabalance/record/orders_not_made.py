"""Orders that the executor has not carried out, from the history table ``balance_actions``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quotabalance.planning.bundle_orders import NotMade
from quotabalance.record.outcomes import NOT_DONE, NOT_MADE
from quotabalance.record.tables import BALANCE_ACTIONS
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError
from quotaplane.history.cached_table import CachedTable
from quotaplane.history.store import reading
from quotaplane.settings import History

_COLUMNS: Final = ("action", "outcome", "bundle", "decided_at", "message")


class OrdersNotMade:
    """The newest state of the table, as far as orders can still be under way.

    Args:
        history: where the table is.
        note: gets the error when it can't be read, so that the orders before then stay; else None.
        keep_s: orders that were decided earlier are left out.
        now: the wall clock.
    """

    def __init__(
        self,
        history: History,
        note: Callable[[HistoryError | None], None],
        keep_s: float,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._table = CachedTable(history, BALANCE_ACTIONS.name)
        self._note, self._keep_s, self._now = note, keep_s, now
        self._version = -1
        self._orders: tuple[NotMade, ...] = ()

    def newest(self) -> tuple[NotMade, ...]:
        """Those that were decided within ``keep_s``, by bundle."""
        since = self._now() - timedelta(seconds=self._keep_s)
        try:
            table = self._table.open()
            if table.version() != self._version:
                with reading(BALANCE_ACTIONS.name):
                    rows = read_rows(table, _COLUMNS, f"date >= '{since:%Y-%m-%d}'")
                self._version, self._orders = table.version(), orders_of(rows)
        except HistoryError as error:
            self._note(error)
        else:
            self._note(None)
        least_ms = since.timestamp() * 1000
        return tuple(order for order in self._orders if order.ordered_at_ms >= least_ms)


def orders_of(rows: pa.Table) -> tuple[NotMade, ...]:
    """The orders in rows of ``balance_actions``, by bundle and time."""
    wanted = pc.and_(
        pc.not_equal(rows["action"], "plan"),
        pc.is_in(rows["outcome"], pa.array(NOT_MADE, rows["outcome"].type)),
    )
    found = {
        (row["bundle"], round(row["decided_at"].timestamp() * 1000)): row
        for row in rows.filter(wanted).to_pylist()
    }
    return tuple(
        NotMade(*key, found[key]["outcome"] != NOT_DONE, _said(found[key])) for key in sorted(found)
    )


def _said(row: Mapping[str, str]) -> str:
    return ": ".join(filter(None, (row["outcome"], row["message"])))
