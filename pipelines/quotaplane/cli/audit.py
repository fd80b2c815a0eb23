"""``./spark-submit.sh audit``: runs an audit query on the history and prints the result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone

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
from quotaplane.text_table import FORMATS, render


def main(argv: Sequence[str]) -> int:
    """Run ``audit NAME`` or ``audit list``; errors in the options are raised before Spark starts.

    Raises:
        ConfigError: the options or the settings are wrong, or there is no history.
        InputError: there is no such audit.
        HistoryError: the history's tables are missing or can't be read.
    """
    # Two passes, because the audit's own parameters are options as well.
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
