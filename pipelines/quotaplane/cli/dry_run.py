"""``quotaplane dry-run EVENTS``: applies quotas to recorded requests, and sums up the answers."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from quotaplane.cli.history_options import history_of
from quotaplane.cli.recorded_events import recorded_events
from quotaplane.console.answers import add_answer_options, json_of, print_answer, table_text
from quotaplane.deltalog.error_text import one_line
from quotaplane.errors import InputError
from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.history.store import require_history
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.group_input import read_groups
from quotaplane.registry.rows_after import checked, policy_after
from quotaplane.registry.table import list_groups
from quotaplane.throttle.dry_runs import METRICS, REASONS, Tried, answer, begin

TOP: Final = 20
"""Number of entities shown: those with the most refused or delayed requests."""

_COUNTS: Final = ("events", "refused", "delayed", "units_asked", "units_admitted")
_SHOWN: Final = (
    *("entity", "dimension", "asked_per_s", "events", "refused", "delayed"),
    *("units_asked", "units_refused", "quota_per_s"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "events",
        metavar="EVENTS",
        help="a Delta table, or Parquet files, of recorded requests with the columns entity, at, "
        "units and optionally dimension and position",
    )
    quotas = parser.add_mutually_exclusive_group(required=True)
    quotas.add_argument(
        "--quotas",
        metavar="FILE",
        help="quotas to try, .csv or .json in the format of `quotaplane groups put --file`",
    )
    quotas.add_argument("--conf", metavar="FILE", help="try the quotas of this job's history")
    quotas.add_argument("--history", metavar="PATH", help="try the quotas of this history")
    parser.add_argument(
        "--out", metavar="FOLDER", help="write the Delta tables decisions, metrics and rejected"
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Answer all events and print the summary; as CSV, the entities that are affected most.

    Raises:
        ConfigError: the settings are wrong, or there is no history.
        InputError: the quotas are wrong; the events can't be read or lack columns; ``--out`` has
            tables already or can't be written.
        HistoryError: the history can't be read.
    """
    out = None if args.out is None else Path(args.out)
    if out is not None:
        _refuse_tables(out)
    summary = Summary()
    for tried in _answers(args.events, _definitions(args)):
        summary.add(tried)
        if out is not None:
            _write(out, tried)
    found, most = summary.found(), summary.most()
    print_answer(
        args,
        lambda: json_of({**found, "most": most}),
        lambda: "\n".join(_lines(found, most)),
        lambda: (_SHOWN, [tuple(row.values()) for row in most]),
    )
    return 0


def _definitions(args: argparse.Namespace) -> pa.Table:
    if args.quotas:
        return definitions_of(args.quotas)
    history = history_of(args)
    require_history(history, "or give the quotas to try with --quotas")
    return list_groups(history)


def definitions_of(path: str) -> pa.Table:
    """Read definitions from a file, as ``quotaplane groups put --file`` would for new groups.

    Raises:
        InputError: the file or the group, and what is wrong with it.
    """
    given = checked(read_groups(path))
    nothing = {name: pa.nulls(len(given.names), kind) for name, kind in POLICY_COLUMNS.items()}
    policies, _ = policy_after(pa.table(nothing), given)
    throttle = dict(zip(POLICY_COLUMNS, policies, strict=True))["throttle"]
    return pa.table(
        {
            "group": given.names,
            **dict(zip(RATE_COLUMNS, given.quotas.T, strict=True)),
            "throttle": throttle,
        }
    )


def _answers(path: str, definitions: pa.Table) -> Iterator[Tried]:
    entities = begin(definitions)
    with recorded_events(path) as pieces:
        for piece in pieces:
            entities, tried = answer(entities, piece)
            yield tried
    nothing = tried.decisions.slice(0, 0), entities.metrics(), tried.rejected.slice(0, 0)
    yield Tried(*nothing)


def _refuse_tables(out: Path) -> None:
    for name in Tried._fields:
        if DeltaTable.is_deltatable(str(out / name)):
            raise InputError(f"--out: {out}: has a table {name} already; use another folder")


