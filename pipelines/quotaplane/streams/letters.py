"""Dead letters about input that could not be used, for the table ``rejected_reports``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quotaplane.arrow import unpack
from quotaplane.wire.rejected_reports import condensed
from quotaplane.wire.shard_inputs import REJECTED

if TYPE_CHECKING:
    from quotaplane.streams.skipped_batches import SkippedInput


def refused_reports(payloads: Sequence[bytes], more: Sequence[pa.Table] = ()) -> pa.Table:
    """Dead letters of reports that the decoders refused, and ``more`` of them (``REJECTED``)."""
    letters = [*(table for payload in payloads for table in unpack(payload)), *more]
    table = pa.concat_tables([REJECTED.empty_table(), *letters])
    # Sort: which letters are left out must not depend on the order in which the payloads came.
    order = [(name, "ascending") for name in ("published_at_ms", "position", "reason", "detail")]
    return condensed(table.sort_by(order) if len(table) > 1 else table)


def letters_of_senders(
    reports: pa.Table, reason: str | pa.Array, detail: str | pa.Array
) -> pa.Table:
    """A dead letter for each report: ``broker``, ``position`` and ``published_at_ms`` are used."""
    return letters_of(
        len(reports),
        reason=reason,
        position=reports["position"],
        published_at_ms=reports["published_at_ms"],
        sender=reports["broker"],
        detail=detail,
    )


def letters_of(count: int, **columns: Any) -> pa.Table:
    """Dead letters (``REJECTED``) that are not about bad reports.

    A column is an array of ``count`` values, or one value for all.
    """
    given = {"counts_as_bad": False, "reports": 1, "raw": b"", "sender": None, **columns}
    return pa.table(
        {
            field.name: given[field.name]
            if isinstance(given[field.name], (pa.Array, pa.ChunkedArray))
            else pa.repeat(pa.scalar(given[field.name], field.type), count)
            for field in REJECTED
        },
        schema=REJECTED,
    )


def letters_of_input_left_out(left_out: Sequence[SkippedInput]) -> pa.Table:
    """One dead letter for each part of a batch that is not decoded."""
    return letters_of(
        len(left_out),
        reason=pa.array([part.reason for part in left_out]),
        detail=pa.array([part.detail for part in left_out]),
        position=pa.array([part.position for part in left_out]),
        published_at_ms=-1,
        reports=pa.array([part.inputs for part in left_out]),
    )
