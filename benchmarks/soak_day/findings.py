"""From the samples of a day to what is promised about it: a table, and whether it holds. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from benchmarks.soak_day.churn import ROUNDS_PER_HOUR, entries
from benchmarks.soak_day.samples import slope, spread, without_warm_up

MOST_MB_PER_HOUR: Final = 1.0
MOST_SPREAD: Final = 0.05
_FEWEST: Final = 12
"""Samples of a life that can be judged."""


def findings(lines: Sequence[str]) -> tuple[str, bool]:
    """A text with all figures, and whether all are as promised."""
    samples = [json.loads(line) for line in lines]
    rows, good = [], True
    for name in samples[0]["use"]:
        life = _last_life(samples, name)
        if len(life) < _FEWEST:
            rows.append(f"{name}: lived too short to be judged")
            continue
        hours = without_warm_up(np.array([sample["hour"] for sample in life]))
        memory, descriptors, threads = (
            without_warm_up(np.array([sample["use"][name][1 + which] for sample in life]))
            for which in range(3)
        )
        grows = slope(hours.tolist(), memory.tolist())
        flat = _is_flat(hours, descriptors) and _is_flat(hours, threads)
        good &= grows < MOST_MB_PER_HOUR and flat
        rows.append(
            f"{name}: {grows:+.2f} MB an hour over {hours[-1] - hours[0]:.1f} h, at the end "
            f"{memory[-1]:.0f} MB; descriptors {descriptors.min():.0f} to {descriptors.max():.0f}, "
            f"threads {threads.min():.0f} to {threads.max():.0f}"
        )
    for what in ("state_bytes", "metrics", "limited", "disk"):
        values = [sample[what] for sample in samples[len(samples) // 6 :]]
        rows.append(f"{what}: {min(values):.4g} to {max(values):.4g}, last {values[-1]:.4g}")
    text, constant = _history(samples)
    return "\n".join([*rows, text]), good and constant


def _last_life(samples: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The samples since the process was started for the last time."""
    pid = samples[-1]["use"][name][0]
    return [sample for sample in samples if sample["use"][name][0] == pid]


def _is_flat(hours: Any, values: Any) -> bool:
    """No trend: over all the time less than half a descriptor or thread."""
    return abs(slope(hours.tolist(), values.tolist())) * (hours[-1] - hours[0]) < 0.5


def _history(samples: Sequence[dict[str, Any]]) -> tuple[str, bool]:
    """Bytes of live files that a round adds, by hour.

    Brokers and groups come and go, so rounds have more and fewer entries: what must be constant are
    the bytes of a round of a mean number of entries.
    """
    kept = [sample for sample in samples if "live_bytes" in sample]
    if len(kept) < 4:
        return "history: too few hours to be judged", True
    total = np.array([sum(sample["live_bytes"].values()) for sample in kept], float)
    ends = [round(sample["hour"] * ROUNDS_PER_HOUR) + 1 for sample in kept]
    of_hours = np.array(
        [sum(map(entries, range(*hour))) for hour in itertools.pairwise(ends)], float
    )
    a_round = of_hours.sum() / (ends[-1] - ends[0])
    per_round = (np.diff(total) / of_hours * a_round)[1:]
    rows = [
        f"history: {np.median(per_round):.0f} bytes for a round of {a_round:.0f} entries, by hour "
        f"within {spread(per_round.tolist()):.1%} (second hour to the last)",
        f"  by hour: {', '.join(f'{each:.0f}' for each in per_round)}",
        f"  folder at the end: {kept[-1]['folder_bytes'] / 1e6:.0f} MB",
    ]
    return "\n".join(rows), spread(per_round.tolist()) <= MOST_SPREAD