def _write(out: Path, tried: Tried) -> None:
    for name, rows in tried._asdict().items():
        if len(rows) or not DeltaTable.is_deltatable(str(out / name)):
            try:
                write_deltalake(out / name, rows, mode="append")
            except (DeltaError, OSError) as error:
                raise InputError(f"--out: {out / name}: {one_line(error)}") from None


class Summary:
    """The sums over all events, and the entities with the most refused or delayed ones."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._rejected: Counter[str] = Counter()
        self._entities = 0
        self._since: datetime | None = None
        self._until: datetime | None = None
        self._most = METRICS.empty_table()

    def add(self, tried: Tried) -> None:
        """Add the results of one piece."""
        rows = tried.metrics
        for name in _COUNTS:
            self._counts[name] += pc.sum(rows[name]).as_py() or 0
        self._rejected.update(tried.rejected["reason"].to_pylist())
        if len(rows):
            self._entities += len(rows)
            self._since = min(filter(None, (self._since, pc.min(rows["since"]).as_py())))
            self._until = max(filter(None, (self._until, pc.max(rows["until"]).as_py())))
        affected = pc.add(rows["refused"], rows["delayed"])
        self._most = _first(pa.concat_tables([self._most, rows.filter(pc.greater(affected, 0))]))

    def found(self) -> dict[str, Any]:
        """The sums by name."""
        found: dict[str, Any] = {**self._counts, "entities": self._entities}
        found["units_refused"] = found["units_asked"] - found.pop("units_admitted")
        for name, at in (("since", self._since), ("until", self._until)):
            found[name] = None if at is None else f"{at:%Y-%m-%dT%H:%M:%S.%f}Z"
        return {**found, "rejected": dict(sorted(self._rejected.items()))}

    def most(self) -> list[dict[str, Any]]:
        """Rows of ``_SHOWN``, the entity with the most refused or delayed events first."""
        span_s = 1.0
        if self._since is not None and self._until is not None:
            span_s = max((self._until - self._since).total_seconds(), span_s)
        rows = [
            {
                **row,
                "asked_per_s": round(row["units_asked"] / span_s, 3),
                "units_refused": row["units_asked"] - row["units_admitted"],
            }
            for row in self._most.to_pylist()
        ]
        return [{name: row[name] for name in _SHOWN} for row in rows]


def _first(rows: pa.Table) -> pa.Table:
    """The ``TOP`` rows with the most refused or delayed events."""
    affected = pc.add(rows["refused"], rows["delayed"])
    order = [("affected", "descending"), ("entity", "ascending"), ("dimension", "ascending")]
    return rows.take(pc.sort_indices(rows.append_column("affected", affected), order)[:TOP])


def _lines(summary: Mapping[str, Any], rows: list[dict[str, Any]]) -> Iterator[str]:
    r"""The lines of the summary.

    >>> summary = {"events": 4, "entities": 2, "since": "A", "until": "B", "refused": 1,
    ...     "delayed": 2, "units_asked": 8.0, "units_refused": 2.0, "rejected": {"no_time": 3}}
    >>> print("\n".join(_lines(summary, [])))
    4 events of 2 entities, from A to B
    refused: 1 events (25 %), with 25 % of the units; delayed: 2 events (50 %)
    not used: 3 events: the time is missing, or before 1970
    """
    share = 100.0 / max(summary["events"], 1)
    units = 100.0 / max(summary["units_asked"], 1e-300)
    yield (
        f"{summary['events']} events of {summary['entities']} entities, "
        f"from {summary['since']} to {summary['until']}"
    )
    yield (
        f"refused: {summary['refused']} events ({summary['refused'] * share:.3g} %), with "
        f"{summary['units_refused'] * units:.3g} % of the units; "
        f"delayed: {summary['delayed']} events ({summary['delayed'] * share:.3g} %)"
    )
    for reason, count in summary["rejected"].items():
        yield f"not used: {count} events: {REASONS[reason]}"
    if rows:
        yield table_text(_SHOWN, [tuple(row.values()) for row in rows])
