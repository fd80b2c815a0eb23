"""Compares a replay without changes with the recorded limits, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.history.tables import LIMITS, ROUNDS
from quotaplane.model import Round
from quotaplane.replay.player import Played, Player, plain
from quotaplane.replay.recorded import RoundInputs, between, read_table, recorded_rounds
from quotaplane.settings import History

_ORDER = [(n, "ascending") for n in ("epoch", "seq", "broker", "resource_group", "ended")]


@dataclass(frozen=True)
class Difference:
    """A round in which the replay does not agree with the record."""

    stamp: Round
    problem: str
    """The difference, with an example."""


@dataclass
class Verified:
    """Numbers of the compared rounds, limits and states."""

    rounds: int = 0
    limits: int = 0
    """Rows of the table ``limits``."""
    states: int = 0
    """Recorded states that the replay reached by itself."""


def verify(
    history: History, since: datetime, until: datetime, verified: Verified
) -> Iterator[Difference]:
    """Replay the recorded rounds of a time range; ``verified`` is counted up meanwhile.

    Raises:
        InputError: nothing was recorded in that time.
        HistoryError: the record can't be read.
    """
    player, begun = Player(), set[int]()
    for rounds in recorded_rounds(history, since, until):
        complete = _complete(history, rounds)
        played = [one for one in player.play(rounds) if _key(one.stamp) in complete]
        for recorded in rounds:
            verified.states += len(recorded.states.keys() & begun)
            begun |= recorded.states.keys()
        compared = [one for one in played if one.stamp.now_ms >= since.timestamp() * 1000]
        verified.rounds += len(compared)
        for one in played:
            for shard in one.differing_states:
                yield Difference(one.stamp, f"the state of shard {shard} differs")
        if compared:
            yield from _differences(history, compared, verified)


def _complete(history: History, rounds: Sequence[RoundInputs]) -> set[tuple[int, int]]:
    """The rounds that are written as a whole: a running job may be writing the newest."""
    limits = between(_key(rounds[0].stamp), _key(rounds[-1].stamp))
    rows = read_table(history, ROUNDS.name, limits, ["epoch", "seq"])
    return set(zip(rows["epoch"].to_pylist(), rows["seq"].to_pylist(), strict=True))


def _differences(
    history: History, played: Sequence[Played], verified: Verified
) -> Iterator[Difference]:
    first, last = _key(played[0].stamp), _key(played[-1].stamp)
    recorded = plain(read_table(history, LIMITS.name, between(first, last))).sort_by(_ORDER)
    recorded = _of_rounds(recorded, played)
    again = pa.concat_tables([one.limits for one in played]).sort_by(_ORDER)
    verified.limits += len(recorded)
    if again.equals(recorded):
        return
    for one in played:
        ours, theirs = (_of_rounds(table, [one]) for table in (again, recorded))
        if not ours.equals(theirs):
            yield Difference(one.stamp, _example(ours, theirs))


def _of_rounds(limits: pa.Table, played: Sequence[Played]) -> pa.Table:
    seqs = pa.array([one.stamp.seq for one in played], pa.int64())
    epochs = pa.array(sorted({one.stamp.epoch for one in played}), pa.int64())
    here = pc.and_(
        pc.is_in(limits["seq"], value_set=seqs), pc.is_in(limits["epoch"], value_set=epochs)
    )
    return limits.filter(here)


def _example(ours: pa.Table, theirs: pa.Table) -> str:
    if len(ours) != len(theirs):
        return f"the record has {len(theirs)} limits, the replay {len(ours)}"
    for a, b in zip(ours.to_pylist(), theirs.to_pylist(), strict=True):
        wrong: list[Any] = [name for name in a if a[name] != b[name]]
        if wrong:
            where = f"broker {b['broker']}, group {b['resource_group']}"
            return f"{where}: {wrong[0]} is {a[wrong[0]]!r}, recorded {b[wrong[0]]!r}"
    return "the columns differ"


def _key(stamp: Round) -> tuple[int, int]:
    return stamp.epoch, stamp.seq
