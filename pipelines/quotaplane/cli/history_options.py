"""The options of every command that works on a history: ``--conf FILE`` or ``--history PATH``."""

from __future__ import annotations

import argparse

from pydantic import ValidationError

from quotaplane.errors import ConfigError
from quotaplane.history.store import require_history
from quotaplane.parsing.strict_json import explain
from quotaplane.settings import History, load_settings


def add_history_options(parser: argparse.ArgumentParser) -> None:
    """Add both options; one of them must be given."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--conf", metavar="FILE", help="the job's settings; history.path is used")
    where.add_argument("--history", metavar="PATH", help="folder of the history's tables")


def history_of(args: argparse.Namespace) -> History:
    """The history that the options name.

    Raises:
        ConfigError: the settings, or the path, are wrong.
    """
    return load_settings(args.conf).history if args.history is None else history_at(args.history)


def existing_history(args: argparse.Namespace) -> History:
    """The history that the options name, which must exist.

    Raises:
        ConfigError: the settings, or the path, are wrong; or there is no history.
        HistoryError: it can't be looked at.
    """
    history = history_of(args)
    require_history(history)
    return history


def history_at(path: str) -> History:
    """The history at ``--history PATH``.

    Raises:
        ConfigError: no folder can have this path.
    """
    try:
        return History(path=path)
    except ValidationError as error:
        raise ConfigError(f"--history: {explain(error.errors()[0], path)}") from None
