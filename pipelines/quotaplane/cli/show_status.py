"""``quotaplane status``: the state of the job, its groups and its brokers, on one screen."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, Final

import numpy as np

from quotaplane.cli.history_options import add_history_options, existing_history
from quotaplane.console.answers import add_answer_options, json_of, print_answer, table_text
from quotaplane.console.option_parser import whole_number
from quotaplane.errors import ConfigError
from quotaplane.groups.standing import OVER_QUOTA, UNFAIR
from quotaplane.history.store import location_of
from quotaplane.laws.explain import short
from quotaplane.model import BoolArray
from quotaplane.query.cluster_status import (
    RoundStatus,
    broker_status,
    job_status,
    rejected_reasons,
)
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_status import (
    GROUP_COLUMNS,
    GroupStatus,
    group_status,
    standing_leases,
)

TOP: Final = 20
_LATE_S: Final = 60.0
_STATUSES: Final = ("live", "stale", "gone")

_EPILOG: Final = """\
used, limits and demand are sums over the group's brokers and the groups below it, per second;
used % is of the quota: above 105 % a group is over it. demand is of the brokers whose demand is
known. "saturated" brokers want more than their limit, by 5 % or an amount that is not known. worst:
the least limit of a broker that wants more, in % of what it wants or of its fair share, whichever
is less; below 90 % the group is unfair. The numbers are as of the newest snapshot, a few seconds
old.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    add_history_options(parser)
    parser.add_argument(
        "--top",
        type=whole_number,
        metavar="N",
        default=TOP,
        help=f"how many groups to list ({TOP})",
    )
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status.

    Raises:
        ConfigError: an option or the settings are wrong, or there is no history.
        HistoryError: the history can't be read.
    """
    if args.top < 0:
        raise ConfigError(f"--top must be 0 or more, not {args.top}")
    history = existing_history(args)
    now = datetime.now(timezone.utc)
    with DuckDBEngine(history) as engine:
        job = job_status(engine, now)
        groups = group_status(standing_leases(engine, now))
        brokers = broker_status(engine, now)
        reasons = rejected_reasons(engine, now)
    summary = {**_summary(groups), **_broker_counts(brokers)}
    listed = groups.rows(args.top)
    rows = [tuple(row.values()) for row in listed]

    def as_json() -> str:
        answer = {"at": now, "history": location_of(history), "job": job and asdict(job)}
        answer["rejected_by_reason"] = reasons
        return json_of({**answer, **summary, "groups": listed})

    def as_table() -> str:
        head = [
            f"history  {location_of(history)}",
            *_job_lines(job, reasons),
            *_summary_lines(summary),
        ]
        if not rows:
            return "\n".join(head)
        return "\n".join([*head, "", table_text(_HEADINGS, [_shown(row) for row in rows])])

    print_answer(args, as_json, as_table, lambda: (GROUP_COLUMNS, rows))
    return 0


def _summary(groups: GroupStatus) -> dict[str, Any]:
    def count(chosen: BoolArray) -> int:
        return len(set(groups.group[chosen].tolist()))

    shares = groups.worst_share[~np.isnan(groups.worst_share)]
    return {
        "groups_with_quota": len(set(groups.group.tolist())),
        "groups_over_quota": count(groups.used_part > OVER_QUOTA),
        "groups_throttled": count(groups.throttled_per_s > 0.0),
        "groups_unfair": count(groups.worst_share < UNFAIR),
        "worst_share": float(shares.min()) if len(shares) else None,
    }


def _broker_counts(brokers: list[dict[str, Any]]) -> dict[str, int]:
    counts = Counter(broker["status"] for broker in brokers)
    return {f"brokers_{name}": counts[name] for name in _STATUSES}


def _job_lines(job: RoundStatus | None, reasons: dict[str, int]) -> list[str]:
    if job is None:
        return ["job      has not run a round yet"]
    parts = [f"last round {_age(job.age_s)} ago (epoch {job.epoch}, round {job.seq})"]
    if job.duration_s is not None:
        parts.append(f"took {job.duration_s:.1f} s")
    if job.lag_s is not None:
        parts.append(f"newest report was {job.lag_s:.1f} s old")
    if job.law:
        parts.append(f"law {job.law}")
    outdated = f"{job.outdated} outdated, " if job.outdated else ""
    late = " <- is it running?" if job.age_s > _LATE_S else ""
    return [
        f"job      {', '.join(parts)}{late}",
        f"a minute {job.rounds} rounds, {job.reports} reports used, {job.rejected} rejected, "
        f"{outdated}{job.limits} limits sent",
        *(
            [f"rejected {' '.join(f'{name}={n}' for name, n in reasons.items())}"]
            if reasons
            else []
        ),
    ]


def _summary_lines(summary: dict[str, Any]) -> list[str]:
    brokers = ", ".join(f"{summary[f'brokers_{name}']} {name}" for name in _STATUSES)
    worst = summary["worst_share"]
    is_unfair = worst is not None and worst < UNFAIR
    least = f" (the least has {100 * worst:.0f} %)" if is_unfair else ""
    return [
        f"brokers  {brokers}",
        f"groups   {summary['groups_with_quota']} with a quota, {summary['groups_over_quota']} "
        f"over it, {summary['groups_throttled']} throttled, "
        f"{summary['groups_unfair']} unfair{least}",
    ]


_HEADINGS: Final = (
    *("group", "dimension", "quota", "used", "used %", "limits", "demand", "saturated"),
    *("throttled", "brokers", "stale", "worst %", "mode"),
)


def _shown(row: tuple[Any, ...]) -> list[Any]:
    named = dict(zip(GROUP_COLUMNS, row, strict=True))
    for name in ("quota_per_s", "used_per_s", "limits_per_s", "demand_per_s", "throttled_per_s"):
        named[name] = float(short(named[name]))
    named["used_part"] = float(f"{100 * named['used_part']:.0f}")
    share = named["worst_share"]
    named["worst_share"] = None if share is None else float(f"{100 * share:.0f}")
    return list(named.values())


def _age(seconds: float) -> str:
    """A duration as a short text.

    >>> _age(12.3), _age(200), _age(10_000), _age(200_000)
    ('12 s', '3 min', '2.8 h', '2.3 d')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6_000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 150_000 else f"{seconds / 86_400:.1f} d"
