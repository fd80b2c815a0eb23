"""``quotaplane audit``: answers a question about the history, with DuckDB and without a JVM.

``./spark-submit.sh audit`` is the same with Spark (``main``).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

from quotaplane.cli.history_options import history_at
from quotaplane.console.answers import add_answer_options, json_lines, print_answer
from quotaplane.console.option_parser import OptionParser, number
from quotaplane.console.terminal import print_to_stderr
from quotaplane.errors import ConfigError, InputError
from quotaplane.history.store import require_history
from quotaplane.parsing.point_in_time import check_order, parse_since, parse_until
from quotaplane.query.answer import Answer
from quotaplane.query.audit import Audit, list_audits, load_audit
from quotaplane.query.views import BEGINNING
from quotaplane.settings import History, Protections, load_settings

VIOLATIONS: Final = 1
"""Exit code: the audit found violations."""

_LIST: Final = "list"

_EPILOG: Final = f"""\
`audit list` prints all audits; their pages are in docs/reference/history.md. A FILE.sql is one
SELECT, which may name the history's tables and the views that docs/reference/history.md lists.

exit codes: 0 no violations, {VIOLATIONS} the audit found violations (only audits that `list` marks
with *; a FILE.sql may say which rows are violations), 2 wrong options or wrong SQL, 4 a table is
broken
"""


class _Request(NamedTuple):
    """The audit, its history and its time range."""

    audit: Audit
    history: History
    security: Protections
    since: datetime
    until: datetime | None
    parameters: dict[str, float]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that all audits have."""
    parser.epilog = _EPILOG
    parser.add_argument("name", metavar="NAME", help="an audit, a FILE.sql, or: list")
    parser.add_argument("--conf", metavar="FILE", help="the job's settings; history.path is used")
    parser.add_argument("--history", metavar="PATH", help="folder of the history's tables")
    times = "2026-03-01T12:00:00Z, or an age: 30s, 15m, 2h, 7d"
    parser.add_argument("--since", metavar="TIME", help=f"only what happened since then ({times})")
    parser.add_argument("--until", metavar="TIME", help="the history as it was then")
    add_answer_options(parser)


def add_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the options of the audit that the words of the command line name.

    Raises:
        InputError: there is no such audit.
    """
    wanted = [word for word in words if word not in ("-h", "--help")]
    if not any(not word.startswith("-") for word in wanted):
        return
    known, _ = parser.parse_known_args(wanted)
    if known.name == _LIST:
        return
    audit = load_audit(known.name)
    parser.description = audit.question
    for name, parameter in audit.parameters.items():
        try:
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                type=_positive,
                metavar="N",
                help=f"{parameter.meaning} ({parameter.default:g})".replace("%", "%%"),
            )
        except argparse.ArgumentError:
            raise InputError(
                f"audit {audit.place}: a parameter can't be called {name}, which is an option of "
                "all audits"
            ) from None


def run(args: argparse.Namespace) -> int:
    """Print the answer; see ``_EPILOG`` for the exit code.

    Raises:
        ConfigError: the options or the settings are wrong, or there is no history.
        InputError: there is no such audit, or its SQL is wrong.
        HistoryError: the history's tables are missing or can't be read.
    """
    return _answered(args, _ask_duckdb)


def main(argv: Sequence[str]) -> int:
    """``./spark-submit.sh audit``: wrong options are found before Spark starts.

    Raises:
        As ``run``.
    """
    parser = OptionParser(
        prog="./spark-submit.sh audit",
        description="Ask a question of the history, with Spark. `quotaplane audit` is faster.",
    )
    configure(parser)
    add_options(parser, argv)
    return _answered(parser.parse_args(argv), _ask_spark)


def _answered(args: argparse.Namespace, ask: Callable[[_Request], Answer]) -> int:
    if args.name == _LIST:
        print(_listed(list_audits()))
        return 0
    request = _request(args)
    require_history(request.history)
    try:
        answer = ask(request)
        found = request.audit.violations(answer)
    except InputError as error:
        raise InputError(f"audit {request.audit.place}: {error}") from None
    print_answer(
        args,
        lambda: json_lines(answer.dicts()),
        lambda: (answer.columns, answer.rows),
    )
    if not found:
        return 0
    rows = len(answer.rows)
    print_to_stderr(
        f"quotaplane: audit {request.audit.name}: {found} of {rows} row{'s' if rows > 1 else ''} "
        f"{'are violations' if found > 1 else 'is a violation'}"
    )
    return VIOLATIONS


def _request(args: argparse.Namespace) -> _Request:
    if (args.conf is None) == (args.history is None):
        raise ConfigError("audit needs either --conf FILE or --history PATH")
    settings = None if args.conf is None else load_settings(args.conf)
    history = history_at(args.history) if settings is None else settings.history
    security = Protections() if settings is None else settings.security
    now = datetime.now(timezone.utc)
    since = parse_since(args.since, now) if args.since is not None else BEGINNING
    until = parse_until(args.until, now) if args.until is not None else None
    check_order(since, until)
    audit = load_audit(args.name)
    of_settings = {} if settings is None else audit.of_settings(settings.limits)
    given = {name: getattr(args, name) for name in audit.parameters}
    given = {name: value for name, value in given.items() if value is not None}
    parameters = audit.values({**of_settings, **given})
    return _Request(audit, history, security, since, until, parameters)


def _ask_duckdb(request: _Request) -> Answer:
    from quotaplane.query.duckdb_engine import DuckDBEngine

    with DuckDBEngine(request.history) as engine:
        return engine.ask(
            request.audit.sql, request.parameters, since=request.since, until=request.until
        )


def _ask_spark(request: _Request) -> Answer:
    from quotaplane.query.spark_engine import ask, collected, sql_errors
    from quotaplane.streams.session import build_session
    from quotaplane.streams.stores import check_connectors, connect

    places = (request.history.path,)
    check_connectors(places)
    spark = build_session(f"quotaplane audit {request.audit.name}", security=request.security)
    connect(spark, request.history, places)
    with sql_errors():
        rows = ask(
            spark,
            request.history,
            request.audit.sql,
            request.parameters,
            since=request.since,
            until=request.until,
        )
        return collected(rows)


def _listed(audits: Sequence[Audit]) -> str:
    width = max(len(audit.name) for audit in audits)
    return "\n".join(
        f"{audit.name:<{width}} {' ' if audit.violation is None else '*'} {audit.question}"
        for audit in audits
    )


def _positive(text: str) -> float:
    value = number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value
