"""Shows the demo: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from quotaplane.demo.record import DemoRecord, Note, rate
from quotaplane.demo.report import AuditAnswer, cell, settled_in
from quotaplane.demo.scenarios import Story
from quotaplane.model import DIMENSIONS
from quotaplane.sim.world import Interval

_NOTES: Final = 9
_THROTTLED: Final = 0.98
_FRESH_INTERVALS: Final = 2
_STATUS_EVERY_S: Final = 5.0
_AUDIT_ROWS: Final = 12


class Screen:
    """Shows a record as it grows; a context manager, which restores the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, auto_refresh=False, vertical_overflow="crop")
            if console.is_terminal
            else None
        )
        self._printed = 0
        self._status_at_s = -np.inf

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, record: DemoRecord, status: str) -> None:
        """Show the latest interval and new notes."""
        if not record.intervals:
            return
        if self._live:
            self._live.update(view(record, status), refresh=True)
            return
        t_s = record.intervals[-1].t_s
        if t_s < 0:
            return
        for note in record.notes[self._printed :]:
            self._printed += 1
            self._console.print(_line(note), soft_wrap=True)
        if t_s >= self._status_at_s + _STATUS_EVERY_S:
            self._status_at_s = t_s
            self._console.print(f"t={t_s:3.0f} s  {status}", soft_wrap=True)


def view(record: DemoRecord, status: str) -> RenderableType:
    """The table of all groups, and the latest notes; fits into 100 columns by 40 lines."""
    now = record.intervals[-1]
    clock = f"t = {now.t_s:.0f} s" if now.t_s >= 0 else "waiting for the first limits"
    head = Text.assemble(("quotaplane demo", "bold"), "   ", (clock, "bold cyan"), f"   {status}")
    notes = record.notes[-_NOTES:]
    lines = [_line(note) for note in notes] + [Text()] * (_NOTES - len(notes))
    panel = Panel(
        Group(*lines), title="what just changed", title_align="left", border_style="dim", height=11
    )
    return Group(head, _table(record, now), _legend(), panel)


def _legend() -> Text:
    return Text.assemble(
        "used/limit per second:  ",
        ("not throttled", "green"),
        "  ",
        ("throttled", "yellow"),
        "  ",
        ("idle", "bright_black"),
        "  ",
        ("limit just changed", "bold underline"),
    )


def _table(record: DemoRecord, now: Interval) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("group", no_wrap=True, min_width=17)
    table.add_column("quota", justify="right", no_wrap=True)
    table.add_column("used", justify="right", no_wrap=True)
    for spec, alive in zip(record.scenario.brokers, now.alive, strict=True):
        style = "" if alive else "red strike"
        table.add_column(Text(spec.name, style=style), justify="right", no_wrap=True, min_width=8)
    for story in record.scenario.stories:
        for dimension in story.shows:
            table.add_row(*_row(record, now, story, dimension))
    return table


def _row(record: DemoRecord, now: Interval, story: Story, dimension: str) -> list[Text]:
    first = dimension == story.shows[0]
    name = story.group if first else f"  {dimension.replace('_', ' ')}"
    group, column = record.scenario.groups.index(story.group), DIMENSIONS.index(dimension)
    if not story.from_s <= max(now.t_s, 0.0) < story.until_s:
        absent = "not yet" if now.t_s < story.from_s else "deleted"
        return [Text(name, style="bright_black"), Text(absent, style="bright_black")]
    quota = float(record.quotas[-1][group, column])
    usage, limit = now.usage[:, group, column], now.limit[:, group, column]
    used = float(usage.sum())
    over = np.isfinite(quota) and used > quota * 1.02
    cells = [
        Text(name, style="" if first else "bright_black"),
        Text(rate(quota), style="bold"),
        Text(rate(used), style="red bold" if over else ""),
    ]
    taking_part = {change.broker for change in story.demand}
    for broker, spec in enumerate(record.scenario.brokers):
        if spec.name not in taking_part:
            cells.append(Text())
        elif not now.alive[broker]:
            cells.append(Text("-", style="red"))
        else:
            wanted = now.wanted[broker, group, column]
            style = _style(float(usage[broker]), float(limit[broker]), float(wanted))
            if _fresh(record, broker, group, column):
                style += " bold underline"
            cells.append(Text(f"{rate(usage[broker])}/{rate(limit[broker])}", style=style))
    return cells


def _style(usage: float, limit: float, wanted: float) -> str:
    if wanted == 0:
        return "bright_black"
    return "yellow" if usage >= _THROTTLED * limit and wanted > limit else "green"


def _fresh(record: DemoRecord, broker: int, group: int, column: int) -> bool:
    """Whether this limit changed noticeably in the last intervals."""
    latest = record.intervals[-1 - _FRESH_INTERVALS :]
    values = [interval.limit[broker, group, column] for interval in latest]
    finite = [value for value in values if np.isfinite(value)]
    if not finite or latest[0].t_s < 0:
        return False
    return len(finite) < len(values) or max(finite) - min(finite) > 0.1 * max(finite)


def _line(note: Note) -> Text:
    when = (f"t={note.t_s:3.0f} s  ", "cyan")
    what = f"{note.group}: {note.text}" if note.group else note.text
    parts = [when, (what, "bold")]
    if note.kind == "limits":
        parts = [when, (f"  {note.group} limits: ", "bright_black"), (note.text, "")]
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def print_summary(
    console: Console, record: DemoRecord, facts: Mapping[str, str], audit: AuditAnswer
) -> None:
    """Print each story's outcome, the job's figures, and the audit's result."""
    table = Table(title="\nwhat happened", title_justify="left", title_style="bold", box=None)
    for name in ("at", "group", "what changed", "then"):
        table.add_column(name, overflow="fold")
    table.add_column("used", justify="right")
    for outcome in record.outcomes():
        settled = outcome.settled_s is not None
        table.add_row(
            f"{outcome.event.at_s:.0f} s",
            outcome.story.group,
            outcome.event.text,
            Text(settled_in(outcome), style="green" if settled else "red"),
            f"{record.utilisation(outcome.story):.0%}",
        )
    console.print(table)
    console.print(
        "fair: every broker within 10 % of its max-min share from then on; "
        "used: share of the usable quota that was used, over the whole run",
        style="bright_black",
    )
    console.print(", ".join(f"{label} {value}" for label, value in facts.items()))
    answer = Table(title=f"\n{audit.question}", title_justify="left", title_style="bold", box=None)
    for name in audit.columns:
        answer.add_column(name.replace("_", " "), overflow="fold")
    for row in audit.rows[:_AUDIT_ROWS]:
        answer.add_row(*map(cell, row))
    console.print(answer)
    if len(audit.rows) > _AUDIT_ROWS:
        console.print(f"... and {len(audit.rows) - _AUDIT_ROWS} more", style="bright_black")
    console.print(f"(./spark-submit.sh audit {audit.name})\n", style="bright_black")
