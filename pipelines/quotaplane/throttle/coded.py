"""The throttle terms of many groups, dictionary encoded: each text once, and a code per group.

Texts are canonical (``terms.canonical_text``), so equal terms are equal texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, IntArray
from quotaplane.throttle.terms import canonical_text


@dataclass(frozen=True)
class Throttles:
    """Dictionary-encoded terms of n groups.

    >>> throttles = coded(pa.array([None, '{"*": {"mode": "hard", "samples": 1}}', "broken"]))
    >>> throttles.code.tolist(), throttles.texts.to_pylist()
    ([0, 1, 0], ['', '{"*": {"mode": "hard"}}'])
    """

    code: IntArray
    """(n,) indexes into ``texts``."""
    texts: pa.StringArray
    """Distinct texts; the first is "", the defaults."""

    def __len__(self) -> int:
        return len(self.code)

    @property
    def any_given(self) -> bool:
        """Whether any group has other terms than the defaults."""
        return bool(self.code.any())

    def take(self, chosen: BoolArray | IntArray) -> Throttles:
        """The terms of the groups that ``chosen`` (a mask, or indexes) selects."""
        return Throttles(self.code[chosen], self.texts)

    def column(self) -> pa.DictionaryArray:
        """The text of each group."""
        return pa.DictionaryArray.from_arrays(pa.array(self.code.astype(np.int32)), self.texts)

    @classmethod
    def of_column(cls, column: pa.DictionaryArray) -> Throttles:
        """The inverse of ``column``."""
        return cls(column.indices.to_numpy().astype(np.int64), column.dictionary)


def default_throttles(n: int) -> Throttles:
    """The default terms for n groups."""
    return Throttles(np.zeros(n, np.int64), pa.array([""], pa.string()))


def coded(texts: pa.StringArray) -> Throttles:
    """Encode the column ``throttle``; null and invalid texts mean the defaults."""
    if texts.null_count == len(texts):
        return default_throttles(len(texts))
    encoded = texts.dictionary_encode()
    canonical = ["", *map(canonical_text, encoded.dictionary.to_pylist())]
    distinct = pa.array(canonical, pa.string()).dictionary_encode()
    code = distinct.indices.to_numpy()[encoded.indices.fill_null(-1).to_numpy() + 1]
    return Throttles(code.astype(np.int64), distinct.dictionary)


def joined(first: Throttles, second: Throttles) -> Throttles:
    """The groups of both, in this order; texts that no group has are dropped.

    >>> both = joined(coded(pa.array(['{"*": {"samples": 2}}', None])).take(np.array([1])),
    ...     coded(pa.array(['{"*": {"samples": 3}}'])))
    >>> both.code.tolist(), both.texts.to_pylist()
    ([0, 1], ['', '{"*": {"samples": 3}}'])
    """
    if not first.any_given and not second.any_given:
        return default_throttles(len(first) + len(second))
    distinct = pa.concat_arrays([first.texts, second.texts]).dictionary_encode()
    place = distinct.indices.to_numpy()
    code = np.concatenate([place[first.code], place[len(first.texts) + second.code]])
    used = np.union1d(code, 0)
    return Throttles(np.searchsorted(used, code), distinct.dictionary.take(pa.array(used)))


def changed(ids: IntArray, before: Throttles, new_ids: IntArray, after: Throttles) -> BoolArray:
    """Which groups of ``new_ids`` (m,) existed before with other terms; ids are sorted.

    >>> before, after = default_throttles(2), coded(pa.array(['{"*": {"samples": 2}}'] * 2))
    >>> changed(np.array([3, 5]), before, np.array([4, 5]), after).tolist()
    [False, True]
    """
    differs = np.zeros(len(new_ids), np.bool_)
    if not before.any_given and not after.any_given:
        return differs
    code = joined(before, after).code
    place = np.searchsorted(ids, new_ids)
    existing = np.flatnonzero(place < len(ids))
    existing = existing[ids[place[existing]] == new_ids[existing]]
    differs[existing] = code[place[existing]] != code[len(ids) + existing]
    return differs
