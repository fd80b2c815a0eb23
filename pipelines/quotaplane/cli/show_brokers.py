"""``quotaplane brokers``: the brokers, whether they report, and the limits that they reach."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from quotaplane.cli.history_options import add_history_options, history_of
from quotaplane.console.answers import add_answer_options, json_lines, print_answer
from quotaplane.history.store import require_history
from quotaplane.query.cluster_status import broker_status
from quotaplane.query.duckdb_engine import DuckDBEngine


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_history_options(parser)
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print a row per broker.

    Raises:
        ConfigError: the settings are wrong, or there is no history.
        HistoryError: the history can't be read.
    """
    history = history_of(args)
    require_history(history)
    with DuckDBEngine(history) as engine:
        found = broker_status(engine, datetime.now(timezone.utc))
    rows = [tuple(row.values()) for row in found]
    columns = list(found[0]) if found else ["broker"]
    print_answer(args, lambda: json_lines(found), lambda: (columns, rows))
    return 0
