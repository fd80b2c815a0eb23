"""Which group and quotas are proposed for a namespace whose topics have rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import ClusterError
from quotaplane.groups.names import name_flaw
from quotaplane.pulsar_admin.configured_rates import (
    NO_RATES,
    TopicRate,
    TopicRates,
    rate_in,
    rates_of_brokers,
    rates_of_namespace,
)
from quotaplane.pulsar_admin.quota_proposals import (
    ConfiguredNamespace,
    Proposal,
    State,
    propose,
    taken,
)

inf = math.inf
PUBLISH_100: TopicRates = (TopicRate(100, -1), None, None)


def rates(
    publish: TopicRate | None = None,
    dispatch: TopicRate | None = None,
    subscription: TopicRate | None = None,
) -> TopicRates:
    return publish, dispatch, subscription


def proposed(broker: TopicRates = NO_RATES, name: str = "acme/orders", **known: Any) -> Proposal:
    known = {"parts": {"a": 1}, **known}
    (one,) = propose([ConfiguredNamespace(name, **known)], broker, {}, name_flaw)
    return one


def test_messages_and_bytes_are_always_of_the_same_level() -> None:
    """A topic with a rate in bytes only is unlimited in messages, whatever its namespace has."""
    own = {"b": rates(TopicRate(-1, 5000))}
    one = proposed(rates=PUBLISH_100, parts={"a": 1, "b": 1}, topic_rates=own)
    assert one.state is State.NO_RATE
    assert one.group is None
    begun = [note.partition(":")[0] for note in one.notes[1:]]
    assert begun == ["publish_messages", "publish_bytes"]


def test_what_is_no_quota_is_said() -> None:
    relative = proposed(rates=rates(None, TopicRate(10, -1, relative=True)))
    assert relative.state is State.NO_RATE
    assert "relative to the publish rate" in relative.notes[0]
    subscription = proposed(rates=rates(None, None, TopicRate(10, -1)))
    assert subscription.state is State.NO_RATE
    assert "subscription rates stay" in subscription.notes[0]


def test_quotas_that_pulsar_can_not_store_are_cut() -> None:
    huge = TopicRate(2**31 - 1, 2**63 - 1)
    one = proposed(rates=rates(huge, huge), parts={"a": 3})
    assert one.quotas.tolist() == [2**31 - 1, 1e18, 2**31 - 1, 1e18]
    assert len(one.notes) == 4
    assert all("more than Pulsar can store" in note for note in one.notes)


def test_namespaces_that_get_nothing() -> None:
    assert proposed(rates=PUBLISH_100, parts={}).state is State.NO_TOPICS
    assert proposed().state is State.NO_RATE
    attached = proposed(rates=PUBLISH_100, group="rg")
    assert (attached.state, attached.group) == (State.ATTACHED, "rg")
    assert proposed(rates=PUBLISH_100, failure="403").state is State.FAILED
    own = ConfiguredNamespace("public/q", rates=PUBLISH_100, parts={"limits": 1})
    (left,) = propose([own], NO_RATES, {"public/q": "ours"}, name_flaw)
    assert (left.state, left.notes) == (State.OWN, ("ours",))


def test_names_that_clash_or_can_not_be() -> None:
    names = ("a::b/c", "a/b::c", "a/d", "a::/e", "a/f.taken-over")
    found = [ConfiguredNamespace(name, rates=PUBLISH_100, parts={"t": 1}) for name in names]
    proposals = propose(found, NO_RATES, {}, name_flaw)
    assert [one.state is State.PROPOSED for one in proposals] == [False, False, True, False, False]
    assert proposals[0].notes == ("group a::b::c would have two namespaces",)
    assert "empty part" in proposals[3].notes[0]


def test_a_group_that_exists_is_used_only_with_the_same_quotas() -> None:
    one = proposed(rates=PUBLISH_100)
    assert taken(one, "there", np.array([100, inf, inf, inf])) is one
    other = taken(one, "there", np.array([100, inf, 5, inf]))
    assert other.state is State.TAKEN
    assert "there with other quotas (publish_messages 100, dispatch_messages 5)" in other.notes[0]


NUMBERS = st.sampled_from([-1, 0, 1, 7, 100, 2**31 - 1])
RATES = st.none() | st.builds(
    TopicRate, NUMBERS, NUMBERS, st.sampled_from([1, 2, 3]), st.booleans()
).filter(lambda rate: max(rate.messages, rate.bytes) > 0)
LEVELS = st.tuples(RATES, RATES, RATES)


@given(
    broker=LEVELS,
    level=LEVELS,
    topics=st.lists(st.tuples(st.integers(0, 3), LEVELS), max_size=4),
    others=st.integers(0, 2),
)
def test_the_quota_is_what_each_part_may_use_added_up(
    broker: TopicRates, level: TopicRates, topics: list[tuple[int, TopicRates]], others: int
) -> None:
    one = proposed(
        broker,
        rates=level,
        parts={str(place): parts for place, (parts, _) in enumerate(topics)},
        other_parts=others,
        topic_rates={str(place): own for place, (_, own) in enumerate(topics) if any(own)},
    )
    parts = [own for count, own in topics for _ in range(count)] + [NO_RATES] * others
    for place in range(4):
        kind, unit = divmod(place, 2)
        total = 0.0
        for own in parts:
            rate = own[kind] or level[kind] or broker[kind]
            number = rate[unit] if rate is not None and not rate.relative else -1
            total += number / rate.period_s if rate is not None and number > 0 else inf
        if not parts or total == inf:
            assert one.quotas[place] == inf
        else:
            most = 2**31 - 1 if unit == 0 else 1e18
            assert one.quotas[place] == min(math.ceil(round(total, 6)), most)
            assert one.state is State.PROPOSED


def test_rates_of_a_namespace() -> None:
    dispatch = {"dispatchThrottlingRateInMsg": 50, "dispatchThrottlingRateInByte": -1}
    policies: dict[str, Any] = {
        "publishMaxMessageRate": {"blue": {"publishThrottlingRateInMsg": 9}, "green": {}},
        "topicDispatchRate": {
            "blue": {**dispatch, "relativeToPublishRate": True, "ratePeriodInSecond": 2}
        },
        "subscriptionDispatchRate": {"blue": dispatch},
    }
    found = rates_of_namespace(policies, "blue")
    assert found == (TopicRate(9, -1), TopicRate(50, -1, 2, True), TopicRate(50, -1))
    assert rates_of_namespace(policies, "green") == NO_RATES
    # A rate that the enforcer wrote, and recorded as its own.
    policies["properties"] = {"quotaplane.rates.blue": '{"publish": [[9, -1]]}'}
    assert rates_of_namespace(policies, "blue")[0] is None


def test_rates_of_brokers_are_texts_and_0_is_unlimited() -> None:
    configuration = {
        "maxPublishRatePerTopicInMessages": "40",
        "maxPublishRatePerTopicInBytes": "0",
        "dispatchThrottlingRatePerTopicInMsg": "0",
        "dispatchThrottlingRatePerTopicInByte": "0",
        "dispatchThrottlingRatePerSubscriptionInByte": "5",
        "dispatchThrottlingRateRelativeToPublishRate": "true",
    }
    subscription = TopicRate(-1, 5, relative=True)
    assert rates_of_brokers(configuration) == (TopicRate(40, 0), None, subscription)


@pytest.mark.parametrize(
    "policy", [[], "9", {"publishThrottlingRateInMsg": None}, {"publishThrottlingRateInMsg": 1e999}]
)
def test_an_answer_that_is_no_rate(policy: Any) -> None:
    with pytest.raises(ClusterError, match=r"where: the answer has no valid rates"):
        rate_in(policy, 0, "where")
    with pytest.raises(ClusterError, match="no valid rates"):
        rates_of_namespace({"publishMaxMessageRate": {"blue": policy or [1]}}, "blue")
