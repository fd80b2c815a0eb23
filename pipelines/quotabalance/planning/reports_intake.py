"""From brokers' load reports to a round: the cluster's load, ages, conflicts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from quotabalance.planning.bundle_orders import NotMade
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Skip
from quotabalance.planning.planner import BalanceRound
from quotabalance.planning.reported_loads import (
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    USAGE_COLUMNS,
    ReportedLoads,
)
from quotaplane.model import BoolArray, FloatArray, IntArray

GONE: Final = "BrokerGone"
"""The label of a broker that is forgotten; a replay leaves such skips out."""

_MOST_SHOWN: Final = 3


class RoundOfReports(NamedTuple):
    """A round, and what was left out of it."""

    round: BalanceRound
    skips: tuple[Skip, ...]


def round_of(
    latest: ReportedLoads, now_ms: int, not_made: Sequence[NotMade] = ()
) -> RoundOfReports:
    """The round at a time, from one report per broker, by broker's name.

    A bundle that several brokers report belongs to the one that measured later; of equal times, to
    the first by name.
    """
    rows, bundles = latest.reports, latest.bundles
    brokers = rows["broker"].to_pylist()
    measured_ms = rows["measured_at_ms"].to_numpy()
    owner = bundles["report"].to_numpy().astype(np.int64)
    kept, winner = _owned(bundles["bundle"], owner, measured_ms)
    skips: tuple[Skip, ...] = ()
    if not kept.all():
        names = bundles["bundle"].combine_chunks()
        skips = tuple(_conflicts(brokers, measured_ms, names, owner, kept, winner))
        bundles, owner = bundles.filter(pa.array(kept)), owner[kept]
    load = ClusterLoad(
        brokers=brokers,
        usage=_columns(rows, USAGE_COLUMNS),
        limit=_columns(rows, LIMIT_COLUMNS),
        bundles=bundles["bundle"].to_pylist(),
        owner=owner,
        rates=_columns(bundles, RATE_COLUMNS),
        topics=_counts(bundles["topics"]),
        sessions=_counts(bundles["sessions"]),
    )
    age_s = np.maximum(now_ms - measured_ms, 0) / 1000.0
    draining = rows["draining"].to_numpy(zero_copy_only=False)
    round_ = BalanceRound(load, now_ms / 1000.0, age_s, draining, not_made)
    return RoundOfReports(round_, skips)


def gone_skip(broker: str, gone_after_s: float) -> Skip:
    """The skip of a broker that was forgotten."""
    reason = f"no numbers of {broker} for {gone_after_s:g} s: forgotten"
    return Skip(broker, GONE, reason, 0)


def _columns(table: pa.Table, names: tuple[str, ...]) -> FloatArray:
    columns = [table[name].to_numpy().astype(np.float64) for name in names]
    return np.ascontiguousarray(np.stack(columns, axis=1))


def _counts(column: pa.ChunkedArray) -> IntArray:
    """Counts; what is not known is 0, or the array is empty if nothing is known."""
    counts = column.to_numpy().astype(np.int64)
    if len(counts) and counts.max() < 0:
        return np.zeros(0, np.int64)
    known: IntArray = np.maximum(counts, 0)
    return known


def _owned(
    names: pa.ChunkedArray, owner: IntArray, measured_ms: IntArray
) -> tuple[BoolArray, IntArray]:
    """Which entries count, and for every entry the index of the broker whose entry does."""
    code = names.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    kept = np.ones(len(code), bool)
    winner = owner.copy()
    if not len(code) or int(code.max()) + 1 == len(code):
        return kept, winner
    order = np.lexsort((owner, -measured_ms[owner], code))
    first = np.r_[True, code[order][1:] != code[order][:-1]]
    kept[order[~first]] = False
    winner[order] = owner[order[np.flatnonzero(first)[np.cumsum(first) - 1]]]
    return kept, winner


def _conflicts(
    brokers: list[str],
    measured_ms: IntArray,
    names: pa.StringArray,
    owner: IntArray,
    kept: BoolArray,
    winner: IntArray,
) -> list[Skip]:
    """One skip for each pair of brokers of which one's entries lost."""
    lost = np.flatnonzero(~kept)
    pairs, which = np.unique(
        np.stack([owner[lost], winner[lost]], axis=1), axis=0, return_inverse=True
    )
    skips = []
    for number, (loser, other) in enumerate(pairs.tolist()):
        entries = lost[which.ravel() == number]
        shown = ", ".join(names[place].as_py() for place in entries[:_MOST_SHOWN].tolist())
        more = len(entries) - _MOST_SHOWN
        reason = (
            f"{brokers[loser]} (measured {_clock(measured_ms[loser])}) and {brokers[other]} "
            f"(measured {_clock(measured_ms[other])}) both report {shown}"
            + (f" and {more} more" if more > 0 else "")
            + f"; {brokers[other]} counts"
        )
        skips.append(Skip(brokers[loser], "ReportedTwice", reason, len(entries)))
    return skips


def _clock(at_ms: int) -> str:
    """The time of day in UTC.

    >>> _clock(1_690_000_000_125)
    '04:26:40.125'
    """
    at = datetime.fromtimestamp(int(at_ms) / 1000, timezone.utc)
    return f"{at:%H:%M:%S}.{int(at_ms) % 1000:03d}"
