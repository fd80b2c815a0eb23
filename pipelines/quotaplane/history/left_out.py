"""Reads the table ``left_out``: reports that rounds did not read, and are not recorded yet.

The reports are numbered over all rounds and epochs. A Delta transaction in each commit to ``usage``
has the number of those recorded so far. So nothing is recorded twice, and a new checkpoint
continues after an earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.deltalog.read import read_rows
from quotaplane.history.store import open_table, reading
from quotaplane.history.tables import BROKERS, LEASES, LEFT_OUT, RESOURCE_GROUPS, USAGE
from quotaplane.model import RATE_COLUMNS, BoolArray, FloatArray
from quotaplane.settings import History

RECORDER: Final = "quotaplane-recorder"
"""Delta's application of the commits with recorded reports; its version is the number of reports
that are done."""


SKIPPED_REPORTS: Final = 5000
"""A backlog that a start skips becomes stretches of at most this many reports. Of a stretch
that a killed job had begun, the reports that are done are read once more."""


class Stretch(NamedTuple):
    """A row of ``left_out``: reports of one round that are to be recorded."""

    number: int
    """The number of reports that were left out before."""
    reports: int
    begin: Any
    """Where the stretch begins and ends: offsets of the transport's source."""
    end: Any
    """None: not known, as the row expired."""
    chosen: Sequence[str] | None = None
    """The positions of the reports; None: all reports of the stretch."""
    after_ms: float | None = None
    """Reports published up to then are recorded already, by an earlier epoch; None: none are."""

    @property
    def last(self) -> int:
        """The number of reports that are done when these are."""
        return self.number + self.reports


def skipped_stretches(begin: Any, end: Any, after_ms: float | None = None) -> list[Stretch]:
    """The stretches of a backlog that a start skipped, between two of Kafka's offsets.

    ``after_ms``: see ``Stretch``.

    >>> [each.reports for each in skipped_stretches({"r": {"0": 5}}, {"r": {"0": 7005}})]
    [5000, 2000]
    """
    found = []
    for topic, offsets in end.items():
        for part, last in offsets.items():
            for at in range(begin[topic][part], last, SKIPPED_REPORTS):
                until = min(at + SKIPPED_REPORTS, last)
                between = {topic: {part: at}}, {topic: {part: until}}
                found.append(Stretch(0, until - at, *between, after_ms=after_ms))
    return found


def left_out_stretch(positions: Sequence[str], begin: Any, end: Any) -> list[Stretch]:
    """The stretch of a round that read its input but for the reports at these positions."""
    return [Stretch(0, len(positions), begin, end, sorted(positions))] if positions else []


class Waiting(NamedTuple):
    """The part of the table that is not recorded yet."""

    stretches: list[tuple[int, int]]
    """``number`` and ``reports`` of the stretches."""
    last: int
    """``Stretch.last`` of the newest one; new ones are numbered from here."""
    noted: tuple[int, int]
    """Epoch and seq of the newest round that left something out."""


def waiting(history: History, done: int) -> Waiting:
    """The stretches that are not done, given the number of reports that are.

    Raises:
        HistoryError: the table can't be read.
    """
    # The newest row is always one of them.
    names = ["epoch", "seq", "number", "reports"]
    rows = _read(history, LEFT_OUT.name, names, f"number + reports >= {done}")
    columns = (rows[name].to_pylist() for name in rows.column_names)
    found = sorted(zip(*columns, strict=True), key=lambda row: row[2])
    return Waiting(
        [(number, reports) for _, _, number, reports in found if number + reports > done],
        max([done, *(number + reports for _, _, number, reports in found)]),
        max([(epoch, seq) for epoch, seq, _, _ in found], default=(-1, -1)),
    )


