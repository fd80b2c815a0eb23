"""Prints the tables of docs/reference/metrics.md: ``python -m quotaplane.metrics.reference``."""

from __future__ import annotations

from typing import Final

from quotaplane.extensions import load
from quotaplane.metrics.declaration import Metric
from quotaplane.metrics.of_jobs import (
    ALL_CONDITIONS,
    BUILD_INFO,
    CONDITION,
    EVERY_JOB,
    JOBS_OF_EXTENSIONS,
    QUOTA_JOB,
)
from quotaplane.metrics.of_programs import ENFORCER, SERVER

SECTIONS: Final = {
    "Every program": (BUILD_INFO, CONDITION),
    "Every job": EVERY_JOB,
    "The quota job": QUOTA_JOB,
    **{f"The {job} job": load(name) for job, name in JOBS_OF_EXTENSIONS.items()},
    "The enforcer": ENFORCER,
    "The server": SERVER,
}
"""Metrics by heading, in the order of the page."""

_MOST_SHOWN: Final = 8


def tables() -> str:
    """All sections, and the conditions, as Markdown."""
    sections = [f"### {heading}\n\n{table(part)}" for heading, part in SECTIONS.items()]
    return "\n".join([*sections, f"### Conditions\n\n{_conditions()}"])


def table(metrics: tuple[Metric, ...]) -> str:
    """A row for each metric."""
    lines = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    for metric in metrics:
        cells = f"`{metric.name}`", metric.kind.value, _labels(metric), metric.help
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _conditions() -> str:
    lines = ["| condition | what is wrong | not ready |", "|---|---|---|"]
    for each in ALL_CONDITIONS:
        lines.append(f"| `{each.name}` | {each.meaning} | {'yes' if each.unready else ''} |")
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
