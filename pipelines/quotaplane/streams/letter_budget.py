"""Limits how many dead letters a job stores, so that bad input can't fill the disk.

Pure: the clock is the rounds' time. The decoder limits each task's letters per batch; this limits
them over all rounds.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LETTERS: Final = 1000
"""Letters of one reason that may be stored at once, and again per hour."""
RAW_BYTES: Final = 16 << 20
"""Raw bytes, of all reasons, that may be stored at once, and again per hour."""
_HOUR_MS: Final = 3_600_000


class Allowance:
    """An amount that may be spent at once and is refilled evenly within an hour."""

    def __init__(self, most: int) -> None:
        self._most, self.left = most, float(most)
        self._at_ms: int | None = None

    def renew(self, now_ms: int) -> None:
        if self._at_ms is not None and now_ms > self._at_ms:
            self.left += self._most * (now_ms - self._at_ms) / _HOUR_MS
        self.left = min(self.left, self._most)
        self._at_ms = now_ms

    def spend(self, wanted: int, now_ms: int) -> int:
        """Take as much of it as there is, whole, and no more than ``wanted``."""
        self.renew(now_ms)
        taken = min(wanted, int(self.left))
        self.left -= taken
        return taken


class LetterBudget:
    """Cuts each round's dead letters to an allowance, one per reason.

    Of too many letters of a reason the first are kept, and one more letter counts those left out.
    Letters over the allowance of raw bytes are kept without their raw bytes.
    """

    def __init__(
        self, exempt: Container[str] = (), letters: int = LETTERS, raw_bytes: int = RAW_BYTES
    ) -> None:
        """``exempt`` has reasons whose letters have a limit elsewhere."""
        self._exempt = exempt
        self._letters_each = letters
        self._letters: dict[str, Allowance] = {}
        self._raw = Allowance(raw_bytes)

    def cut(self, letters: pa.Table, now_ms: int) -> pa.Table:
        """The letters of a round (``shard_inputs.REJECTED``) to store."""
        reason = letters["reason"].combine_chunks().dictionary_encode()
        code = reason.indices.to_numpy()
        keep = np.ones(len(letters), bool)
        summaries = []
        for number, name in enumerate(reason.dictionary.to_pylist()):
            if name in self._exempt:
                continue
            rows = np.flatnonzero(code == number)
            allowance = self._letters.setdefault(name, Allowance(self._letters_each))
            kept_rows = allowance.spend(len(rows), now_ms)
            if kept_rows < len(rows):
                keep[rows[kept_rows:]] = False
                left_out = letters.take(pa.array(rows[kept_rows:]))
                summaries.append(_summary(left_out, self._letters_each))
        kept_letters = self._without_raw(letters.filter(pa.array(keep)), now_ms)
        return pa.concat_tables([kept_letters, *summaries])

    def _without_raw(self, letters: pa.Table, now_ms: int) -> pa.Table:
        """The letters, without raw bytes once the allowance is spent."""
        self._raw.renew(now_ms)
        sizes = pc.binary_length(letters["raw"]).fill_null(0).to_numpy()
        fits = np.cumsum(sizes) <= self._raw.left
        self._raw.left -= float(sizes[fits].sum())
        if fits.all():
            return letters
        cut = pa.array(~fits & (sizes > 0))
        note = pc.binary_join_element_wise(letters["detail"], "raw bytes left out", "; ")
        columns = {"detail": pc.if_else(cut, note, letters["detail"])}
        columns["raw"] = pc.if_else(cut, pa.scalar(b"", pa.binary()), letters["raw"])
        for name, column in columns.items():
            place = letters.column_names.index(name)
            letters = letters.set_column(place, letters.schema.field(place), column)
        return letters


def _summary(left_out: pa.Table, most: int) -> pa.Table:
    """One letter that stands for those left out."""
    row = left_out.slice(0, 1).to_pylist()[0]
    row["reports"] = pc.sum(left_out["reports"]).as_py()
    row["detail"] = (
        f"{len(left_out)} letters of this round are left out, from this position on, about "
        f"{row['reports']} reports; at most {most} letters of each reason are kept per hour"
    )
    row["raw"], row["sender"] = b"", None
    return pa.Table.from_pylist([row], schema=left_out.schema)
