"""What a job that starts must know of the runs before it: their epochs, and their leases."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError
from quotaplane.history.store import one_line, open_table
from quotaplane.settings import History


class Earlier(NamedTuple):
    """``epoch``: the highest there was, 0 = none; ``until_ms``: when its last limits are over."""

    epoch: int
    until_ms: int


def read_earlier(history: History) -> Earlier:
    """Read the newest epoch, and when its leases end: each limit may have been renewed to the last.

    Raises:
        HistoryError: the tables are missing or can't be read.
    """
    try:
        rounds = read_rows(open_table(history, "rounds"), ["epoch", "at"])
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table rounds: {one_line(error)}") from None
    epoch = pc.max(rounds["epoch"]).as_py()
    if epoch is None:
        return Earlier(0, 0)
    last = pc.max(rounds["at"].filter(pc.equal(rounds["epoch"], epoch)))
    # Of the many limits only the files' statistics are read.
    files = pa.table(open_table(history, "limits").get_add_actions(flatten=True))
    lease_ms = 0
    if "max.lease_ms" in files.column_names:
        newest = files.filter(pc.equal(files["max.epoch"], epoch))
        lease_ms = pc.max(newest["max.lease_ms"]).as_py() or 0
    return Earlier(epoch, last.cast(pa.timestamp("ms", "UTC"), safe=False).value + lease_ms)
