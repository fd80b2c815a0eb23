"""Differences of a change of groups: created, changed or deleted groups, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.group_json import shown
from quotaplane.registry.table import GroupsPut

_FIELDS: Final = (*RATE_COLUMNS, *POLICY_COLUMNS)


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
