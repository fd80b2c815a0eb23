"""Answers of ``quotaplane groups``: tables, CSV, and what a change made of each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from quotaplane.console.answers import Columns, Rows, json_of
from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.group_json import shown
from quotaplane.registry.table import GroupsPut

UNLIMITED: Final = "unlimited"
"""The text in tables and CSV for a quota that is null in JSON."""

_FIELDS: Final = (*RATE_COLUMNS, *POLICY_COLUMNS)
_DIFF: Final = ("group", "result", "field", "from", "to")


def written(name: str, value: Any) -> Any:
    """A value of a row in tables and CSV."""
    return UNLIMITED if value is None and name in RATE_COLUMNS else value


def whole_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Columns, Rows]:
    """All columns of groups, rows of ``list_groups``; `groups put --file` reads them as CSV."""
    columns = ("group", "parent", *_FIELDS, "updated_at", "updated_by")
    full = map(shown, rows)
    return columns, [tuple(written(name, row[name]) for name in columns) for row in full]


def brief_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[Columns, Rows]:
    """Groups with None in place of defaults, and without columns that have only None."""
    given = [{name: new for name, (_, new) in fields_changed({}, row).items()} for row in rows]
    names = [name for name in _FIELDS if any(name in fields for fields in given)]
    columns = ("group", *names, "updated_at", "updated_by")
    return columns, [
        tuple({**row, **dict.fromkeys(names), **fields}[name] for name in columns)
        for row, fields in zip(rows, given, strict=True)
    ]


def one_row(row: Mapping[str, Any]) -> tuple[Columns, Rows]:
    """One group, a line for each field."""
    columns, [values] = whole_rows([row])
    return ("field", "value"), list(zip(columns, values, strict=True))


def diff_rows(diffs: Sequence[GroupDiff]) -> tuple[Columns, Rows]:
    """Differences, a line for each field."""
    return _DIFF, [line for diff in diffs for line in _diff_lines(diff)]


def _diff_lines(diff: GroupDiff) -> Iterator[tuple[Any, ...]]:
    head = (diff.group, diff.result)
    if not diff.fields:
        yield (*head, None, None, None)
    for name, (before, to) in diff.fields.items():
        yield (*head, name, written(name, before), written(name, to))


def change_rows(
    changes: Sequence[Mapping[str, Any]],
    columns: Columns = ("version", "at", "by", "why", "group", "change"),
) -> tuple[Columns, Rows]:
    """Changes in the form of ``group_changes``, a line each."""
    told = ({**change, "change": _in_words(change)} for change in changes)
    return columns, [tuple(change[name] for name in columns) for change in told]


def _in_words(change: Mapping[str, Any]) -> str:
    """Old and new value of each changed column.

    >>> _in_words({"from": {"weight": None}, "to": {"weight": 2.0, "publish_bytes_per_s": 5.0}})
    'publish_bytes_per_s: unlimited -> 5, weight: 1 -> 2'
    >>> _in_words({"from": None, "to": {"weight": 2.0}})
    'created: weight: 1 -> 2'
    """
    before, to = change["from"], change["to"]
    kind = "created" if before is None else "deleted" if to is None else ""
    fields = fields_changed(before or {}, to or {})
    texts = [f"{n}: {_text(n, old)} -> {_text(n, new)}" for n, (old, new) in fields.items()]
    return ": ".join(filter(None, (kind, ", ".join(texts))))


def _text(name: str, value: Any) -> str:
    value = written(name, value)
    if isinstance(value, str):
        return value
    return f"{value:.10g}" if isinstance(value, int | float) else json_of(value)


class GroupDiff(NamedTuple):
    """The effect of a change on a group."""

    group: str
    result: Literal["created", "changed", "unchanged", "deleted"]
    fields: dict[str, tuple[Any, Any]]
    """Old and new value of the fields that differ, in the form of ``shown``; a group that does not
    exist counts as one with defaults."""

    def as_json(self) -> dict[str, Any]:
        """The JSON object for scripts."""
        changes = {name: {"from": before, "to": to} for name, (before, to) in self.fields.items()}
        return {"group": self.group, "result": self.result, "changes": changes}


def diffs_of(put: GroupsPut) -> list[GroupDiff]:
    """The created and changed groups, in the order they were given; then the deleted ones."""
    mask = pa.array(put.changed)
    before, after = put.before.filter(mask).to_pylist(), put.rows.filter(mask).to_pylist()
    diffs = [
        GroupDiff(
            row["group"],
            "created" if old["group"] is None else "changed",
            fields_changed(old, row),
        )
        for old, row in zip(before, after, strict=True)
    ]
    return [*diffs, *_deleted(put.deleted)]


def _deleted(rows: pa.Table) -> Iterator[GroupDiff]:
    for row in rows.to_pylist():
        yield GroupDiff(row["group"], "deleted", fields_changed(row, {}))


def fields_changed(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Old and new value of the fields that differ between two rows; a missing field is None."""
    old, new = (shown({name: row.get(name) for name in _FIELDS}) for row in (before, after))
    return {name: (old[name], new[name]) for name in _FIELDS if old[name] != new[name]}
