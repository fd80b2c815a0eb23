"""Writes docs/measured/overload.md: the measured figures beside those that were wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.overload.figures import Figures
from benchmarks.overload.phases import (
    BROKERS,
    BUSY_SHARE,
    FAULTS,
    GROUPS,
    IN_TIME_S,
    INTERVAL_S,
    NORMAL,
    PAIRS,
    SPREAD,
    SWAP_S,
)
from benchmarks.prose import wrapped, wrapped_all

Kept: TypeAlias = Mapping[str, Any]
"""Figures by kind of run (``kafka``, ``without_spark``, ``enforcer``) and phase; ``machine``."""

_HEAD: Final = (
    "| phase | goodput | median, s | useful again, s | committed, s (median, max) "
    "| published, s (median, max) | memory, GB |",
    "|---|---|---|---|---|---|---|",
)
_ENFORCER_HEAD: Final = (
    "| new topics a second | with a rate at the end | first rate within 5 s "
    "| others, quiet, s (max) | others, flood, s (median, max) | processor time for a topic, ms "
    "| reads, writes a second (max) |",
    "|---|---|---|---|---|---|---|",
)


def write_page(path: Path, kept: Kept) -> Path:
    """Write the page; returns its path."""
    path.write_text(text(kept), encoding="utf-8")
    return path


def text(kept: Kept) -> str:
    """The page."""
    lines = [
        "# Overload",
        "",
        *wrapped(
            "How the quota job and the enforcer hold up under more load than they can carry, for "
            "readers who size or operate them. [Reliability](../operate/reliability.md) says what "
            "is promised. `make overload` writes this page; do not edit it."
        ),
    ]
    if "kafka" in kept:
        lines += ["## The job on a real Kafka", "", *_table(kept["kafka"])]
    if "without_spark" in kept:
        lines += [
            "## The job's own code alone",
            "",
            *wrapped(
                "Without Kafka, Spark and their JVMs, in virtual time: a round takes as long as "
                "its processor time, so goodput does not depend on other programs on the machine, "
                "and the pause is one of ten minutes. Only *committed* is in real seconds; "
                "*memory* is that of the job and its load."
            ),
            *_table(kept["without_spark"]),
        ]
    if "enforcer" in kept:
        lines += [
            "## The enforcer: many new topics",
            "",
            *wrapped(
                "Topics are created at a constant pace for 40 s in one group, and get their first "
                "rate from the enforcer (default budgets: 100 writes and 200 reads of rates a "
                "second). Pulsar's REST API is in memory, over real HTTP. *Others*: seconds until "
                "the 20 busy topics of another group, whose limit changes every 5 s, have their "
                "new rates; wanted: at most 5."
            ),
            *_ENFORCER_HEAD,
            *map(_enforcer_row, kept["enforcer"].values()),
            "",
        ]
    lines += [
        "## Where it falls short",
        "",
        *wrapped_all(
            "- A paused job follows no swap. Limits of a quota that changed meanwhile are "
            "published after the pause.",
            "- At the enforcer's budget of writes and above, new topics wait for their first rate "
            "in turn. Topics that have one are not delayed.",
        ),
        *_method(),
        kept["machine"],
        "",
        "## Run it again",
        "",
        *wrapped(
            "`make overload` measures all and writes `docs/measured/overload.json` (also the "
            "rounds and the machine's load average) and this page. "
            "`python -m benchmarks.overload --page` writes only this page, from that file."
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _method() -> list[str]:
    return [
        "## Method",
        "",
        *wrapped(
            f"Normal load is {BROKERS} brokers, {GROUPS:,} groups on {SPREAD} brokers each and a "
            f"report each {INTERVAL_S:g} s: {BROKERS / INTERVAL_S:g} reports and "
            f"{GROUPS * SPREAD / INTERVAL_S:,.0f} entries a second. It precedes and follows each "
            f"phase. {PAIRS} more groups are on two brokers each, of which one wants more than the "
            f"quota and the other nothing; each {SWAP_S:g} s they swap."
        ),
        *wrapped_all(
            f"- *goodput*: the share of swaps after which, within {IN_TIME_S:g} s (4 report "
            f"intervals), the busy broker may use {BUSY_SHARE:.0%} of the quota, and both together "
            "no more than all of it. A job that stands still has 0 %. Wanted: 80 % of normal.",
            "- *median*: seconds from a swap to these limits, of those in time.",
            "- *useful again*: seconds from the end of the phase until 95 % of the swaps are "
            "followed in time, and stay so. Wanted: at most 30.",
            "- *committed*, *published*: another process changes a quota every 5 s; seconds until "
            "the change is in the table (wanted: at most 5), and until limits made of it are in "
            "the limits topic.",
            "- *job paused*: SIGSTOP for a phase. The reports of ten minutes then come at once; "
            "all brokers have expired, and almost all that waits is too old to use. The job's "
            "leases of 120 s have not ended.",
        ),
    ]


def _table(kept: Mapping[str, Any]) -> list[str]:
    """The phases that were run; the others are named."""
    phases = (NORMAL, *FAULTS)
    rows = [_row(each.name, Figures(**kept[each.key])) for each in phases if each.key in kept]
    missing = [each.name for each in phases if each.key not in kept]
    words = wrapped(f"Not measured yet: {', '.join(missing)}.") if missing else []
    return [*_HEAD, *rows, "", *words]


def _row(name: str, found: Figures) -> str:
    again = "never" if found.useful_after_s == float("inf") else f"{found.useful_after_s:.0f}"
    normal = found.phase == NORMAL.key
    cells = (
        name,
        f"{found.goodput:.0%}",
        "" if found.followed_p50_s == float("inf") else f"{found.followed_p50_s:.1f}",
        "" if normal else again,
        f"{found.commit_p50_s:.1f}, {found.commit_max_s:.1f}",
        f"{found.publish_p50_s:.1f}, {found.publish_max_s:.1f}",
        f"{found.peak_gb:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _enforcer_row(found: Mapping[str, Any]) -> str:
    cells = (
        found["topics_per_s"],
        f"{found['topics_with_a_rate'] / found['topics']:.0%}",
        f"{found['rated_within_5_s']:.0%}",
        found["others_quiet_max_s"],
        f"{found['others_flood_p50_s']}, {found['others_flood_max_s']}",
        found["cpu_ms_per_topic"],
        f"{found['reads_max_per_s']}, {found['writes_max_per_s']}",
    )
    return f"| {' | '.join(map(str, cells))} |"
