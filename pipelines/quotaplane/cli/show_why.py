"""``quotaplane why GROUP [BROKER] [--at TIME]``: the reasons of brokers' limits."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Any

from quotaplane.cli.history_options import add_history_options, existing_history
from quotaplane.console.answers import add_answer_options, json_lines, print_answer
from quotaplane.laws.explain import short
from quotaplane.parsing.point_in_time import parse_since
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.limit_reasons import why
from quotaplane.texts import utc_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("broker", nargs="?", metavar="BROKER", help="one broker; without: all")
    parser.add_argument(
        "--at", metavar="TIME", help="2026-03-01T12:00:00Z, or how long ago: 30s, 15m, 2h, 7d"
    )
    add_history_options(parser)
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the limits at a time, each with its reason and the inputs of that.

    Raises:
        ConfigError: the settings are wrong, or there is no history.
        InputError: there was no limit at that time; the message says why.
        HistoryError: the history can't be read.
    """
    now = datetime.now(timezone.utc)
    moment = parse_since(args.at, now, "--at") if args.at is not None else now
    with DuckDBEngine(existing_history(args)) as engine:
        found = why(engine, args.group, args.broker, moment)
    columns = list(found[0]) if found else []
    rows = [tuple(row.values()) for row in found]
    print_answer(
        args,
        lambda: json_lines(found),
        lambda: "\n\n".join(map(_in_words, found)),
        lambda: (columns, rows),
    )
    return 0


def _in_words(limit: dict[str, Any]) -> str:
    """A limit as a paragraph."""
    unit = limit["dimension"].rpartition("_")[2]
    rate = (
        "unlimited" if limit["limit_per_s"] is None else f"{short(limit['limit_per_s'])} {unit}/s"
    )
    enforced = "" if limit["enforced"] else " (computed only, not enforced)"
    lines = [f"{limit['broker']}  {limit['dimension']}: {rate}{enforced}", f"  {limit['reason']}"]
    quota = limit["group_quota_per_s"]
    if quota is not None:
        by = f", set by {limit['quota_changed_by']} at {utc_text(limit['quota_changed_at'])}"
        lines.append(f"  the group's quota: {short(quota)}{by}")
    if quota is not None and limit["quota_per_s"] not in (None, quota):
        lines.append(
            f"  the law divided {short(limit['quota_per_s'])}: the group's share in its tree"
        )
    demand = limit["demand_per_s"]
    wanted = "not known: it used all of its limit" if demand is None else short(demand)
    lines.append(f"  its demand then: {wanted}")
    if limit["used_per_s"] is not None:
        refused = limit["throttled_per_s"]
        more = "" if refused is None else f", {short(refused)} refused"
        lines.append(
            f"  its latest report ({utc_text(limit['reported_at'])}): {short(limit['used_per_s'])} "
            f"used{more}"
        )
    lines += [f"  {text}" for text in limit["administrators_rates"]]
    law = f"law {limit['law']}, " if limit["law"] else ""
    lines.append(
        f"  decided {utc_text(limit['since'])} "
        f"({law}epoch {limit['epoch']}, round {limit['seq']}), leases of {limit['lease_s']:g} s"
    )
    return "\n".join(lines)
