"""A round's dead letters: inputs that decoders refused, and flaws that only the operator finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow_ipc import unpack
from quotaplane.groups.flaws import row_flaws
from quotaplane.groups.names import called
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.undefined_groups import MOST_PAIRS
from quotaplane.streams.lone_batches import LeftOut
from quotaplane.wire.reasons import TOO_MANY_REPORTS
from quotaplane.wire.rejected_reports import condensed, reports_by_reason
from quotaplane.wire.shard_inputs import REJECTED

UNKNOWN_GROUP: Final = "unknown_group"
BAD_DEFINITION: Final = "bad_definition"
"""Reasons in addition to those of ``wire.reasons``."""

_MAX_DETAIL: Final = 2_000


class Rejected(NamedTuple):
    """Counts of a round's unusable input."""

    reports: int
    """Reports that were refused, whole or in part."""
    by_reason: dict[str, int]
    """Reports by reason; also entries of undefined groups (``unknown_group``) and flawed rows of
    the table of groups (``bad_definition``)."""


def dead_letters(
    refused: pa.Table, definitions: pa.Table | None, outcome: Outcome
) -> tuple[pa.Table, Rejected]:
    """All dead letters of a round, and their counts."""
    letters = [refused] if definitions is None else [refused, definitions]
    by_reason = reports_by_reason(pa.concat_tables(letters))
    if outcome.unknown is not None:
        letters.append(_unknown_groups(outcome.unknown))
    if outcome.unknown_entries:
        by_reason[UNKNOWN_GROUP] = outcome.unknown_entries
    reports = sum(reports_by_reason(refused).values())
    return pa.concat_tables(letters), Rejected(reports, by_reason)


def refused_reports(payloads: Sequence[bytes], crowded_out: pa.Table | None) -> pa.Table:
    """Reports that the decoders refused, and the headers (``shard_inputs.HEADERS``) of those over
    their broker's limit (``crowded_out``), as dead letters.
    """
    letters = [table for payload in payloads for table in unpack(payload)]
    if crowded_out is not None:
        letters.append(
            letters_of(
                len(crowded_out),
                reason=TOO_MANY_REPORTS,
                position=crowded_out["position"],
                published_at_ms=crowded_out["published_at_ms"],
                detail="its broker sent more reports at once than "
                "reports.max_reports_per_broker; only the newest are used",
            )
        )
    table = pa.concat_tables([REJECTED.empty_table(), *letters])
    # Sort: which letters are left out must not depend on the order in which the payloads came.
    order = [(name, "ascending") for name in ("published_at_ms", "position", "reason", "detail")]
    return condensed(table.sort_by(order) if len(table) > 1 else table)


def bad_definitions(groups: pa.Table, clashes: Sequence[tuple[int, str]]) -> pa.Table:
    """Flawed values in the table of groups, one letter each; `groups put` would refuse them.

    ``groups`` has the columns of ``shard_inputs.GROUPS``; ``clashes`` are pairs of its row and a
    text.
    """
    put = groups.filter(pc.invert(groups["deleted"]))
    defects = [(flaw.row, flaw.report) for flaw in row_flaws(put)]
    return pa.concat_tables([_about(put, defects), _about(groups, clashes)])


def _about(groups: pa.Table, defects: Sequence[tuple[int, str]]) -> pa.Table:
    rows = groups.select(["group", "version"]).take(
        pa.array([row for row, _ in defects], pa.int64())
    )
    texts = zip(rows["group"].to_pylist(), (text for _, text in defects), strict=True)
    details = [f"{called(group)}: {text}"[:_MAX_DETAIL] for group, text in texts]
    places = [f"resource_groups@{version}" for version in rows["version"].to_pylist()]
    return letters_of(
        len(rows),
        reason=BAD_DEFINITION,
        position=pa.array(places, pa.string()),
        published_at_ms=-1,  # the table's log has the time
        detail=pa.array(details, pa.string()),
    )


def letters_of(count: int, **columns: Any) -> pa.Table:
    """Dead letters (``REJECTED``) that are not about bad reports.

    A column is an array of ``count`` values, or one value for all.
    """
    given = {"counts_as_bad": False, "reports": 1, "raw": b"", **columns}
    return pa.table(
        {
            field.name: given[field.name]
            if isinstance(given[field.name], (pa.Array, pa.ChunkedArray))
            else pa.repeat(pa.scalar(given[field.name], field.type), count)
            for field in REJECTED
        },
        schema=REJECTED,
    )


def letters_of_input_left_out(left_out: Sequence[LeftOut]) -> pa.Table:
    """One dead letter for each part of a batch that is not decoded."""
    return letters_of(
        len(left_out),
        reason=pa.array([part.reason for part in left_out]),
        detail=pa.array([part.detail for part in left_out]),
        position=pa.array([part.position for part in left_out]),
        published_at_ms=-1,
        reports=pa.array([part.inputs for part in left_out]),
    )


def _unknown_groups(unknown: pa.Table) -> pa.Table:
    """Letters about groups that brokers report but nobody defined (rows of ``Outcome.unknown``)."""
    name = pc.coalesce(
        unknown["group"],
        pc.binary_join_element_wise("id ", unknown["group_id"].cast(pa.string()), ""),
    )
    single = pc.binary_join_element_wise(
        "broker ", unknown["broker"].cast(pa.string()), ": no resource group ", name, ""
    )
    many = f"more undefined groups than the {MOST_PAIRS} that are listed one by one, of any broker"
    return letters_of(
        len(unknown),
        reason=UNKNOWN_GROUP,
        position=unknown["position"].cast(pa.string()),
        published_at_ms=unknown["published_at_ms"],
        detail=pc.if_else(unknown["others"], many, single),
        reports=unknown["reports"],
    )
