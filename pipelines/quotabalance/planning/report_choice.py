"""Which load reports count: of each broker the newest one. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from quotabalance.planning.reported_loads import ReportedLoads
from quotaplane.model import BoolArray, IntArray

MOST_BUNDLES: Final = 2_000_000
"""Bundles of all brokers, so that the job's state is bounded: 20 times the largest cluster measured
(docs/operate/balance-job.md)."""
_NAME_BYTES: Final = 256
NOT_NEWER: Final = "not_newer"
TOO_MANY_BUNDLES: Final = "too_many_bundles"
"""Codes of dead letters, of ``quotaplane.wire.reasons``."""


class Chosen(NamedTuple):
    """The reports that count after some arrived."""

    latest: ReportedLoads
    """One report per broker, by broker's name; bundles by name within a broker."""
    fresh: frozenset[str]
    """Brokers whose report is a new one."""
    used: int
    """Reports that arrived and count now."""
    superseded: int
    """Reports that arrived together with a newer one of their broker."""
    refused: tuple[tuple[int, str], ...]
    """Rows of the reports that arrived and were refused, each with one of the codes above."""
    gone: tuple[str, ...]
    """Brokers that were forgotten because their numbers are too old."""


def choose(
    latest: ReportedLoads,
    arrived: ReportedLoads,
    now_ms: int,
    gone_after_s: float,
    most_bundles: int = MOST_BUNDLES,
) -> Chosen:
    """Replace brokers' reports by newer ones, and forget brokers whose numbers are too old.

    A report is newer if its start time, or with the same start time its sequence, is greater. The
    result does not depend on the order of the reports, only on their positions.

    >>> nothing = ReportedLoads.none()
    >>> choose(nothing, nothing, 0, gone_after_s=3600.0).used
    0
    """
    known = latest.reports.num_rows
    both = ReportedLoads.join([latest, arrived])
    rows = both.reports
    total = rows.num_rows
    _, code = np.unique(np.array(rows["broker"].to_pylist(), object), return_inverse=True)
    _, place = np.unique(np.array(rows["position"].to_pylist(), object), return_inverse=True)
    started, sequence = (rows[name].to_numpy() for name in ("started_at_ms", "sequence"))
    is_new = np.arange(total) >= known
    # Among equal reports the one that was used first stays, then the first position.
    order = np.lexsort((-place, ~is_new, sequence, started, code))
    last = np.flatnonzero(np.r_[code[order][1:] != code[order][:-1], np.ones(min(total, 1), bool)])
    winners = order[last]
    repeated = _not_newer(order, code, started, sequence, is_new)
    fits = _fitting(both, winners, code, is_new, most_bundles)
    too_many = winners[~fits & is_new[winners]]
    # A broker whose new report is too much keeps its old one.
    olds = np.flatnonzero(~is_new & np.isin(code, code[too_many]))
    kept = np.concatenate([winners[fits], olds])
    kept = kept[np.argsort(code[kept], kind="stable")]
    measured = rows["measured_at_ms"].to_numpy()
    old = now_ms - measured[kept] > gone_after_s * 1000
    names = rows["broker"].to_pylist()
    kept, gone = kept[~old], [names[row] for row in kept[old].tolist()]
    used = kept[is_new[kept]]
    refused = [(int(row - known), NOT_NEWER) for row in np.flatnonzero(repeated).tolist()]
    refused += [(int(row - known), TOO_MANY_BUNDLES) for row in too_many.tolist()]
    beaten = int(is_new.sum()) - len(refused) - int(is_new[winners[fits]].sum())
    return Chosen(
        _by_name(both.take(kept)),
        frozenset(names[row] for row in used.tolist()),
        len(used),
        beaten,
        tuple(sorted(refused)),
        tuple(gone),
    )


def _not_newer(
    order: IntArray, code: IntArray, started: IntArray, sequence: IntArray, is_new: BoolArray
) -> BoolArray:
    """Which reports that arrived are not newer than the known one of their broker, or are equal to
    another one that arrived; shape (reports,).
    """
    repeated: BoolArray = np.zeros(len(order), bool)
    if not len(order):
        return repeated
    size = int(code.max()) + 1
    old_start, old_sequence = np.full(size, -1), np.full(size, -1)
    old = np.flatnonzero(~is_new)
    old_start[code[old]], old_sequence[code[old]] = started[old], sequence[old]
    repeated = is_new & (
        (started < old_start[code])
        | ((started == old_start[code]) & (sequence <= old_sequence[code]))
    )
    this, next_ = order[:-1], order[1:]
    alike = (
        (code[this] == code[next_])
        & (started[this] == started[next_])
        & (sequence[this] == sequence[next_])
        & is_new[this]
    )
    repeated[this[alike]] = True
    return repeated


def _fitting(
    both: ReportedLoads, winners: IntArray, code: IntArray, is_new: BoolArray, most_bundles: int
) -> BoolArray:
    """The winners that fit into ``most_bundles``: known brokers first, then new ones by name. A
    report that does not fit takes no room from others; a known broker's old one stays then.
    """
    fits: BoolArray = np.ones(len(winners), bool)
    sizes = _sizes(both)
    if sizes.sum() <= most_bundles:
        return fits
    old = np.flatnonzero(~is_new)
    old_size = dict(zip(code[old].tolist(), sizes[old].tolist(), strict=True))
    known = np.isin(code[winners], code[old])
    bundles = 0
    for place in np.lexsort((code[winners], is_new[winners], ~known)).tolist():
        winner = int(winners[place])
        size, owner = int(sizes[winner]), int(code[winner])
        if is_new[winner]:
            fits[place] = bundles + size <= most_bundles
            size = size if fits[place] else old_size.get(owner, 0)
        bundles += size
    return fits


def _sizes(loads: ReportedLoads) -> IntArray:
    """Bundles of each report; a name counts once per ``_NAME_BYTES`` that it begins, so that
    ``most_bundles`` bounds the memory, too.
    """
    length = pc.binary_length(loads.bundles["bundle"]).to_numpy()
    parts = -(-length.astype(np.int64) // _NAME_BYTES)
    sizes: IntArray = np.bincount(
        loads.bundles["report"].to_numpy(), parts, minlength=len(loads.reports)
    ).astype(np.int64)
    return sizes


def _by_name(loads: ReportedLoads) -> ReportedLoads:
    """Bundles by name within each report, so that equal reports are equal, and names compress."""
    bundles = loads.bundles
    if not bundles.num_rows:
        return loads
    keys = [("report", "ascending"), ("bundle", "ascending")]
    return ReportedLoads(loads.reports, bundles.take(pc.sort_indices(bundles, keys)))
