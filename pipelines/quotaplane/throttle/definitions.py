"""The laws and quotas that definitions of groups give to entities with the groups' names."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from quotaplane.arrow import indices_of, one_chunk
from quotaplane.model import DIMENSIONS, MAX_RATE, RATE_COLUMNS, FloatArray, IntArray
from quotaplane.throttle.broker_quotas import laws_and_quotas
from quotaplane.throttle.types import Quotas

_FIELDS: Final = ("rate_per_s", "samples", "window_ms", "hard")
"""Fields of ``Quotas`` that definitions give; bursts follow from the windows."""


def quotas_of(
    definitions: pa.Table, names: pa.StringArray, dimension: IntArray
) -> tuple[IntArray, Quotas]:
    """The laws and quotas of n pairs of name and dimension.

    Args:
        definitions: one row per group: ``group``, and any of ``model.RATE_COLUMNS`` and
            ``throttle`` (terms as text). A rate that is null or missing is unlimited, terms that
            are null or missing are the defaults. A value that ``groups put`` would refuse is
            replaced by the nearest valid one.
        names: (n,)
        dimension: (n,) indexes into ``DIMENSIONS``.

    Returns:
        Laws (n,) as indexes into ``bank.LAWS``, and quotas. The rate of a pair without a quota is
        inf.

    >>> definitions = pa.table({"group": ["a"], "publish_messages_per_s": [5.0]})
    >>> _, quotas = quotas_of(definitions, pa.array(["a", "b"]), np.array([0, 0]))
    >>> quotas.rate_per_s.tolist()
    [5.0, inf]
    """
    place = indices_of(names, one_chunk(definitions["group"]))
    rows = definitions.take(pa.array(place, mask=place < 0))
    texts = np.full(len(names), "", dtype=object)
    if "throttle" in rows.column_names:
        texts[:] = rows["throttle"].fill_null("").to_pylist()
    law, quotas = np.zeros(len(names), np.int64), Quotas.of(np.full(len(names), np.inf))
    for number in np.unique(dimension).tolist():
        of_it = np.flatnonzero(dimension == number)
        rates = _rates(rows, RATE_COLUMNS[number])[of_it]
        given = laws_and_quotas(texts[of_it].tolist(), rates[:, None], [DIMENSIONS[number]])
        law[of_it] = given[0]
        for name in _FIELDS:
            getattr(quotas, name)[of_it] = getattr(given[1], name)
    return law, quotas


def _rates(rows: pa.Table, name: str) -> FloatArray:
    if name not in rows.column_names:
        return np.full(len(rows), np.inf)
    given: FloatArray = rows[name].cast(pa.float64()).fill_null(np.inf).to_numpy()
    known = np.where(np.isnan(given), np.inf, given)
    return np.where(np.isinf(known), np.inf, np.clip(known, 0.0, MAX_RATE))
