"""Caches recorded periods for the quick what-if, which is asked repeatedly about the same one."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import SEPARATOR
from quotaplane.server.workers import Queries
from quotaplane.settings import Settings

if TYPE_CHECKING:
    from quotaplane.query.duckdb_engine import DuckDBEngine
    from quotaplane.replay.quick_what_if import KnownPeriod

KEPT_S: Final = 120.0
"""Seconds until a period is read again."""
_MOST_CELLS: Final = 1_000_000
"""Most ``Period.cells`` of all cached periods together."""


class Span(NamedTuple):
    """A requested period, as texts that ``parse_since`` reads."""

    group: str
    since: str
    until: str | None
    points: int


class RecordedPeriods:
    """The periods requested last."""

    def __init__(
        self,
        queries: Queries,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queries, self._settings = queries, settings
        self._clock = clock
        self._kept: dict[Span, tuple[float, KnownPeriod]] = {}

    async def get(
        self, span: Span, rows: pa.Table, bounds: tuple[datetime, datetime]
    ) -> KnownPeriod:
        """The period between ``bounds``, from the cache if it was read recently.

        ``rows`` are the current ones of the group's tree.

        Raises:
            InputError: the tree has too many brokers for this number of points.
            HistoryError: the history can't be read.
            AnswerError: too many wait, or it took too long (503).
        """
        until, known = self._kept.get(span, (0.0, None))
        if known is not None and self._clock() < until and known.rows.equals(rows):
            return known
        key = ("period", span, pc.max(rows["updated_at"]).as_py(), len(rows))

        def ask(engine: DuckDBEngine) -> KnownPeriod:
            from quotaplane.replay.quick_what_if import known_period

            return known_period(engine, rows, bounds, span.points, self._settings)

        read: KnownPeriod = await self._queries.ask(key, ask)
        self._keep(span, read)
        return read

    def _keep(self, span: Span, read: KnownPeriod) -> None:
        self._kept.pop(span, None)
        self._kept[span] = (self._clock() + KEPT_S, read)
        while len(self._kept) > 1 and self._cells() > _MOST_CELLS:
            del self._kept[next(iter(self._kept))]

    def _cells(self) -> int:
        return sum(known.period.cells for _, known in self._kept.values())


def tree_of(rows: pa.Table, group: str) -> pa.Table:
    """The rows of the groups in a group's tree.

    >>> tree_of(pa.table({"group": ["a", "a::b", "ab", "a::c"]}), "a::b")["group"].to_pylist()
    ['a', 'a::b', 'a::c']
    """
    root = group.partition(SEPARATOR)[0]
    names = rows["group"]
    inside = pc.or_(pc.equal(names, root), pc.starts_with(names, root + SEPARATOR))
    return rows.filter(inside)
