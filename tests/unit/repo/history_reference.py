"""The lists of docs/reference/history.md, from declarations: tables, audits, views, reasons."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Final

from quotaplane.history.maintenance import KEEP_DAILY_DAYS, KEEP_DAYS
from quotaplane.history.store import ensure_history
from quotaplane.history.tables import RECORDING, TABLES, USAGE_DAILY, Table
from quotaplane.laws.reason import REASON_TEXTS, Reason
from quotaplane.laws.reason_numbers import NUMBERS
from quotaplane.query.audit import list_audits
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_feed import FEEDS
from quotaplane.query.views import BEGINNING, VIEWS
from quotaplane.settings import History
from tests.unit.repo.pages import ROOT

_FOLDER: Final = ROOT / "pipelines/quotaplane/query/view_sql"
_RECENT: Final = "but only the limits that a question about the time since `:since` needs."
_NO_FILE: Final = {
    "recent_limits": f"As `limits`, {_RECENT}",
    "recent_limit_values": f"As `limit_values`, {_RECENT}",
    "resource_group_changes": "Changes of groups: the row of `resource_groups` before it "
    "(`update_preimage`, `delete`) and after it (`update_postimage`, `insert`).",
    "group_tree": "Each group that there is or was, beside itself and each group above it.",
    "broker_terms": "The terms of a broker in a group, as they are now; `*`: all other brokers.",
}
"""Texts of views without a file whose first line is one."""
_LIKE: Final = {
    "recent_limits": "limits",
    "recent_limit_values": "limit_values",
    "resource_group_changes": "resource_groups",
}
"""Views that have all columns of another one, or of a table."""
_NOW: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)


def _kept(table: Table) -> str:
    if table is RECORDING:
        return "`history.recording_days`"
    if table is USAGE_DAILY:
        return f"{KEEP_DAILY_DAYS} days"
    if table.has_change_feed:
        return "always; changes: a year"
    return "the present state" if table.is_current else f"{KEEP_DAYS} days"


def _tables() -> Iterator[str]:
    yield "| table | a row | partitions | kept |\n|---|---|---|---|"
    for name, table in TABLES.items():
        cells = f"`{name}`", table.comment, ", ".join(table.partition_by), _kept(table)
        yield f"| {' | '.join(cells)} |"


def _audits(engine: DuckDBEngine) -> Iterator[str]:
    yield "| audit | question | columns |\n|---|---|---|"
    for audit in list_audits():
        answer = engine.ask(audit.sql, since=BEGINNING, until=_NOW, parameters=audit.values())
        mark = "" if audit.violation is None else " *"
        yield f"| `{audit.name}`{mark} | {audit.question} | {', '.join(answer.columns)} |"


def _views(engine: DuckDBEngine) -> Iterator[str]:
    yield "| view | a row | columns |\n|---|---|---|"
    for name in [*VIEWS, *FEEDS]:
        text = _NO_FILE.get(name)
        if text is None:
            text = (_FOLDER / f"{name}.sql").read_text("utf-8").partition("\n")[0].lstrip("- ")
        columns = _columns(engine, name)
        if like := _LIKE.get(name):
            others = _columns(engine, like)
            new = [each for each in columns if each not in others]
            lacks = " and ".join(each for each in others if each not in columns)
            columns = (*new, f"those of `{like}`" + (f" without {lacks}" if lacks else ""))
        yield f"| `{name}` | {text} | {', '.join(columns)} |"


def _columns(engine: DuckDBEngine, name: str) -> tuple[str, ...]:
    return engine.ask(f"SELECT * FROM {name}", since=BEGINNING, until=_NOW).columns


def _reasons() -> Iterator[str]:
    yield "| code | reason | numbers |\n|---|---|---|"
    for reason in Reason:
        numbers = ", ".join(NUMBERS.get(reason, ()))
        yield f"| {reason.value} | {REASON_TEXTS[reason]} | {numbers} |"


def reference() -> str:
    """The lists as the page has them."""
    with tempfile.TemporaryDirectory() as folder:
        history = History(path=folder)
        ensure_history(history)
        with DuckDBEngine(history) as engine:
            parts = {
                "All tables": _tables(),
                "All audits": _audits(engine),
                "All views": _views(engine),
                "Reasons of limits": _reasons(),
            }
            sections = [f"## {heading}\n\n" + "\n".join(rows) for heading, rows in parts.items()]
    return "\n\n".join(sections) + "\n"
