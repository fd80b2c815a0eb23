"""Dead letters: records of reports that can't be used, bounded in number and bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.reasons import NOT_BAD, UnusableReportError
from quotaplane.wire.shard_inputs import REJECTED

MOST_LETTERS: Final = 100
"""Letters of one reason in a round of a shard that are about a single report; one more letter
counts the others. A flood of bad messages makes few rows."""
MOST_RAW_BYTES: Final = 4 << 20
"""Raw bytes of the letters of a batch, and of a round of a shard: they all pass through the
driver."""
_RAW_LEFT_OUT: Final = "; raw bytes left out, there are too many"


class Refusal(NamedTuple):
    """Reports of a batch that are refused for one reason, whole or in part."""

    which: IntArray
    """Their indexes in the batch."""
    reason: str
    detail: Callable[[int], str]
    """For the report at an index."""
    part: Callable[[int], bytes] | None = None
    """The refused part of a report that is used otherwise; None: the whole report is refused."""


Check = tuple[BoolArray, str, Callable[[int], str]]
"""(n,) the reports of a batch that have a defect, its reason, and the detail by index."""


def first_defects(usable: BoolArray, checks: Sequence[Check]) -> list[Refusal]:
    """Refuse the reports with defects, each for the first one; ``usable`` (n,) is updated."""
    refusals = []
    for wrong, reason, detail in checks:
        index = np.flatnonzero(wrong & usable)
        if len(index):
            usable[index] = False
            refusals.append(Refusal(index, reason, detail))
    return refusals


def refusal(index: int, error: UnusableReportError) -> Refusal:
    """The refusal of a whole report because of an error found while reading it."""
    text = str(error)  # not the error, which keeps all that was parsed alive
    return Refusal(np.array([index]), error.reason, lambda _: text)


def letters_of_batch(
    refusals: Sequence[Refusal],
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    positions: Sequence[str],
    senders: Callable[[Sequence[bytes]], Sequence[str | None]] | None = None,
) -> pa.Table:
    """The dead letters of a batch in the order of its reports, as ``shard_inputs.REJECTED``.

    ``senders`` reads the brokers' names from reports.
    """
    found = sorted(
        ((index, one) for one in refusals for index in one.which.tolist()), key=lambda pair: pair[0]
    )
    whole = [values[index] or b"" for index, _ in found]
    columns: dict[str, Any] = {
        "reason": [one.reason for _, one in found],
        "detail": [one.detail(index) for index, one in found],
        "position": [positions[index] for index, _ in found],
        "published_at_ms": [int(published_at_ms[index]) for index, _ in found],
        "counts_as_bad": [one.part is None and one.reason not in NOT_BAD for _, one in found],
        "reports": [1] * len(found),
        "raw": [
            value if one.part is None else one.part(index)
            for value, (index, one) in zip(whole, found, strict=True)
        ],
        "sender": [None] * len(found) if senders is None else senders(whole),
    }
    return limited_raw(pa.table(columns, REJECTED))


def condensed(letters: pa.Table) -> pa.Table:
    """Letters of several batches, cut to the number and the raw bytes of a round."""
    if len(letters) <= MOST_LETTERS:
        return limited_raw(letters)
    code = _kinds(letters)
    order = np.argsort(code, kind="stable")
    begins = np.flatnonzero(np.diff(code[order], prepend=-1))
    rank = np.empty(len(code), np.int64)
    rank[order] = np.arange(len(code)) - np.repeat(begins, np.diff(np.r_[begins, len(code)]))
    return limited_raw(summarized(letters, rank < MOST_LETTERS))


def summarized(letters: pa.Table, kept: BoolArray, why: str = "") -> pa.Table:
    """The letters ``kept`` (n,), and one of each kind that stands for the others.

    That one has their number of reports, the first position, and their median time, so that a few
    exceptions don't determine it. ``why`` ends its detail.
    """
    code = _kinds(letters)
    reports, times = (letters[name].to_numpy() for name in ("reports", "published_at_ms"))
    tables = [letters.filter(pa.array(kept))]
    for kind in np.unique(code[~kept]).tolist():
        rest = np.flatnonzero(~kept & (code == kind))
        row = letters.slice(int(rest[0]), 1).to_pylist()[0]
        count, last = int(reports[rest].sum()), letters["position"][int(rest[-1])].as_py()
        row |= {
            "detail": f"{count} more reports for this reason, the last one at {last}{why}",
            "published_at_ms": median_time_ms(times[rest], reports[rest]),
            "reports": count,
            "raw": b"",
            "sender": None,
        }
        tables.append(pa.Table.from_pylist([row], schema=REJECTED))
    return pa.concat_tables(tables)


def _kinds(letters: pa.Table) -> IntArray:
    """(n,) a number for the reason of each letter and whether it counts as bad."""
    bad = letters["counts_as_bad"].cast(pa.string())
    kind = pc.binary_join_element_wise(letters["reason"], bad, " ").combine_chunks()
    code: IntArray = kind.dictionary_encode().indices.to_numpy()
    return code


def limited_raw(letters: pa.Table, most: float = MOST_RAW_BYTES) -> pa.Table:
    """The letters, without raw bytes beyond ``most``; a report of more takes none of them."""
    length = pc.binary_length(letters["raw"]).to_numpy().astype(np.int64)
    over = length > most
    counted = np.where(over, 0, length)
    over |= (counted > 0) & (np.cumsum(counted) > most)
    if not over.any():
        return letters
    mask = pa.array(over)
    detail = pc.binary_join_element_wise(letters["detail"], _RAW_LEFT_OUT, "")
    columns = {
        "detail": pc.if_else(mask, detail, letters["detail"]),
        "raw": pc.if_else(mask, b"", letters["raw"]),
    }
    return pa.table({**{n: letters[n] for n in letters.column_names}, **columns}, letters.schema)


def median_time_ms(times_ms: IntArray, reports: IntArray) -> int:
    """The median publish time, with ``reports`` (n,) reports at each time.

    Negative times are unknown; -1 if all are.

    >>> median_time_ms(np.array([5, 1000, -1]), np.array([2, 3, 9]))
    1000
    """
    known = times_ms >= 0
    times = times_ms[known]
    if not len(times):
        return -1
    order = np.argsort(times, kind="stable")
    up_to = np.cumsum(reports[known][order])
    return int(times[order[np.searchsorted(2 * up_to, up_to[-1])]])


def reports_by_reason(letters: pa.Table) -> dict[str, int]:
    """Number of reports that letters stand for (columns ``reason`` and ``reports``)."""
    sums = letters.group_by("reason", use_threads=False).aggregate([("reports", "sum")])
    return dict(zip(sums["reason"].to_pylist(), sums["reports_sum"].to_pylist(), strict=True))
