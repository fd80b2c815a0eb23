"""Brokers that are not known yet: how many are taken in. Pure; the quota and balance jobs use it.

Known brokers always go on, so however many names somebody invents, none of theirs is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrays import bools
from quotaplane.model import BoolArray, Round
from quotaplane.settings import Reports
from quotaplane.wire.reasons import TOO_MANY_BROKERS, TOO_MANY_NEW_BROKERS


class BrokerBounds(NamedTuple):
    """Settings of a section of the settings file; None: no bound."""

    section: str = "reports"
    max_brokers: int | None = None
    max_new_per_round: int | None = None

    @classmethod
    def of(cls, reports: Reports) -> BrokerBounds:
        """Of the settings of ``reports``."""
        return cls("reports", reports.max_brokers, reports.max_new_brokers_per_round)


UNBOUNDED: Final = BrokerBounds()


class BeyondBounds(NamedTuple):
    """Reports of brokers that are not taken in, for one reason."""

    reports: BoolArray
    """(n,) of the reports that arrived."""
    reason: str
    detail: str


def beyond_bounds(
    known: Sequence[str], names: pa.ChunkedArray, bounds: BrokerBounds, stamp: Round
) -> list[BeyondBounds]:
    """The reports, of those that name the brokers ``names`` (n), of brokers that are not taken in.

    If there are more new names than may be taken in, those with the smallest hashes of name and
    round are: the same when the round runs again and in all shards, and others in the next round,
    so that nobody can choose a name that keeps another one out.

    >>> names = pa.chunked_array([["b", "a", "c"]])
    >>> found = beyond_bounds(["a"], names, BrokerBounds("reports", 1), Round(1, 2, 3))
    >>> [(one.reason, one.reports.tolist()) for one in found]
    [('too_many_brokers', [True, False, True])]
    """
    section, most, most_new = bounds
    coded = names.combine_chunks().dictionary_encode()
    distinct = len(coded.dictionary)
    room = len(names) if most is None else max(most - len(known), 0)
    now = room if most_new is None else min(room, most_new)
    if distinct <= now:
        return []
    is_new = ~bools(pc.is_in(coded.dictionary, value_set=pa.array(known, pa.string())))
    new = np.flatnonzero(is_new)
    if len(new) <= now:
        return []
    order = new[np.argsort(_hashes(coded.dictionary.take(pa.array(new)).to_pylist(), stamp))]
    why = {
        TOO_MANY_BROKERS: (order[room:], f"{section}.max_brokers is {most}"),
        TOO_MANY_NEW_BROKERS: (
            order[now:room],
            f"{section}.max_new_brokers_per_round is {most_new}",
        ),
    }
    found = []
    for reason, (codes, setting) in why.items():
        if len(codes):
            refused = np.zeros(distinct, bool)
            refused[codes] = True
            detail = f"{len(known)} brokers are known, {len(new)} others reported; {setting}"
            found.append(BeyondBounds(refused[coded.indices.to_numpy()], reason, detail))
    return found


def _hashes(names: list[str], stamp: Round) -> npt.NDArray[Any]:
    key = f"{stamp.epoch} {stamp.seq}".encode()
    return np.array([hashlib.blake2b(name.encode(), key=key).digest() for name in names], "S64")
