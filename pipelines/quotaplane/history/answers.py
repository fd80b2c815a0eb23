"""``./spark-submit.sh audit``: ask a question of the history, print the answer."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final

from quotaplane.errors import ConfigError
from quotaplane.history.audit import (
    BEGINNING,
    ask,
    list_audits,
    load_audit,
    parse_since,
    register_views,
)
from quotaplane.history.store import require_history
from quotaplane.option_parser import OptionParser
from quotaplane.settings import History, load_settings

FORMATS: Final = ("table", "json", "csv")


def main(argv: Sequence[str]) -> int:
    """``audit NAME`` or ``audit list``; what is wrong is told before Spark starts.

    Raises:
        ConfigError: the options or the settings are wrong, or there is no history.
        InputError: there is no such audit.
        HistoryError: the history's tables are missing or can't be read.
    """
    # Two passes: the audit's own parameters are options, too.
    parser = _parser()
    known, _ = parser.parse_known_args([word for word in argv if word not in ("-h", "--help")])
    if known.name == "list":
        width = max(len(audit.name) for audit in list_audits())
        print("\n".join(f"{audit.name:<{width}}  {audit.question}" for audit in list_audits()))
        return 0
    audit = load_audit(known.name)
    for name, parameter in audit.parameters.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_positive,
            metavar="N",
            default=parameter.default,
            help=f"{parameter.meaning} ({parameter.default:g})",
        )
    args = parser.parse_args(argv)
    if (args.conf is None) == (args.history is None):
        raise ConfigError("audit needs either --conf FILE or --history PATH")
    history = History(path=args.history) if args.history else load_settings(args.conf).history
    now = datetime.now(timezone.utc)
    since = parse_since(args.since, now) if args.since else BEGINNING
    require_history(history)

    from quotaplane.streams.session import build_session

    spark = build_session(f"quotaplane audit {audit.name}")
    register_views(spark, history, audit.sql)
    answer = ask(spark, audit, since, {name: getattr(args, name) for name in audit.parameters})
    rows = [tuple(row) for row in answer.collect()]
    print(render(answer.columns, rows, args.format))
    return 0


def _parser() -> OptionParser:
    parser = OptionParser(
        prog="./spark-submit.sh audit", description="Ask a question of the history."
    )
    parser.add_argument("name", metavar="NAME", help="an audit, a .sql file, or: list")
    parser.add_argument("--conf", metavar="FILE", help="the job's settings; history.path is used")
    parser.add_argument("--history", metavar="PATH", help="folder of the history's tables")
    parser.add_argument("--since", metavar="TIME", help="2026-03-01T12:00:00Z, or 30s, 15m, 2h, 7d")
    parser.add_argument("--format", choices=FORMATS, default="table")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


_positive.__name__ = "number"  # argparse says: invalid number value


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str) -> str:
    """An answer as text: an aligned table, a JSON list of objects, or CSV with a header.

    >>> print(render(("group", "n"), [("a", 1.5), ("bc", None)], "table"))
    group    n
    -----  ---
    a      1.5
    bc       -
    (2 rows)
    """
    plain = [[_plain(value) for value in row] for row in rows]
    if form == "json":
        items = (json.dumps(dict(zip(columns, row, strict=True))) for row in plain)
        return "[" + ",".join(f"\n {item}" for item in items) + ("\n]" if plain else "]")
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([columns, *plain])
        return out.getvalue().rstrip("\n")
    numeric = [all(map(_is_number, column)) for column in zip(*plain, strict=True)]
    numeric = numeric or [False] * len(columns)
    cells = [list(columns), *([_cell(value) for value in row] for row in plain)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    lines = (
        "  ".join(
            f"{cell:>{width}}" if right else f"{cell:<{width}}"
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    )
    return "\n".join([*lines, f"({len(rows)} row{'' if len(rows) == 1 else 's'})"])


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    return value


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
