"""The table ``administrator_rates``, read and changed without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError
from quotaplane.history.commits import merging, optimistically
from quotaplane.history.store import ensure_table, has_table, one_line, open_table
from quotaplane.history.tables import ADMINISTRATOR_RATES
from quotaplane.settings import History

_KEYS: Final = ("cluster", "place", "kind")
_DOOMED: Final = "doomed"
"""Column of a MERGE's source: the row is deleted."""


class AdministratorRate(NamedTuple):
    """A row of the table."""

    cluster: str
    place: str
    kind: str
    resource_group: str
    messages_per_s: float | None
    bytes_per_s: float | None
    policy: str | None
    seen_at: datetime
    seen_by: str


Key = tuple[str, str]
"""Place and kind."""


def list_administrator_rates(history: History, cluster: str) -> list[AdministratorRate]:
    """The rows of a cluster by place and kind.

    Raises:
        HistoryError: the table can't be read.
    """
    name = ADMINISTRATOR_RATES.name
    if not has_table(history, name):  # nothing was found so far
        return []
    columns = ADMINISTRATOR_RATES.schema.names
    try:
        rows = read_rows(open_table(history, name), columns).cast(ADMINISTRATOR_RATES.schema)
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table {name}: {one_line(error)}") from None
    rows = rows.filter(pc.equal(rows["cluster"], cluster)).sort_by(
        [(key, "ascending") for key in _KEYS]
    )
    return [AdministratorRate(**row) for row in rows.to_pylist()]


def change_administrator_rates(
    history: History, cluster: str, changes: Mapping[Key, AdministratorRate | None], by: str
) -> None:
    """Put rows, and delete those whose value is None, in one commit.

    Raises:
        HistoryError: the table can't be written; nothing was changed.
    """
    none = {"resource_group": "", "seen_at": datetime.fromtimestamp(0), "seen_by": ""}
    rows = [
        {**none, "cluster": cluster, "place": place, "kind": kind} if row is None else row._asdict()
        for (place, kind), row in changes.items()
    ]
    given = pa.Table.from_pylist(rows, schema=ADMINISTRATOR_RATES.schema)
    doomed = pa.array([row is None for row in changes.values()], pa.bool_())
    given = given.append_column(_DOOMED, doomed)

    def once(table: DeltaTable) -> None:
        stays = f"NOT s.{_DOOMED}"
        merge = merging(table, given, _KEYS, by, None)
        merge.when_matched_delete(f"s.{_DOOMED}")
        merge.when_matched_update_all(stays, except_cols=[_DOOMED])
        merge.when_not_matched_insert_all(stays, except_cols=[_DOOMED]).execute()

    ensure_table(history, ADMINISTRATOR_RATES)
    optimistically(history, ADMINISTRATOR_RATES, once)
