"""The process of an administrator's program: it puts and deletes groups all day, in one life."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.registry.table import delete_groups, list_groups, put_groups
from quotaplane.settings import History

QUOTA = 1000.0


def change(history: History, put: Sequence[str], deleted: Sequence[str]) -> int:
    """Put and delete; both may have been done before a kill. Returns how many groups there are."""
    if put:
        quotas = np.full((len(put), len(DIMENSIONS)), np.inf)
        quotas[:, :BASIC] = QUOTA
        put_groups(history, put, quotas, by="soak-day")
    there = {*list_groups(history)["group"].to_pylist()}
    if left := [name for name in deleted if name in there]:
        delete_groups(history, left, by="soak-day")
    return len(there) - len(left)


def main(pipe: Connection, history: History) -> None:
    """Answer until the pipe ends."""
    pipe.send(time.time())
    while True:
        try:
            put, deleted = pipe.recv()
        except EOFError:
            return
        pipe.send(change(history, put, deleted))
