"""The least publish rate in bytes: no rate mutes a producer for minutes, and what that costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.enforce.default_rates import default_rates
from quotaplane.enforce.least_bytes import LEAST_BYTES_PER_S, PUBLISH_BYTES, raised_limits
from quotaplane.enforce.subdivide import subdivide
from quotaplane.model import FloatArray
from tests.unit.enforce.enforce_cases import layout_of

FULL_BATCH = 128 * 1024
"""Most bytes that Pulsar's clients put into one batch by default."""
INF = np.inf


def only_bytes(*limits: float) -> FloatArray:
    rates = np.full((len(limits), 4), INF)
    rates[:, PUBLISH_BYTES] = limits
    return rates


def raised(limits: list[float], topics: list[int]) -> list[float]:
    """Raised limits of one group, in published bytes; nothing else is raised."""
    rates = np.repeat(np.array(limits)[:, None], 4, axis=1)
    group, counts = np.zeros(len(limits), np.int64), np.array(topics)
    np.testing.assert_array_equal(raised_limits(rates, group, counts, 0.0), rates)
    found = raised_limits(rates, group, counts)
    others = np.arange(4) != PUBLISH_BYTES
    np.testing.assert_array_equal(found[:, others], rates[:, others])
    answer: list[float] = found[:, PUBLISH_BYTES].tolist()
    return answer


def rates_of(topics: dict[str, str], limits: list[float], usage: list[float]) -> list[float]:
    """Rates in published bytes, as the enforcer computes them for one group."""
    layout = layout_of(topics, "g")
    pairs = layout.pairs
    allowed = raised_limits(only_bytes(*limits), pairs.group, np.diff(pairs.starts))
    used = np.repeat(np.array(usage)[:, None], 4, axis=1)
    none = np.zeros(used.shape, np.bool_)
    rates: list[float] = subdivide(layout, allowed, used, none).rates[:, PUBLISH_BYTES].tolist()
    return rates


def test_a_full_batch_mutes_an_idle_topic_for_less_than_ten_seconds() -> None:
    idle, busy = rates_of({"a": "b1", "b": "b2"}, [1.0, 199_999.0], [0.0, 199_999.0])
    assert idle == LEAST_BYTES_PER_S
    assert FULL_BATCH / idle < 10.0
    assert busy == 199_999


def test_an_idle_topic_beside_a_busy_one_has_the_least_rate_too() -> None:
    rates = rates_of({"a": "b", "b": "b"}, [100_000.0], [0.0, 60_000.0])
    assert rates[0] >= LEAST_BYTES_PER_S


@pytest.mark.parametrize(
    ("limits", "topics", "answer"),
    [
        ([50_000.0, 54_000.0], [9, 9], [52_000.0, 54_000.0]),  # an equal share
        ([1.0, INF], [1, 1], [1.0, INF]),
        ([0.0, 0.0], [1, 1], [0.0, 0.0]),
        # All raises together are a tenth of the limits.
        ([0.0, 0.0, 100_000.0], [1, 1, 1], [5_000.0, 5_000.0, 100_000.0]),
    ],
)
def test_what_is_raised(limits: list[float], topics: list[int], answer: list[float]) -> None:
    assert raised(limits, topics) == answer


def test_more_topics_than_the_limit_has_room_for_share_it() -> None:
    rates = rates_of({f"t{i}": "b" for i in range(10)}, [20_000.0], [0.0] * 10)
    assert sum(rates) <= 20_000


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6) | st.just(INF) | st.just(np.nan), st.integers(1, 50)),
        min_size=1,
        max_size=6,
    )
)
def test_a_raise_is_bounded(pairs: list[tuple[float, int]]) -> None:
    limits, topics = [limit for limit, _ in pairs], [count for _, count in pairs]
    finite = [limit for limit in limits if np.isfinite(limit)]
    sums = sum(more for more in raised(limits, topics) if np.isfinite(more))
    assert sums <= 1.1 * sum(finite) * (1 + 1e-9)
    equal = sum(finite) / max(len(finite), 1)
    for limit, count, more in zip(limits, topics, raised(limits, topics), strict=True):
        if not np.isfinite(limit):
            assert more == pytest.approx(limit, nan_ok=True)
            continue
        assert more >= limit
        assert more <= max(limit, equal * (1 + 1e-9), 0.0)
        assert more <= max(limit, float(LEAST_BYTES_PER_S * count))


def test_a_new_topic_in_a_namespace_has_the_least_rate_too() -> None:
    layout = layout_of({"idle": "b1", "busy": "b2"}, "g")
    safe = only_bytes(1.0, 399_999.0).reshape(2, 1, 4)
    assert default_rates(layout, safe)[0, PUBLISH_BYTES] == LEAST_BYTES_PER_S
