"""Converts a limits message into a broker's laws and quotas, by group and dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quotaplane.model import DIMENSIONS, FloatArray, IntArray
from quotaplane.throttle.bank import LAWS
from quotaplane.throttle.terms import terms_of
from quotaplane.throttle.types import Quotas, ThrottleMode


def laws_and_quotas(
    throttles: Sequence[str], limits: FloatArray, dimensions: Sequence[str] = DIMENSIONS
) -> tuple[IntArray, Quotas]:
    """Arguments for ``bank.begin`` and ``Bank.change``, for n groups x d dimensions.

    Args:
        throttles: (n,) texts of terms; "" and invalid texts mean the defaults.
        limits: (n, d) per second; inf: no limit.
        dimensions: the d dimensions.

    Returns:
        Laws (n * d,) as indexes into ``bank.LAWS``, and quotas. The entity of group i in dimension
        j is ``i * d + j``.

    >>> texts = ['{"publish_bytes": {"law": "sliding_window", "mode": "hard"}}', ""]
    >>> limits = np.array([[5.0, 100.0], [6.0, np.inf]])
    >>> law, quotas = laws_and_quotas(texts, limits, DIMENSIONS[:2])
    >>> [LAWS[code].value for code in law]
    ['token_bucket', 'sliding_window', 'token_bucket', 'token_bucket']
    >>> quotas.rate_per_s.tolist(), quotas.window_ms.tolist(), quotas.hard.tolist()
    ([5.0, 100.0, 6.0, inf], [1000, 100, 1000, 1000], [False, True, False, False])
    """
    # Many groups have the same text: read each text once.
    place = {text: number for number, text in enumerate(dict.fromkeys(throttles))}
    terms = [terms_of(text, dimension) for text in place for dimension in dimensions]
    group = np.fromiter((place[text] for text in throttles), np.int64, len(throttles))
    d = len(dimensions)
    at = (group[:, None] * d + np.arange(d)).ravel()

    def by_entity(values: Sequence[int]) -> IntArray:
        return np.array(values, np.int64)[at]

    quotas = Quotas(
        rate_per_s=np.asarray(limits, np.float64).reshape(len(at)),
        samples=by_entity([entity_terms.samples for entity_terms in terms]),
        window_ms=by_entity([entity_terms.window_ms for entity_terms in terms]),
        hard=by_entity([entity_terms.mode is ThrottleMode.HARD for entity_terms in terms]).astype(
            np.bool_
        ),
    )
    return by_entity([LAWS.index(entity_terms.law) for entity_terms in terms]), quotas
