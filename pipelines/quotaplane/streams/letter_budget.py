"""Limits how many dead letters a job stores, so that bad input can't fill the disk.

Pure: the clock is the rounds' time. ``rejected_reports.condensed`` limits the letters of a round;
this limits them over all rounds.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.wire.rejected_reports import limited_raw, summarized

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
        kept = np.ones(len(letters), bool)
        for number, name in enumerate(reason.dictionary.to_pylist()):
            if name in self._exempt:
                continue
            rows = np.flatnonzero(code == number)
            allowance = self._letters.setdefault(name, Allowance(self._letters_each))
            kept[rows[allowance.spend(len(rows), now_ms) :]] = False
        if not kept.all():
            why = f"; at most {self._letters_each} letters of each reason are kept per hour"
            letters = summarized(letters, kept, why)
        self._raw.renew(now_ms)
        letters = limited_raw(letters, self._raw.left)
        self._raw.left -= pc.sum(pc.binary_length(letters["raw"])).as_py() or 0
        return letters
