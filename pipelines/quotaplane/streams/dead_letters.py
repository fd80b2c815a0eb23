"""Dead letters that only the step can write: of reports that decode, and of definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import InputError
from quotaplane.model import RATE_COLUMNS
from quotaplane.policy import flaws
from quotaplane.throttle.scope import is_scope, parse_scope
from quotaplane.wire.reports import REJECTED, cut_down

_MAX_DETAIL: Final = 2_000


def bad_definitions(groups: pa.Table) -> pa.Table:
    """What the table of groups should not hold, one per value; `groups put` would refuse it.

    ``groups`` has the columns of ``events.GROUPS``.
    """
    put = groups.filter(pc.invert(groups["deleted"]))
    found = list(flaws(put))
    for name in RATE_COLUMNS:
        below = np.flatnonzero(put[name].fill_null(0.0).to_numpy() < 0.0)
        found += [(row, f"{name}: below 0, taken for 0") for row in below.tolist()]
    found += list(_bad_scopes(put["group"].to_pylist()))
    letters = [
        {
            "position": f"resource_groups@{put['version'][row].as_py()}",
            "reason": "bad_definition",
            "detail": f"group {put['group'][row].as_py()!r}: {what}"[:_MAX_DETAIL],
            "published_at_ms": -1,  # the table's log knows
            "counts_as_bad": False,
            "raw": b"",
        }
        for row, what in found
    ]
    return pa.Table.from_pylist(letters, schema=REJECTED)


def _bad_scopes(groups: Sequence[str]) -> Iterator[tuple[int, str]]:
    for row, group in enumerate(groups):
        if is_scope(group):
            try:
                parse_scope(group)
            except InputError as error:
                yield row, f"fits nobody: {error}"


def unknown_groups(entries: pa.Table) -> pa.Table:
    """Entries of groups that nobody defined, as dead letters: one per report."""
    plain = _plain(entries)
    letters = []
    for position in pc.unique(plain["position"]).to_pylist():
        part = plain.filter(pc.equal(plain["position"], position))
        named = [
            name or f"id {number}"
            for name, number in zip(
                part["group"].to_pylist(), part["group_id"].to_pylist(), strict=True
            )
        ]
        shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
        letters.append(
            {
                "position": position,
                "published_at_ms": part["published_at_ms"][0].as_py(),
                "reason": "unknown_group",
                "detail": f"broker {part['broker'][0].as_py()}: no resource group {shown}",
                "counts_as_bad": False,
                "raw": cut_down(part),
            }
        )
    return pa.Table.from_pylist(letters, schema=REJECTED)


def _plain(table: pa.Table) -> pa.Table:
    """Dictionaries written out, so that tables with different ones can be joined."""
    return pa.table(
        {
            name: column.cast(column.type.value_type)
            if pa.types.is_dictionary(column.type)
            else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )
