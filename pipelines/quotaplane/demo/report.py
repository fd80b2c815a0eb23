"""Writes the demo's report: one HTML file, usable offline, with each group's usage and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from plotly.offline import get_plotlyjs

from quotaplane.demo import plots
from quotaplane.demo.page import PAGE
from quotaplane.demo.record import DemoRecord, Settling, rate
from quotaplane.demo.scenarios import Story
from quotaplane.model import DIMENSIONS


@dataclass(frozen=True)
class AuditAnswer:
    """An audit query and its result."""

    name: str
    question: str
    sql: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def write_report(
    path: Path, record: DemoRecord, facts: Mapping[str, str], audit: AuditAnswer | None = None
) -> None:
    """Write the report; ``facts`` are figures of the job as text, by label."""
    outcomes = record.outcomes()
    page = PAGE.substitute(
        plotly=get_plotlyjs(),
        tiles=_tiles(record, outcomes, facts),
        legend=_legend(record),
        convergence=plots.as_html(plots.convergence(record)),
        cards="\n".join(_card(record, story, outcomes) for story in record.scenario.stories),
        audit=_audit(audit) if audit else "",
    )
    path.write_text(page, encoding="utf-8")


def settled_in(outcome: Settling) -> str:
    """A text that says how long it took until all shares were fair."""
    if outcome.settled_s is None:
        return "not fair before the end"
    if outcome.settled_s == 0:
        return "fair throughout"
    return f"fair within {outcome.settled_s:.0f} s"


def _tiles(record: DemoRecord, outcomes: Sequence[Settling], facts: Mapping[str, str]) -> str:
    took = [outcome.settled_s for outcome in outcomes if outcome.settled_s is not None]
    use = float(np.mean([record.utilisation(story) for story in record.scenario.stories]))
    tiles = {
        "brokers": str(len(record.scenario.brokers)),
        "resource groups": str(len(record.scenario.stories)),
        "changes that ended fair": f"{len(took)} of {len(outcomes)}",
        "median time to fair": f"{np.median(took):.0f} s" if took else "-",
        "quota put to use": f"{use:.1%}",
        **facts,
    }
    return "\n".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'
        for label, value in tiles.items()
    )


def _legend(record: DemoRecord) -> str:
    names = [spec.name for spec in record.scenario.brokers]
    items = [
        f'<span><i style="background:{plots.colour(place)}"></i>{escape(name)}</span>'
        for place, name in enumerate(names)
    ]
    return "\n".join(items)


def _card(record: DemoRecord, story: Story, outcomes: Sequence[Settling]) -> str:
    ends = {outcome.event.at_s: outcome for outcome in outcomes if outcome.story is story}
    lines = [
        f"<li><em>{mark}</em><span>{event.at_s:.0f} s: {escape(event.text)}"
        f"{_verdict(ends.get(event.at_s))}</span></li>"
        for mark, event in record.marks(story)
    ]
    quota = ", ".join(
        f"{rate(story.quota[name])} {name.replace('_', ' ')}"
        for name in DIMENSIONS
        if name in story.quota
    )
    size = "card wide" if len(story.shows) > 1 else "card"
    return (
        f'<section class="{size}"><h3>{escape(story.group)}</h3>'
        f'<p>{escape(story.title)}</p><p class="quiet">quota {quota} per second &middot; '
        f"{record.utilisation(story):.1%} of what could be used was used</p>"
        f"<ul>{''.join(lines)}</ul>{plots.as_html(plots.story_figure(record, story))}</section>"
    )


def _verdict(outcome: Settling | None) -> str:
    if outcome is None:
        return ""
    grade = "bad" if outcome.settled_s is None else "good"
    return f' <b class="{grade}">{settled_in(outcome)}</b>'


def _audit(audit: AuditAnswer) -> str:
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in audit.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell(value))}</td>' for value in row)}</tr>"
        for row in audit.rows
    )
    return (
        f"<h2>An audit of the history: {escape(audit.question)}</h2>"
        f'<p class="quiet">./spark-submit.sh audit {escape(audit.name)}</p>'
        f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
        f"<details><summary>the query</summary><pre>{escape(audit.sql)}</pre></details>"
    )


def cell(value: object) -> str:
    """A value of an audit's answer as text."""
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
