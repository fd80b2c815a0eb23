"""From what a broker was told to what it enforces: laws and quotas of its groups, by dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quotaplane.model import DIMENSIONS, FloatArray, IntArray
from quotaplane.throttle.bank import LAWS
from quotaplane.throttle.terms import terms_of
from quotaplane.throttle.types import Quotas, ThrottleMode


def held_to(
    throttles: Sequence[str], limits: FloatArray, dimensions: Sequence[str] = DIMENSIONS
) -> tuple[IntArray, Quotas]:
    """What ``bank.begin`` and ``Bank.change`` take, for n groups x d dimensions.

    Args:
        throttles: (n,) texts of terms; "" and what can't be read is the defaults.
        limits: (n, d) per second; inf is none.
        dimensions: the d.

    Returns:
        Codes of laws (n * d,), places in ``bank.LAWS``, and quotas, whose entities are the groups'
        dimensions in turn: that of group i in dimension j is ``i * d + j``.

    >>> texts = ['{"publish_bytes": {"law": "sliding_window", "mode": "hard"}}', ""]
    >>> law, quotas = held_to(texts, np.array([[5.0, 100.0], [6.0, np.inf]]), DIMENSIONS[:2])
    >>> [LAWS[code].value for code in law]
    ['token_bucket', 'sliding_window', 'token_bucket', 'token_bucket']
    >>> quotas.rate_per_s.tolist(), quotas.window_ms.tolist(), quotas.hard.tolist()
    ([5.0, 100.0, 6.0, inf], [1000, 100, 1000, 1000], [False, True, False, False])
    """
    # Many groups have the same text: each is read once.
    place = {text: number for number, text in enumerate(dict.fromkeys(throttles))}
    terms = [terms_of(text, dimension) for text in place for dimension in dimensions]
    group = np.fromiter((place[text] for text in throttles), np.int64, len(throttles))
    d = len(dimensions)
    at = (group[:, None] * d + np.arange(d)).ravel()

    def by_entity(values: Sequence[int]) -> IntArray:
        return np.array(values, np.int64)[at]

    quotas = Quotas(
        rate_per_s=np.asarray(limits, np.float64).reshape(len(at)),
        samples=by_entity([one.samples for one in terms]),
        window_ms=by_entity([one.window_ms for one in terms]),
        hard=by_entity([one.mode is ThrottleMode.HARD for one in terms]).astype(np.bool_),
    )
    return by_entity([LAWS.index(one.law) for one in terms]), quotas
