"""Writes docs/benchmarks.md: the measured figures beside the targets."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any


def write_page(path: Path, found: dict[str, Any]) -> None:
    """Write the page from the figures that ``quota_loop.main`` measured."""
    pip82, small, growth = found["pip82"], found["small"], found["growth"]
    least = min(growth)
    loop, plain = pip82["loop"], pip82["plain"]
    lines = [
        "# Benchmarks of the quota loop",
        "",
        "Written by `make bench`; nothing here is edited by hand. What is measured and how is told",
        "in `benchmarks/quota_loop.py`. Medians of the warm rounds; a real Kafka server on the",
        "same machine, stock Pulsar reports, four dimensions, the law `max_min`; 4 GB for Spark's",
        "JVM.",
        "",
        f"Machine: {os.cpu_count()} cores, Linux {platform.machine()}; Python "
        f"{platform.python_version()}, PySpark {version('pyspark')}; "
        f"{datetime.now(timezone.utc):%Y-%m-%d}.",
        "",
        "## PIP-82's own scale",
        "",
        "100,000 groups, 100 brokers, each group on 5 of them: 500,000 entries in 100 reports a",
        "round; nearly every value moves by up to 10 % from round to round.",
        "",
        "| | seconds a round | ratio | wished |",
        "|---|---|---|---|",
        f"| quota job: Kafka to Kafka, history committed | {loop['round']:.2f} "
        f"({pip82['loop_range'][0]:.2f} to {pip82['loop_range'][1]:.2f}) | 1 | |",
        f"| one plain process: read, parse, law; no state, no history, nothing published "
        f"| {plain['round']:.2f} | job is {loop['round'] / plain['round']:.2f} x as long "
        "| at most 2.5 x |",
        "",
        "What the job does and the plain process does not: it carries the reports through the JVM",
        "into Python workers and through a shuffle, reads and writes the state of half a million",
        "rows, holds every usage against the limit it was under, packs and publishes a limit for",
        "every entry, and writes a million rows of history. None of that is in the plain process's",
        "time.",
        "",
        f"Peak memory of all the job's processes together: {pip82['peak_gb']:.1f} GB (wished: "
        "below 8 GB).",
        "",
        "Where the job's time goes:",
        "",
        *_stages(loop),
        "",
        "Where the plain process's time goes:",
        "",
        *_stages(plain),
        "",
        "## Small: 12 groups, 6 brokers",
        "",
        "| | seconds a micro-batch |",
        "|---|---|",
        f"| quota job | {small['loop']['round']:.3f} |",
        f"| a query that reads the same topic and does nothing | {small['nothing']:.3f} |",
        f"| ratio (wished: at most 4) | {small['loop']['round'] / small['nothing']:.1f} |",
        "",
        *_stages(small["loop"]),
        "",
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
        "Wished: the cost of a group does not rise.",
        "",
        "The same job keyed by group, as one would write it first (no history, nothing published), "
        f"with {least:,} groups: {found['by_group']:.1f} s a round, "
        f"{found['by_group'] / growth[least]['round']:.0f} times the quota job's (wished, at "
        "100,000: at least 20 times).",
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def _stages(took: dict[str, float]) -> list[str]:
    rows = [f"| {name} | {seconds:.3f} |" for name, seconds in took.items() if name != "round"]
    return ["| stage | seconds |", "|---|---|", *rows]
