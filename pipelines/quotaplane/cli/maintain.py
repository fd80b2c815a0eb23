"""``quotaplane maintain``: maintains the history and the embedded transport's topics."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, fields
from datetime import datetime, timezone

from quotaplane.cli.history_options import add_history_options, existing_history
from quotaplane.console.answers import add_answer_options, print_answer
from quotaplane.console.option_parser import number
from quotaplane.console.terminal import warn
from quotaplane.errors import ConfigError, DamagedTableError
from quotaplane.history.disk_reserve import keep_reserves, with_reserve
from quotaplane.history.maintenance import KEEP_DAYS, Maintained, maintain
from quotaplane.query.usage_by_day import roll_up
from quotaplane.settings import DeltaTransport, load_settings
from quotaplane.transport.delta import maintain as maintain_topics

_EPILOG = """\
The jobs may run meanwhile. With --conf and the embedded transport, its topics are maintained, too.
Each file's bytes are compared with its checksum once a day; exit code 4: some are damaged.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    add_history_options(parser)
    parser.add_argument(
        "--keep-days",
        type=number,
        metavar="N",
        default=float(KEEP_DAYS),
        help=f"expire rows of rounds older than N days ({KEEP_DAYS})",
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Maintain, and print a row (as JSON, an object) per table of the history.

    Raises:
        ConfigError: the options or the settings are wrong, or there is no history.
        HistoryError: a table is missing, can't be written, or has damaged files.
    """
    if not 0 < args.keep_days <= 36500:
        raise ConfigError(
            f"--keep-days must be more than 0 and at most 36500, not {args.keep_days:g}"
        )
    settings = load_settings(args.conf) if args.conf else None
    history = existing_history(args)
    now = datetime.now(timezone.utc)
    with_reserve(history, lambda: roll_up(history, now))  # before the usage expires
    damaged: list[DamagedTableError] = []
    done = maintain(history, now, keep_days=args.keep_days, report=damaged.append)
    columns = [field.name for field in fields(Maintained)]
    print_answer(
        args,
        lambda: "\n".join(json.dumps(asdict(each)) for each in done),
        lambda: (columns, [tuple(asdict(each).values()) for each in done]),
    )
    if settings is not None and isinstance(settings.transport, DeltaTransport):
        transport = settings.transport
        with_reserve(history, lambda: maintain_topics(transport))
    if settings is not None:
        keep_reserves(history)
    for error in damaged[1:]:
        warn(str(error))
    if damaged:
        raise damaged[0]
    return 0
