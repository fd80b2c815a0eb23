"""``./spark-submit.sh maintain``: maintains the history and the embedded transport's topics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone

from quotaplane.errors import ConfigError
from quotaplane.history.maintenance import KEEP_DAYS, maintain
from quotaplane.history.store import require_history
from quotaplane.option_parser import OptionParser
from quotaplane.settings import DeltaTransport, History, load_settings
from quotaplane.transport.base import REPORTS_AND_LIMITS
from quotaplane.transport.delta import maintain as maintain_topics


def main(argv: Sequence[str]) -> int:
    """Maintain, and print a JSON object per table of the history.

    Raises:
        ConfigError: the options or the settings are wrong, or there is no history.
        HistoryError: a table is missing or can't be written.
    """
    parser = OptionParser(
        prog="./spark-submit.sh maintain",
        description="Expire, compact and vacuum the history, and the embedded transport's topics; "
        "the job may run meanwhile.",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--conf", metavar="FILE", help="the job's settings")
    where.add_argument("--history", metavar="PATH", help="the history's folder; no topics")
    parser.add_argument(
        "--keep-days",
        type=float,
        metavar="N",
        default=float(KEEP_DAYS),
        help=f"expire rows of rounds older than N days ({KEEP_DAYS})",
    )
    args = parser.parse_args(argv)
    if not 0 < args.keep_days <= 36500:
        raise ConfigError(
            f"--keep-days must be more than 0 and at most 36500, not {args.keep_days:g}"
        )
    settings = load_settings(args.conf) if args.conf else None
    history = settings.history if settings else History(path=args.history)
    require_history(history)
    for done in maintain(history, datetime.now(timezone.utc), keep_days=args.keep_days):
        print(json.dumps(asdict(done)), flush=True)
    if settings is not None and isinstance(settings.transport, DeltaTransport):
        throttle = settings.throttle
        topics = (*REPORTS_AND_LIMITS, throttle.events_topic, throttle.decisions_topic)
        maintain_topics(settings.transport, topics=topics)
    return 0
