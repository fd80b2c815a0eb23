"""``quotaplane brokers``: the brokers, whether they report, and the limits that they reach."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from quotaplane.cli.history_options import add_history_options, existing_history
from quotaplane.console.answers import add_answer_options, print_rows
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
    with DuckDBEngine(existing_history(args)) as engine:
        found = broker_status(engine, datetime.now(timezone.utc))
    print_rows(args, found, [*found[0]] if found else ["broker"])
    return 0
