"""Writes the demo's report: one HTML file, usable offline, with each group's usage and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

import numpy as np
from plotly.offline import get_plotlyjs

from quotaplane.demo import plots
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


PAGE: Final = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>quotaplane demo</title>
<script>$plotly</script>
<style>
  :root { --ink: #1f2933; --quiet: #66758a; --line: #e1e6ed; --paper: #f5f7fa; }
  * { box-sizing: border-box; }
  body { margin: 0; background: var(--paper); color: var(--ink);
         font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
  main { max-width: 1240px; margin: 0 auto; padding: 32px 24px 64px; }
  h1 { font-size: 28px; margin: 0; letter-spacing: -0.01em; }
  h2 { font-size: 20px; margin: 40px 0 4px; }
  h3 { font-size: 16px; margin: 0; }
  p { margin: 4px 0 0; }
  .quiet, .tile span { color: var(--quiet); font-size: 13px; }
  .tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px;
           margin: 24px 0 0; }
  .tile { background: white; border: 1px solid var(--line); border-radius: 10px;
          padding: 12px 16px; }
  .tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
  .cards { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 16px;
           grid-auto-flow: dense; }
  .card { background: white; border: 1px solid var(--line); border-radius: 10px;
          padding: 16px 18px 6px; display: flex; flex-direction: column; }
  .card > div { margin-top: auto; }
  .wide { grid-column: 1 / -1; }
  .card ul { list-style: none; margin: 8px 0 4px; padding: 0; font-size: 14px; }
  .card li { display: flex; gap: 8px; align-items: baseline; }
  .card li em { flex: none; font-style: normal; font-size: 12px; font-weight: 600; color: white;
                background: #8895a7; border-radius: 4px; padding: 0 6px; }
  .good { color: #22774a; } .bad { color: #b42318; }
  .legend { position: sticky; top: 0; z-index: 2; background: var(--paper); margin: 12px 0 16px;
            padding: 10px 0; display: flex; flex-wrap: wrap; gap: 6px 18px; font-size: 13px;
            border-bottom: 1px solid var(--line); }
  .legend i { display: inline-block; width: 18px; height: 4px; border-radius: 2px;
              margin-right: 6px; vertical-align: middle; }
  .legend .dash { height: 0; border-top: 2px dashed #1f2933; border-radius: 0; }
  .legend .dot { height: 0; border-top: 2px dotted #66758a; border-radius: 0; }
  .legend .thin { height: 1px; background: #66758a; border-radius: 0; }
  .scroll { overflow-x: auto; background: white; border: 1px solid var(--line);
            border-radius: 10px; margin-top: 12px; }
  table { border-collapse: collapse; width: 100%; font-size: 13px;
          font-variant-numeric: tabular-nums; }
  th, td { text-align: left; padding: 7px 14px; border-bottom: 1px solid var(--line);
           white-space: nowrap; }
  tr:last-child td { border-bottom: 0; }
  th { color: var(--quiet); font-weight: 600; }
  details { margin-top: 10px; font-size: 13px; color: var(--quiet); }
  pre { background: white; border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px;
        overflow-x: auto; color: var(--ink); }
  .plain { background: white; border: 1px solid var(--line); border-radius: 10px;
           padding: 12px 12px 4px; margin-top: 12px; }
  @media (max-width: 860px) { .cards { grid-template-columns: minmax(0, 1fr); } }
</style>
</head>
<body>
<main>
<h1>quotaplane demo</h1>
<p>One Spark Structured Streaming job divided each group's quota among the brokers of a simulated
cluster, second by second. Reports came in and limits went out as bytes through Delta tables, as
they would through Kafka.</p>
<div class="tiles">
$tiles
</div>
<h2>How far from fair</h2>
<p class="quiet">The worst-off broker of each group: green is within 10&nbsp;% of its max-min fair
share, as PIP-82 requires. A diamond is a change; the coloured stretch after it is the time for
which the cluster was unfair. Negative seconds are before the first limits.</p>
<div class="plain">$convergence</div>
<h2>Group by group</h2>
<p class="quiet">Above: the usage of all brokers, stacked, with quota and demand. Below: usage
(thick) and limit (thin) of each broker. Numbers mark changes; the grey strip is the time before the
first limits.</p>
<div class="legend">
$legend
<span><i class="thin"></i>its limit</span>
<span><i class="dash"></i>quota</span>
<span><i class="dot"></i>demand together</span>
</div>
<div class="cards">
$cards
</div>
$audit
</main>
</body>
</html>
""")
