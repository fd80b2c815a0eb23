"""Reads recorded rounds of the quota job from the history, oldest first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError, InputError
from quotaplane.history.damage import round_of_record
from quotaplane.history.store import one_line, open_table
from quotaplane.history.tables import RECORDING
from quotaplane.model import BoolArray, IntArray, Round
from quotaplane.settings import History
from quotaplane.streams.quota.recorded_program import SETTINGS, STATE, TIMER

_ROUNDS_AT_ONCE: Final = 200
"""Rounds read at a time: the payloads of all rounds would not fit into memory."""


@dataclass
class RoundInputs:
    """The inputs of one round of the job."""

    stamp: Round
    settings: Mapping[str, Any] | None = None
    """The settings from this round on; None: unchanged."""
    states: dict[int, bytes] = field(default_factory=dict)
    """Encoded states from before the round, by shard, if they were recorded."""
    arrived: dict[int, dict[str, list[bytes]]] = field(default_factory=dict)
    """The payloads, by kind, of each shard that ran; none if it ran because a timer was due."""


def recorded_rounds(
    history: History, since: datetime, until: datetime
) -> Iterator[list[RoundInputs]]:
    """The recorded rounds of a time range in order, some at a time.

    The first rounds are from before the range: a replay begins at the recorded state of each shard,
    and states are recorded in a job's first round and then every hour.

    Raises:
        InputError: nothing was recorded in that time.
        HistoryError: the record can't be read.
    """
    columns = ["epoch", "seq", "round_at", "shard", "kind"]
    index = read_table(history, RECORDING.name, _dates(since, until), columns)
    index = index.filter(pc.less_equal(index["round_at"], _moment(index, until)))
    if not len(index) or pc.max(index["round_at"]).as_py() < since:
        raise InputError(
            f"no rounds were recorded from {since:%Y-%m-%dT%H:%M:%SZ} to {until:%Y-%m-%dT%H:%M:%SZ}"
            ": see history.recording_days in the settings"
        )
    begin = _beginning(index, since)
    epoch, seq = index["epoch"].to_numpy(), index["seq"].to_numpy()
    wanted = np.unique(np.stack([epoch, seq], axis=1)[_not_before(epoch, seq, begin)], axis=0)
    for at in range(0, len(wanted), _ROUNDS_AT_ONCE):
        part = wanted[at : at + _ROUNDS_AT_ONCE].tolist()
        yield _rounds(history, tuple(part[0]), tuple(part[-1]))


def _dates(since: datetime, until: datetime) -> str:
    # The day before, too: it may have the last recorded states.
    first = since.date().toordinal() - 1
    return f"date >= '{datetime.fromordinal(first):%Y-%m-%d}' AND date <= '{until:%Y-%m-%d}'"


def _beginning(index: pa.Table, since: datetime) -> tuple[int, int]:
    """(epoch, seq) of the first round that is needed.

    For each shard, that is where its state was recorded last before the range, or first in it.
    """
    early = pc.less_equal(index["round_at"], _moment(index, since))
    index = index.append_column("early", early)
    states = index.filter(pc.equal(index["kind"], STATE))
    # A state of an earlier epoch is of no use if a later one begins before the range.
    order = [("epoch", "ascending"), ("seq", "ascending")]
    chosen: dict[int, tuple[bool, int, int]] = {}
    for row in states.sort_by(order).select(["shard", "early", "epoch", "seq"]).to_pylist():
        if row["early"] or row["shard"] not in chosen:
            chosen[row["shard"]] = row["early"], row["epoch"], row["seq"]
    running = pc.unique(index["shard"].filter(pc.greater_equal(index["shard"], 0))).to_pylist()
    missing = sorted(set(running) - chosen.keys())
    if missing:
        raise InputError(f"the record has no state of shard {missing[0]} from which to begin")
    return min((epoch, seq) for _, epoch, seq in chosen.values())


def _not_before(epoch: IntArray, seq: IntArray, begin: tuple[int, int]) -> BoolArray:
    after: BoolArray = (epoch > begin[0]) | ((epoch == begin[0]) & (seq >= begin[1]))
    return after


def _rounds(history: History, first: tuple[int, int], last: tuple[int, int]) -> list[RoundInputs]:
    rows = read_table(history, RECORDING.name, between(first, last))
    rows = rows.sort_by([("epoch", "ascending"), ("seq", "ascending")])
    found: dict[tuple[int, int], RoundInputs] = {}
    for row in rows.select(["epoch", "seq", "round_at", "shard", "kind", "payload"]).to_pylist():
        key = row["epoch"], row["seq"]
        with round_of_record(RECORDING.name, *key):
            if key not in found:
                now_ms = round(row["round_at"].timestamp() * 1000)
                found[key] = RoundInputs(Round(*key, now_ms))
            _add(found[key], row)
    return list(found.values())


def between(first: tuple[int, int], last: tuple[int, int]) -> str:
    """The condition on (epoch, seq) for rounds from ``first`` to ``last``."""
    return (
        f"(epoch > {first[0]} OR (epoch = {first[0]} AND seq >= {first[1]})) AND "
        f"(epoch < {last[0]} OR (epoch = {last[0]} AND seq <= {last[1]}))"
    )


def _add(recorded: RoundInputs, row: Mapping[str, Any]) -> None:
    kind, shard = row["kind"], row["shard"]
    if kind == SETTINGS:
        recorded.settings = json.loads(row["payload"])
        return
    payloads = recorded.arrived.setdefault(shard, defaultdict(list))
    if kind == STATE:
        recorded.states[shard] = row["payload"]
    elif kind != TIMER:
        payloads[kind].append(row["payload"])


def read_table(
    history: History, name: str, condition: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """Rows of a history table.

    Raises:
        HistoryError: they can't be read.
    """
    try:
        return read_rows(open_table(history, name), columns, condition)
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table {name}: {one_line(error)}") from None


def _moment(table: pa.Table, at: datetime) -> pa.Scalar:
    return pa.scalar(at, table.schema.field("round_at").type)
