"""Bounds how many brokers are known. Pure; the quota and balance jobs use it.

Reports of known brokers are always used, however many names somebody invents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray, Round


def beyond_max_brokers(
    known: Sequence[str], names: pa.ChunkedArray, most: int | None, stamp: Round
) -> tuple[BoolArray, str]:
    """(n,) the reports, by the brokers ``names`` (n) in them, of brokers beyond the ``most`` known
    ones; and why.

    If there are more new names than there is room for, those with the smallest hashes of name and
    round are let in: the same when the round runs again and in all shards, and others in the next
    round, so that nobody can choose a name that keeps another one out.

    >>> names = pa.chunked_array([["b", "a", "c"]])
    >>> beyond_max_brokers(["a"], names, 1, Round(1, 2, 3))[0].tolist()
    [True, False, True]
    """
    coded = names.combine_chunks().dictionary_encode()
    refused = np.zeros(len(coded.dictionary), bool)
    room = len(names) if most is None else max(most - len(known), 0)
    is_new = np.zeros(0, bool)
    if len(refused) > room:
        known_names = pa.array(known, pa.string())
        is_new = ~pc.is_in(coded.dictionary, value_set=known_names).to_numpy(zero_copy_only=False)
    new = np.flatnonzero(is_new)
    if len(new) > room:
        order = np.argsort(_hashes(coded.dictionary.take(pa.array(new)).to_pylist(), stamp))
        refused[new[order[room:]]] = True
    return (
        refused[coded.indices.to_numpy()],
        f"{len(known)} brokers are known, {len(new)} others reported",
    )


def _hashes(names: list[str], stamp: Round) -> npt.NDArray[Any]:
    key = f"{stamp.epoch} {stamp.seq}".encode()
    return np.array([hashlib.blake2b(name.encode(), key=key).digest() for name in names], "S64")
