"""Options of the commands that read the balancer's record."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone

from quotabalance.record.recorded_rounds import RecordedRound, read_record
from quotaplane.cli.history_options import add_history_options, history_of
from quotaplane.console.answers import add_answer_options
from quotaplane.errors import InputError
from quotaplane.history.store import require_history
from quotaplane.parsing.point_in_time import check_order, parse_since, parse_until


def add_record_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select rounds."""
    add_history_options(parser)
    parser.add_argument("--cluster", metavar="NAME", help="if the record has several")
    parser.add_argument("--since", metavar="TIME", help="2026-03-01T12:00:00Z, or 30s, 15m, 2h, 7d")
    parser.add_argument("--until", metavar="TIME", help="as --since; without: all")
    add_answer_options(parser)


def times_of(args: argparse.Namespace) -> tuple[datetime | None, datetime | None]:
    """Since and until.

    Raises:
        InputError: one is no time, or they are the wrong way round.
    """
    now = datetime.now(timezone.utc)
    since = parse_since(args.since, now) if args.since is not None else None
    until = parse_until(args.until, now) if args.until is not None else None
    check_order(since, until)
    return since, until


def recorded_rounds(args: argparse.Namespace) -> list[RecordedRound]:
    """The rounds that the options name.

    Raises:
        InputError, ConfigError, HistoryError: an option is wrong, or there are none.
    """
    history = history_of(args)
    require_history(history, "the balance job creates one")
    found = list(read_record(history, args.cluster, *times_of(args)))
    if not found:
        raise InputError(
            "the record has no rounds in that time from one on that has all brokers' loads "
            "(there is one each hour, and at the start of a run)"
        )
    return found
