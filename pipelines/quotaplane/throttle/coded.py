"""The throttle terms of many groups: each text once, and by group which of them it is.

Texts are as brokers are told them (``terms.told_text``), so equal terms are equal texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, IntArray
from quotaplane.throttle.terms import told_text


@dataclass(frozen=True)
class Throttles:
    """``code`` (n,): of each group the place in ``texts``, of which the first is "", the defaults.

    >>> throttles = coded(pa.array([None, '{"*": {"mode": "hard", "samples": 1}}', "broken"]))
    >>> throttles.code.tolist(), throttles.texts.to_pylist()
    ([0, 1, 0], ['', '{"*": {"mode": "hard"}}'])
    """

    code: IntArray
    texts: pa.StringArray

    def __len__(self) -> int:
        return len(self.code)

    @property
    def any_given(self) -> bool:
        """Whether any group has other terms than the defaults."""
        return bool(self.code.any())

    def take(self, chosen: BoolArray | IntArray) -> Throttles:
        """Those of the groups that ``chosen`` (a mask, or positions) picks."""
        return Throttles(self.code[chosen], self.texts)

    def column(self) -> pa.DictionaryArray:
        """The text of each group."""
        return pa.DictionaryArray.from_arrays(pa.array(self.code.astype(np.int32)), self.texts)

    @classmethod
    def of_column(cls, column: pa.DictionaryArray) -> Throttles:
        """What ``column`` made."""
        return cls(column.indices.to_numpy().astype(np.int64), column.dictionary)


def default_throttles(n: int) -> Throttles:
    """So many groups with the default terms."""
    return Throttles(np.zeros(n, np.int64), pa.array([""], pa.string()))


def coded(texts: pa.StringArray) -> Throttles:
    """Of the column ``throttle``; null, and what is no terms at all, is the defaults."""
    if texts.null_count == len(texts):
        return default_throttles(len(texts))
    encoded = texts.dictionary_encode()
    told = ["", *map(told_text, encoded.dictionary.to_pylist())]
    each = pa.array(told, pa.string()).dictionary_encode()
    code = each.indices.to_numpy()[encoded.indices.fill_null(-1).to_numpy() + 1]
    return Throttles(code.astype(np.int64), each.dictionary)


def joined(one: Throttles, other: Throttles) -> Throttles:
    """The groups of one, then those of the other; texts that nobody has any more are left out.

    >>> both = joined(coded(pa.array(['{"*": {"samples": 2}}', None])).take(np.array([1])),
    ...     coded(pa.array(['{"*": {"samples": 3}}'])))
    >>> both.code.tolist(), both.texts.to_pylist()
    ([0, 1], ['', '{"*": {"samples": 3}}'])
    """
    if not one.any_given and not other.any_given:
        return default_throttles(len(one) + len(other))
    each = pa.concat_arrays([one.texts, other.texts]).dictionary_encode()
    place = each.indices.to_numpy()
    code = np.concatenate([place[one.code], place[len(one.texts) + other.code]])
    used = np.union1d(code, 0)
    return Throttles(np.searchsorted(used, code), each.dictionary.take(pa.array(used)))


def changed(ids: IntArray, before: Throttles, new_ids: IntArray, after: Throttles) -> BoolArray:
    """Which groups of ``new_ids`` (m,) were there before, on other terms; ids are sorted.

    >>> before, after = default_throttles(2), coded(pa.array(['{"*": {"samples": 2}}'] * 2))
    >>> changed(np.array([3, 5]), before, np.array([4, 5]), after).tolist()
    [False, True]
    """
    found = np.zeros(len(new_ids), np.bool_)
    if not before.any_given and not after.any_given:
        return found
    code = joined(before, after).code
    place = np.searchsorted(ids, new_ids)
    there = np.flatnonzero(place < len(ids))
    there = there[ids[place[there]] == new_ids[there]]
    found[there] = code[place[there]] != code[len(ids) + there]
    return found
