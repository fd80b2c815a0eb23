"""``quotaplane groups restore``: groups as the table's history has them, put back in one change."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import datetime, timezone

from quotaplane.point_in_time import parse_since
from quotaplane.registry.restore import Restored, restore_groups
from quotaplane.settings import History


def add_restore_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``restore`` takes."""
    parser.add_argument("group", nargs="*", metavar="GROUP")
    parser.add_argument(
        "--from-history", action="store_true", required=True, help="from the table's own history"
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--at", metavar="TIME", help="as it was then: 2026-03-01T12:00:00Z, or an age: 2h"
    )
    when.add_argument(
        "--version", type=int, metavar="N", help="as of a version that history prints"
    )
    parser.add_argument("--dry-run", action="store_true", help="print it, and change nothing")


def restore(
    history: History, args: argparse.Namespace, by: str, warn: Callable[[str], None]
) -> list[Restored]:
    """Put groups back as ``args`` say, all of them or none; returns what was changed.

    Raises:
        InputError: the history does not have what is asked for; nothing was written.
        TableChangedError: others change the table all the time.
        HistoryError: the table can't be read or written.
    """
    now = datetime.now(timezone.utc)
    return restore_groups(
        history,
        args.group,
        by,
        at=None if args.at is None else parse_since(args.at, now, option="--at"),
        version=args.version,
        dry_run=args.dry_run,
        warn=warn,
    )