def stretch(history: History, number: int, reports: int) -> Stretch:
    """The stretch with this number, of ``reports`` reports.

    Raises:
        HistoryError: the table can't be read.
    """
    names = ["positions", "chosen"]
    rows = _read(history, LEFT_OUT.name, names, f"number = {number}").to_pylist()
    if not rows:
        return Stretch(number, reports, None, None)
    between = json.loads(rows[0]["positions"])
    chosen, after_ms = rows[0]["chosen"], between.get("after_ms")
    return Stretch(number, reports, between["from"], between["to"], chosen, after_ms)


def rows_of(stretches: Sequence[Stretch]) -> pa.Table:
    """Rows of ``left_out``, without the columns of the round."""
    between = []
    for each in stretches:
        after = {} if each.after_ms is None else {"after_ms": each.after_ms}
        between.append(json.dumps({"from": each.begin, "to": each.end, **after}))
    return pa.table(
        {
            "number": pa.array([each.number for each in stretches], pa.int64()),
            "reports": pa.array([each.reports for each in stretches], pa.int64()),
            "positions": pa.array(between, pa.string()),
            "chosen": pa.array(
                [each.chosen for each in stretches], LEFT_OUT.schema.field("chosen").type
            ),
        }
    )


def defined_groups(history: History) -> pa.Table:
    """The names and quotas of all groups.

    Raises:
        HistoryError: the table can't be read.
    """
    return _read(history, RESOURCE_GROUPS.name, ["resource_group", *RATE_COLUMNS])


def known_brokers(history: History) -> frozenset[str]:
    """The brokers of which a round used a report.

    Raises:
        HistoryError: a table can't be read.
    """
    # The row of a broker that has been live for longer than rows are kept has expired.
    tables = (_read(history, each.name, ["broker"]) for each in (BROKERS, LEASES))
    return frozenset(name for rows in tables for name in pc.unique(rows["broker"]).to_pylist())


class CountedWindows:
    """The times measured by reports that limits were decided with, by broker.

    Args:
        history: has them in ``usage``.
        since_ms, until_ms: only reports that were published within this time.

    Raises:
        HistoryError: the table can't be read.
    """

    def __init__(self, history: History, since_ms: float, until_ms: float) -> None:
        begin, end = (
            datetime.fromtimestamp(ms / 1000, timezone.utc).isoformat()
            for ms in (since_ms, until_ms)
        )
        # Rounds are not much later than the reports that they decide with.
        condition = (
            f"published_at >= '{begin}' AND published_at <= '{end}' AND date >= '{begin[:10]}'"
        )
        names = ["broker", "published_at", "window_ms", "counted"]
        rows = _read(history, USAGE.name, names, condition)
        rows = rows.filter(pc.fill_null(rows["counted"], True))
        rows = rows.group_by(names[:3], use_threads=False).aggregate([]).sort_by("published_at")
        self._broker = np.array(rows["broker"].to_pylist(), object)
        self._ends_ms = rows["published_at"].cast(pa.int64()).to_numpy() / 1000
        self._lasts_ms = rows["window_ms"].fill_null(0).to_numpy()

    def cover(self, brokers: Sequence[str], at_ms: FloatArray) -> BoolArray:
        """(n,) whether a broker's usage at a time is in such a report."""
        names = np.array(brokers, object)
        covered: BoolArray = np.zeros(len(names), bool)
        for name in np.unique(names):
            mine, asked = self._broker == name, names == name
            ends_ms, lasts_ms = self._ends_ms[mine], self._lasts_ms[mine]
            if not len(ends_ms):
                continue
            after = np.searchsorted(ends_ms, at_ms[asked])
            last = np.minimum(after, len(ends_ms) - 1)
            inside = ends_ms[last] - lasts_ms[last] <= at_ms[asked]
            covered[asked] = (after < len(ends_ms)) & inside
        return covered


def _read(
    history: History, name: str, columns: Sequence[str], predicate: str | None = None
) -> pa.Table:
    with reading(name):
        return read_rows(open_table(history, name), columns, predicate).select(list(columns))
