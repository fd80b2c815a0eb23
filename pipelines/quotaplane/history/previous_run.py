"""What a job that starts must know of the runs before it: their epochs, and their leases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError
from quotaplane.history.store import one_line, open_table
from quotaplane.settings import History


class Earlier(NamedTuple):
    """``epoch``: the highest there was, 0 = none; ``until_ms``: when the limits of all are over."""

    epoch: int
    until_ms: int


def read_earlier(history: History) -> Earlier:
    """Read the newest epoch, and when leases end: each limit may have been renewed to the last.

    Those of every epoch count: the newest may have run too briefly to see the others out.

    Raises:
        HistoryError: the tables are missing or can't be read.
    """
    try:
        rounds = read_rows(open_table(history, "rounds"), ["epoch", "at"])
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table rounds: {one_line(error)}") from None
    if not len(rounds):
        return Earlier(0, 0)
    # Not by group_by(): it loads pyarrow.dataset, whose threads abort a process that ends early.
    epochs, of_epoch = np.unique(rounds["epoch"].to_numpy(), return_inverse=True)
    at = rounds["at"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
    over_ms = np.zeros(len(epochs), np.int64)
    np.maximum.at(over_ms, of_epoch, at)
    # Of the many limits only the files' statistics are read.
    files = pa.table(open_table(history, "limits").get_add_actions(flatten=True))
    if "max.lease_ms" in files.column_names:
        first, newest, lease_ms = (
            files[name].fill_null(0).to_numpy()
            for name in ("min.epoch", "max.epoch", "max.lease_ms")
        )
        in_file = (first <= epochs[:, None]) & (epochs[:, None] <= newest)
        over_ms = over_ms + np.where(in_file, lease_ms, 0).max(axis=1, initial=0)
    return Earlier(int(epochs.max()), int(over_ms.max()))
