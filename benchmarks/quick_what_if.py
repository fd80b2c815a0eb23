"""Measures one answer of the quick what-if, from the period in memory to the JSON.

.venv/bin/python -m benchmarks.quick_what_if
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import median

import numpy as np
import pyarrow as pa

from quotaplane.console.option_parser import OptionParser
from quotaplane.model import DIMENSIONS, RATE_COLUMNS
from quotaplane.query.buckets import Grid
from quotaplane.registry.rows_after import ROWS
from quotaplane.replay.period import Period
from quotaplane.replay.quick_what_if import (
    KnownPeriod,
    SteadyConfig,
    groups_of,
    steady_config,
    steady_limits,
)
from quotaplane.server.request_parts import json_answer
from quotaplane.server.what_if_routes import compared
from quotaplane.settings import parse_settings
from quotaplane.streams.script import run_job

_T = 300
_CASES = {"a group on 5 brokers": (0, 5), "a group on 100": (0, 100), "50 groups on 20": (50, 20)}
"""Children of the group, and brokers of each."""


def rows_of(children: int, quota: float) -> pa.Table:
    """A group with two quotas, and its children."""
    names = ["acme", *(f"acme::group-{n:02}" for n in range(children))]
    given = {"group": names, **{rate: [quota] * len(names) for rate in RATE_COLUMNS[:2]}}
    return pa.table(
        {f.name: given.get(f.name, pa.nulls(len(names), f.type)) for f in ROWS}, schema=ROWS
    )


def known(children: int, brokers: int) -> tuple[KnownPeriod, SteadyConfig]:
    """A period in which two dimensions are limited and half of the brokers want more."""
    settings = parse_settings(
        {
            "transport": {"kind": "delta", "path": "unused"},
            "history": {"path": "unused"},
            "checkpoint": "unused",
        }
    )
    rows = rows_of(children, 1000.0)
    groups = groups_of(rows)
    leaf = np.flatnonzero(groups.parent >= 0) if children else np.zeros(1, np.int64)
    n, rng = len(leaf) * brokers, np.random.default_rng(1)
    used = rng.uniform(0.0, 2000.0 / n, (len(DIMENSIONS), n, _T))
    unknown = np.full(used.shape, np.inf)
    limit = np.where(rng.random(used.shape) < 0.5, used, used * 2)
    limit[2:] = np.inf
    period = Period(
        since_ms=0,
        until_ms=_T * 10_000,
        grid=Grid(0, 10_000, _T),
        brokers=tuple(f"broker-{b:03}" for b in range(brokers)),
        group=np.repeat(np.sort(leaf), brokers),
        broker=np.tile(np.arange(brokers), len(leaf)),
        quota=np.repeat(groups.quota[:, :, None], _T, axis=2),
        used=used,
        throttled=np.full(used.shape, np.nan),
        limit=limit,
        demand=unknown,
        used_ms=np.full((n, _T), 10_000.0),
    )
    limits = steady_limits(period, groups, period.quota, steady_config(settings))
    return KnownPeriod(period, rows, groups, limits), steady_config(settings)


def main(argv: Sequence[str]) -> int:
    """Print the medians."""
    parser = OptionParser(prog="python -m benchmarks.quick_what_if", description=__doc__)
    parser.parse_args(argv)
    print(f"load average {os.getloadavg()[0]:.1f}; {_T} points, two dimensions with quotas")
    for name, (children, brokers) in _CASES.items():
        (period, config), took = known(children, brokers), list[float]()
        for quota in range(500, 900, 20):
            begun = time.perf_counter()
            answer = json_answer(
                compared(period, "acme", rows_of(children, float(quota)), config, "max_min")
            )
            took.append((time.perf_counter() - begun) * 1000.0)
        print(
            f"{name:<24}{median(took):>8.1f} ms (at most {max(took):.1f}), "
            f"{len(answer.body) / 1000:.0f} kB"
        )
    return 0


if __name__ == "__main__":
    run_job(main)
