"""``quotaplane upgrade``: brings the tables of an earlier version's history up to this one."""

from __future__ import annotations

import argparse

from quotaplane.cli.places import add_place_options, history_of
from quotaplane.history.store import place, require_history
from quotaplane.history.table_upgrade import upgrade


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_place_options(parser)


def run(args: argparse.Namespace) -> int:
    """Upgrade the tables; prints a line for each.

    Raises:
        ConfigError: the settings are wrong, or there is no history.
        HistoryError: a table can't be read or written, or a job is running.
    """
    history = history_of(args)
    require_history(history)
    if not upgrade(history, print):
        print(f"the history at {place(history)} is up to date")
    return 0
