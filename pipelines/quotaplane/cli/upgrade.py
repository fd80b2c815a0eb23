"""``quotaplane upgrade``: brings the tables of an earlier version's history up to this one."""

from __future__ import annotations

import argparse

from quotaplane.history.store import place, require_history
from quotaplane.history.table_upgrade import upgrade
from quotaplane.settings import History, load_settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--conf", metavar="FILE", help="the job's settings; history.path is used")
    where.add_argument("--history", metavar="PATH", help="folder of the history's tables")


def run(args: argparse.Namespace) -> int:
    """Upgrade the tables; prints a line for each.

    Raises:
        ConfigError: the settings are wrong, or there is no history.
        HistoryError: a table can't be read or written, or a job is running.
    """
    history = History(path=args.history) if args.history else load_settings(args.conf).history
    require_history(history)
    if not upgrade(history, print):
        print(f"the history at {place(history)} is up to date")
    return 0
