"""The options of every command that works on a history: ``--conf FILE`` or ``--history PATH``."""

from __future__ import annotations

import argparse

from quotaplane.settings import History, load_settings


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add both options; one of them must be given."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--conf", metavar="FILE", help="the job's settings; history.path is used")
    where.add_argument("--history", metavar="PATH", help="folder of the history's tables")


def history_of(args: argparse.Namespace) -> History:
    """The history that the options name.

    Raises:
        ConfigError: the settings are wrong.
    """
    return History(path=args.history) if args.history else load_settings(args.conf).history
