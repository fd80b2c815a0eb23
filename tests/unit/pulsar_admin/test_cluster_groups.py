"""Groups that are read from a cluster's answers."""

from __future__ import annotations

import math

import pytest

from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.resource_groups import group_of, rates_of

INF = math.inf


@pytest.mark.parametrize(
    ("rate", "is_"),
    [
        *((rate, INF) for rate in (0, -1, -5, 2**63 - 1, None)),
        *((rate, rate) for rate in (1, 2**31 - 1, 0.5)),
    ],
)
def test_a_rate_of_zero_or_less_or_beyond_all_is_unlimited(rate: float | None, is_: float) -> None:
    assert rates_of({"dispatchRateInBytes": rate, "publishRateInMsgs": 3}) == [3.0, INF, INF, is_]


@pytest.mark.parametrize(
    "answer",
    [
        *(None, "html", [], {}, {"html": 1}, 7),
        *({"publishRateInMsgs": "7"}, {"dispatchRateInMsgs": True}),
    ],
)
def test_what_is_no_group_is_an_error(answer: object) -> None:
    with pytest.raises(ClusterError, match=r"(no|not a) rate"):
        rates_of(answer)


def test_the_group_of_a_namespace() -> None:
    assert group_of({"resource_group_name": "12"}) == "12"
    assert group_of({"resource_group_name": ""}) is None
