"""Reads the newest epoch and the last lease end of previous runs, which a starting job needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.deltalog.read import read_rows
from quotaplane.history.store import open_table, reading
from quotaplane.settings import History


class Earlier(NamedTuple):
    """Epoch and leases of previous runs."""

    epoch: int
    """The highest epoch; 0 = no previous run."""
    until_ms: int
    """When the last lease of all runs ends."""
    recorded_ms: float = -np.inf
    """When the newest report in ``usage`` was published; -inf: there is none."""


def read_earlier(history: History, now_ms: float = np.inf) -> Earlier:
    """Read the newest epoch, and when the last lease ends.

    A lease is assumed to begin at its run's last round, which may have renewed every limit. All
    epochs count, as a later run may have ended before an earlier one's leases did. No limit holds
    for longer than a lease after it arrived, so a round later than ``now_ms``, by a clock that was
    ahead, counts as one of now.

    Raises:
        HistoryError: the tables are missing or can't be read.
    """
    with reading("rounds"):
        rounds = read_rows(open_table(history, "rounds"), ["epoch", "round_at"])
    if not len(rounds):
        return Earlier(0, 0)
    # Not group_by(): it loads pyarrow.dataset, whose threads abort a process that ends early.
    epochs, of_epoch = np.unique(rounds["epoch"].to_numpy(), return_inverse=True)
    at = rounds["round_at"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
    over_ms = np.zeros(len(epochs), np.int64)
    np.maximum.at(over_ms, of_epoch, np.minimum(at, now_ms).astype(np.int64))
    # There are many limits, so use only the files' statistics.
    files = pa.table(open_table(history, "limits").get_add_actions(flatten=True))
    if "max.lease_ms" in files.column_names:
        first, newest, lease_ms = (
            files[name].fill_null(0).to_numpy()
            for name in ("min.epoch", "max.epoch", "max.lease_ms")
        )
        in_file = (first <= epochs[:, None]) & (epochs[:, None] <= newest)
        over_ms = over_ms + np.where(in_file, lease_ms, 0).max(axis=1, initial=0)
    return Earlier(int(epochs.max()), int(over_ms.max()), _recorded_ms(history, now_ms))


def _recorded_ms(history: History, now_ms: float) -> float:
    files = pa.table(open_table(history, "usage").get_add_actions(flatten=True))
    if "max.published_at" not in files.column_names:
        return -np.inf
    newest = pc.max(files["max.published_at"]).as_py()
    return -np.inf if newest is None else min(newest.timestamp() * 1000.0, now_ms)
