"""The tables of docs/metrics.md: ``python -m quotaplane.metrics.reference`` prints them."""

from __future__ import annotations

from typing import Final

from quotaplane.metrics.declaration import Metric
from quotaplane.metrics.of_jobs import BALANCE_JOB, BUILD_INFO, EVERY_JOB, QUOTA_JOB
from quotaplane.metrics.of_programs import ENFORCER, SERVER

SECTIONS: Final = {
    "Every program": (BUILD_INFO,),
    "Every job": EVERY_JOB,
    "The quota job": QUOTA_JOB,
    "The balance job": BALANCE_JOB,
    "The enforcer": ENFORCER,
    "The server": SERVER,
}
"""Metrics by heading, in the order of the page."""

_MOST_SHOWN: Final = 8


def tables() -> str:
    """All sections, as Markdown."""
    return "\n".join(f"### {heading}\n\n{table(part)}" for heading, part in SECTIONS.items())


def table(metrics: tuple[Metric, ...]) -> str:
    """A row for each metric."""
    lines = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    for metric in metrics:
        cells = f"`{metric.name}`", metric.kind.value, _labels(metric), metric.help
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _labels(metric: Metric) -> str:
    return "; ".join(
        f"`{label.name}`: {', '.join(label.values)}"
        if 0 < len(label.values) <= _MOST_SHOWN
        else f"`{label.name}`: at most {label.bound}"
        for label in metric.labels
    )


if __name__ == "__main__":
    print(tables(), end="")
