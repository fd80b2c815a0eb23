"""A round's dead letters: what its decoders refused, and what only the operator can tell."""

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
from quotaplane.wire.reasons import TOO_MANY_REPORTS
from quotaplane.wire.rejected_reports import condensed, reports_by_reason
from quotaplane.wire.shard_inputs import REJECTED

UNKNOWN_GROUP: Final = "unknown_group"
BAD_DEFINITION: Final = "bad_definition"
"""Reasons beside those of ``wire.reasons``."""

_MAX_DETAIL: Final = 2_000


class Rejected(NamedTuple):
    """How much of a round's input could not be used."""

    reports: int
    """Reports that were refused, whole or in part."""
    by_reason: dict[str, int]
    """The same by reason; also entries of groups that nobody defined (``unknown_group``), and rows
    of the table of groups (``bad_definition``)."""


def dead_letters(
    refused: pa.Table, definitions: pa.Table | None, outcome: Outcome
) -> tuple[pa.Table, Rejected]:
    """All letters of a round, and how much they are about."""
    letters = [refused] if definitions is None else [refused, definitions]
    by_reason = reports_by_reason(pa.concat_tables(letters))
    if outcome.unknown is not None:
        letters.append(_unknown_groups(outcome.unknown))
    if outcome.unknown_entries:
        by_reason[UNKNOWN_GROUP] = outcome.unknown_entries
    reports = sum(reports_by_reason(refused).values())
    return pa.concat_tables(letters), Rejected(reports, by_reason)


def refused_reports(payloads: Sequence[bytes], crowded_out: pa.Table | None) -> pa.Table:
    """What a round's decoders refused, and the reports that are too many of their brokers.

    Of the latter the headers (``events.HEADERS``).
    """
    letters = [table for payload in payloads for table in unpack(payload)]
    if crowded_out is not None:
        letters.append(
            letters_of(
                len(crowded_out),
                reason=TOO_MANY_REPORTS,
                position=crowded_out["position"],
                published_at_ms=crowded_out["published_at_ms"],
                detail="not among the newest of its broker at once "
                "(reports.max_reports_per_broker)",
            )
        )
    table = pa.concat_tables([REJECTED.empty_table(), *letters])
    # Which letters are left out must not depend on the order in which the payloads came.
    order = [(name, "ascending") for name in ("published_at_ms", "position", "reason", "detail")]
    return condensed(table.sort_by(order) if len(table) > 1 else table)


def bad_definitions(groups: pa.Table, clashes: Sequence[tuple[int, str]]) -> pa.Table:
    """What the table of groups should not hold, one per value; `groups put` would refuse it.

    ``groups`` has the columns of ``events.GROUPS``; ``clashes`` are rows of it, and what is wrong.
    """
    put = groups.filter(pc.invert(groups["deleted"]))
    found = [(flaw.row, flaw.report) for flaw in row_flaws(put)]
    return pa.concat_tables([_about(put, found), _about(groups, clashes)])


def _about(groups: pa.Table, found: Sequence[tuple[int, str]]) -> pa.Table:
    rows = groups.select(["group", "version"]).take(pa.array([row for row, _ in found], pa.int64()))
    texts = zip(rows["group"].to_pylist(), (what for _, what in found), strict=True)
    details = [f"{called(group)}: {what}"[:_MAX_DETAIL] for group, what in texts]
    places = [f"resource_groups@{version}" for version in rows["version"].to_pylist()]
    return letters_of(
        len(rows),
        reason=BAD_DEFINITION,
        position=pa.array(places, pa.string()),
        published_at_ms=-1,  # the table's log knows
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


def _unknown_groups(told: pa.Table) -> pa.Table:
    """Groups that brokers report and nobody defined, as ``Undefined`` says they are to be told."""
    name = pc.coalesce(
        told["group"], pc.binary_join_element_wise("id ", told["group_id"].cast(pa.string()), "")
    )
    single = pc.binary_join_element_wise(
        "broker ", told["broker"].cast(pa.string()), ": no resource group ", name, ""
    )
    many = f"more groups that nobody defined than are told one by one ({MOST_PAIRS}), of any broker"
    return letters_of(
        len(told),
        reason=UNKNOWN_GROUP,
        position=told["position"].cast(pa.string()),
        published_at_ms=told["published_at_ms"],
        detail=pc.if_else(told["others"], many, single),
        reports=told["reports"],
    )
