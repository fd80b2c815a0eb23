"""Chooses the reports that an overloaded task reads: the newest ones of each broker first.

Brokers may send more than the job can use in time: a round then takes longer, reads more reports,
and takes longer still, until all reports are too old. So the cost of a round must not grow with the
number of reports. A broker's newest report says what it uses now; the ones before it are read as
far as there is room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.raw import U64
from quotaplane.wire.report_heads import senders_and_numbers


def surplus(
    heads: Sequence[bytes],
    published_at_ms: IntArray,
    size: IntArray,
    older_bytes: int,
    named: pa.Array | None = None,
) -> tuple[BoolArray, BoolArray]:
    """(n,) the reports that are left out, because their brokers sent newer ones; (n,) those of them
    that repeat another report.

    A report whose sender can't be read is never left out: it becomes a dead letter of its own.

    Args:
        heads: (n) the first ``HEAD_BYTES`` of each report.
        published_at_ms: (n,) when they were published.
        size: (n,) their bytes.
        older_bytes: see ``Intake``. A small system reads everything, and in a large one brokers may
            report at irregular times.
        named: (n,) the brokers that their keys or topics name, if these count: a report with
            another key or topic than its broker's takes no room from the broker's own.

    >>> from quotaplane.wire.report_stock import encode_stock_report
    >>> reports = [encode_stock_report(name, ["g"], np.ones((1, 4))) for name in "aab"]
    >>> surplus(reports, np.array([1000, 2000, 1000]), np.array([30, 9, 9]), 8)
    (array([ True, False, False]), array([False, False, False]))
    """
    code, started, sequence = senders_and_numbers(heads)
    # Which incarnation counts is known to the shards only, so the newest report of each is read.
    of = [code, started.astype(np.int64)]
    if named is not None:
        of.append(named.dictionary_encode(null_encoding="encode").indices.to_numpy())
    _, code = np.unique(np.stack(of), axis=1, return_inverse=True)
    code = code.ravel()
    newer = newer_reports(code, started, sequence, published_at_ms)
    older = newer > 0
    room = max(older_bytes, int(size[~older].sum()) // 2)
    order = np.flatnonzero(older)
    order = order[np.lexsort((-published_at_ms[order], newer[order]))]
    left_out = np.zeros(len(size), bool)
    left_out[order[np.cumsum(size[order]) > room]] = True
    repeats = np.zeros(len(size), bool)
    if left_out.any():
        # Stock reports have no number: those published at one time are one.
        number = np.where(started > 0, sequence.astype(np.int64), published_at_ms)
        keys = np.stack([code, started.astype(np.int64), number])
        read_first = np.argsort(left_out, kind="stable")
        _, first = np.unique(keys[:, read_first], axis=1, return_index=True)
        repeats = left_out.copy()
        repeats[read_first[first]] = False
    return left_out, repeats


def newer_reports(
    code: IntArray, started: U64, sequence: U64, published_at_ms: IntArray
) -> IntArray:
    """(n,) the number of newer reports of its broker (given by ``code``) for each report.

    >>> newer_reports(np.array([0, 0, 1, 0]), *np.array([[5, 5, 1, 4], [1, 2, 1, 9], [0] * 4]))
    array([1, 0, 0, 2])
    """
    newer = np.zeros(len(code), np.int64)
    order = np.lexsort((published_at_ms, sequence, started, code))
    code = code[order]
    ends = np.flatnonzero(np.r_[code[1:] != code[:-1], True]) if len(code) else np.empty(0, int)
    newer[order] = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(code))
    return newer
