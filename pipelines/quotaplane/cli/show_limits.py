"""``quotaplane limits``: the limits in force, with their reasons."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Final

from quotaplane.cli.history_options import add_history_options, existing_history
from quotaplane.console.answers import add_answer_options, print_rows
from quotaplane.console.option_parser import whole_number
from quotaplane.errors import ConfigError, InputError
from quotaplane.query.cluster_status import broker_status
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.limits_in_force import COLUMNS, limits_in_force
from quotaplane.registry.table import get_group
from quotaplane.settings import History

TOP: Final = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("group", nargs="?", metavar="GROUP", help="only of this group")
    parser.add_argument("--broker", metavar="NAME", help="only of this broker")
    parser.add_argument(
        "--top",
        type=whole_number,
        metavar="N",
        default=TOP,
        help=f"the N that are used most ({TOP})",
    )
    add_history_options(parser)
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the limits, the most used first.

    Raises:
        ConfigError: an option or the settings are wrong, or there is no history.
        InputError: there is no such group, or no such broker.
        HistoryError: the history can't be read.
    """
    if args.top < 1:
        raise ConfigError(f"--top must be 1 or more, not {args.top}")
    history = existing_history(args)
    with DuckDBEngine(history) as engine:
        found = limits_in_force(engine, args.group, args.broker, args.top)
        if not found:
            _check_names(history, engine, args.group, args.broker)
    print_rows(args, found, COLUMNS)
    return 0


def _check_names(
    history: History, engine: DuckDBEngine, group: str | None, broker: str | None
) -> None:
    """Refuse unknown names: an empty list of limits would be the wrong answer."""
    if group is not None:
        get_group(history, group)
    if broker is not None:
        now = datetime.now(timezone.utc)
        if broker not in {row["broker"] for row in broker_status(engine, now)}:
            raise InputError(
                f"there is no broker {broker!r}; `quotaplane brokers` lists those that report"
            )
