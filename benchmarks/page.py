"""Writes docs/measured/benchmarks.md: the measured figures beside the targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.prose import wrapped
from quotaplane.settings.usage_reports import Reports


def write_page(path: Path, found: dict[str, Any], kept: dict[str, Any]) -> None:
    """Write the page from the figures that ``quota_loop.main`` measured.

    ``kept``: by ``compare`` (pairs), ``--only million`` and ``start``.
    """
    pip82, small, growth = found["pip82"], found["small"], found["growth"]
    million = kept["million"]
    least = min(growth)
    loop, plain, alone = pip82["loop"], pip82["plain"], pip82["one_process"]
    quiet, suppressed = pip82["quiet"], pip82["suppressed"]
    ratio = loop["round"] / plain["round"]
    lines = [
        "# Benchmarks of the quota loop",
        "",
        *wrapped(
            "How long a round of the quota job takes, by the number of groups. "
            "[Page benchmarks](page-benchmarks.md) has the page's questions. `make bench` writes "
            "this page; do not edit it."
        ),
        "## PIP-82's own scale",
        "",
        *wrapped(
            "100,000 groups on 5 of 100 brokers each: 500,000 entries in 100 reports a round; "
            "nearly every value moves by up to 10 % from round to round."
        ),
        "| | found | wished |",
        "|---|---|---|",
        "| quota job: Kafka to Kafka, history committed; seconds a round "
        f"| {loop['round']:.2f} | |",
        f"| processor seconds of a round, of all the job's processes | {loop['processor']:.2f} | |",
        f"| one plain process: read, parse, law; seconds a round | {plain['round']:.2f} | |",
        f"| the job's time divided by the plain process's | {ratio:.2f} | at most 3 |",
        f"| the job's processor seconds divided by the plain process's time "
        f"| {loop['processor'] / plain['round']:.2f} | at most 4.5 |",
        f"| one process without Spark that does all the job's work with its code; seconds a round "
        f"| {alone['round']:.2f} | |",
        f"| the job's time on two cores divided by that process's on one "
        f"| {loop['round'] / alone['round']:.2f} | at most 0.7 |",
        f"| a quiet round (all brokers report the same as before), processor seconds "
        f"| {quiet['processor']:.2f} | at most {loop['processor'] / 10:.2f} |",
        "| the same, but brokers report every entry in one of five rounds, as Pulsar's do with a "
        f"use that does not change | {suppressed['processor']:.2f} | at most "
        f"{loop['processor'] / 10:.2f} |",
        f"| peak memory of all the job's processes, GB | {pip82['peak_gb']:.1f} | below 8 |",
        "",
        *wrapped(
            "The plain process keeps no state, no history and no record, and publishes nothing. "
            "The process without Spark runs the same program, writes the same history and "
            "publishes the same limits (`benchmarks/one_process.py`)."
        ),
        *_pairs(kept["pairs"]),
        "Seconds by stage, and processor seconds by process:",
        "",
        *_stages(
            **{"job": loop, "one process": alone, "plain": plain},
            **{"quiet": quiet, "quiet, every fifth": suppressed},
        ),
        *wrapped(
            "The stages of the one process are processor seconds. "
            "[ADR 0026](../adr/0026-no-compiled-kernels.md) has the least that most of the large "
            "ones could take."
        ),
        "## Small: 12 groups, 6 brokers",
        "",
        *wrapped(
            f"A micro-batch of the job takes {small['loop']['round']:.3f} s, one of a query that "
            f"reads the same topic and does nothing {small['nothing']:.3f} s: "
            f"{small['loop']['round'] / small['nothing']:.1f} times as long (wished: at most 3)."
        ),
        *_stages(job=small["loop"]),
        "## Start",
        "",
        *wrapped(
            "From the command to the first limits at a broker, 12 groups on 3 brokers, embedded "
            "topics; and the answer of `quotaplane status` (`make bench-start`):"
        ),
        *_starts(**kept["start"]),
        "## Growth",
        "",
        "| groups | entries a round | seconds a round | microseconds per group |",
        "|---|---|---|---|",
        *(
            f"| {int(groups):,} | {5 * int(groups):,} | {took['round']:.2f} "
            f"| {took['round'] / int(groups) * 1e6:.0f} |"
            for groups, took in growth.items()
        ),
        "",
        *wrapped(
            f"A million groups in 8 shards take {million['round']:.1f} s a round (wished: "
            f"below 25), {million['processor']:.1f} processor seconds, of which the kernel takes "
            f"{million['processor, in the system']:.1f}, and {million['peak_gb']:.1f} GB (wished: "
            "below 10), with 6 GB for Spark's JVM."
        ),
        *_size(growth),
        *wrapped(
            "Wished: the cost of a group does not rise. For comparison: a job that keeps Spark's "
            "state by group instead of by shard, and neither records nor publishes anything, takes "
            f"{found['by_group']:.1f} s a round with {int(least):,} groups. That is "
            f"{found['by_group'] / growth[least]['round']:.0f} times as long as the quota job "
            "takes (wished, at 100,000 groups: at least 20 times)."
        ),
        "## Method",
        "",
        *wrapped(
            "Medians of the warm rounds; a real Kafka server on the same machine, stock Pulsar "
            "reports, four dimensions, the law `max_min`, 4 GB for Spark's JVM. The code is "
            "`benchmarks/quota_loop.py`; `make bench` runs it again."
        ),
        machine("pyspark"),
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def _pairs(pairs: dict[str, Any]) -> list[str]:
    """A commit and the working tree, measured in turn."""
    return [
        *wrapped(
            f"Before and after, at this scale: commit `{pairs['commit']}` and this one in turn "
            "(`make bench-compare`), medians, and the median of the pairs' ratios with their "
            "range:"
        ),
        *pairs["table"],
        "",
    ]


def _size(growth: dict[Any, dict[str, float]]) -> list[str]:
    """How many groups a round can have within an interval of reports."""
    interval_s = Reports().interval_s
    within = [groups for groups, took in growth.items() if took["round"] <= interval_s]
    beyond = [groups for groups, took in growth.items() if took["round"] > interval_s]
    if not within or not beyond:
        return []
    most, least = max(within, key=int), min(beyond, key=int)
    return wrapped(
        f"Sizing: brokers report every `reports.interval_s` ({interval_s:g} s). On this machine a "
        f"round takes less than that with {int(most):,} groups ({growth[most]['round']:.2f} s), "
        f"and longer with {int(least):,} ({growth[least]['round']:.2f} s). Where a round takes "
        "longer, limits follow the use of brokers more slowly "
        "([what to do](../operate/runbook/rounds-hang-or-take-long.md))."
    )


def _starts(**took: dict[str, float]) -> list[str]:
    wished_s = {"new": 15.0, "after kill -9": 12.0, "status": 0.4}
    rows = [
        f"| {kind} | {one['seconds']:.2f} | {wished_s[kind]:g} | {one['processor']:.2f} |"
        for kind, one in took.items()
    ]
    head = ["| | seconds | wished: at most | processor seconds |", "|---|---|---|---|"]
    return [*head, *rows, ""]


def _stages(**took: dict[str, float]) -> list[str]:
    """A table of the stages of each program."""
    rows = [
        f"| {program} | {name} | {seconds:.3f} |"
        for program, stages in took.items()
        for name, seconds in stages.items()
        if name != "round"
    ]
    return ["| program | stage | seconds |", "|---|---|---|", *rows, ""]
