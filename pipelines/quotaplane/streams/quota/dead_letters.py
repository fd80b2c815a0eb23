"""A round's dead letters of the quota job: what decoders refused, and flaws that only the operator
finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.groups.flaws import row_flaws
from quotaplane.groups.names import called
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.undefined_groups import MOST_PAIRS
from quotaplane.streams.letters import letters_of
from quotaplane.wire.rejected_reports import reports_by_reason

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
        sender=pc.if_else(unknown["others"], None, unknown["broker"].cast(pa.string())),
    )
