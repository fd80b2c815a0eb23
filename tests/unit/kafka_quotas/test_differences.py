"""Where entities overlap: what a group changes beside sharing a number among brokers."""

from __future__ import annotations

import pytest

from quotaplane.groups.scope import Scope, parse_scope
from quotaplane.kafka_quotas.differences import Precedence
from quotaplane.texts import first_few

PRODUCE, UNLIMITED = "producer_byte_rate", 2.0**63


def differences(entity: str, **entities: float) -> list[str]:
    """Lines about an entity that has a fetch quota; ``entities`` have one for producing."""
    found = {parse_scope(entity): {"consumer_byte_rate": 1.0}}
    return _lines(entity, found, entities)


def superseded(entity: str, **entities: float) -> list[str]:
    """Lines about an entity that has a quota for producing, as have ``entities``."""
    return _lines(entity, {parse_scope(entity): {PRODUCE: 1.0}}, entities)


def _lines(
    entity: str, found: dict[Scope, dict[str, float]], entities: dict[str, float]
) -> list[str]:
    found |= {parse_scope(name): {PRODUCE: value} for name, value in entities.items()}
    lines = list(Precedence(found).differences(parse_scope(entity)))
    assert all(line.startswith("publish_bytes: ") for line in lines)
    return lines


@pytest.mark.parametrize(
    ("entity", "other"),
    [
        ("user=a,client=x", "user=a"),
        ("user=a,client=x", "user=<default>"),
        ("user=a,client=x", "client=x"),
        ("user=a,client=x", "client=<default>"),
        ("user=a", "client=x"),
    ],
)
def test_a_wider_entity_counts_the_requests_no_longer(entity: str, other: str) -> None:
    (line,) = differences(entity, **{other: 5.0})
    assert f"no longer counted for {other}; each" in line


@pytest.mark.parametrize(
    ("entity", "other"),
    [
        # Each of these has a bucket for exactly the same requests.
        ("user=a,client=x", "user=a,client=<default>"),
        ("user=a,client=x", "user=<default>,client=x"),
        ("user=a,client=x", "user=<default>,client=<default>"),
        ("user=a", "user=<default>"),
        ("user=a", "user=a,client=<default>"),
        ("user=a", "user=a,client=x"),
        ("client=x", "client=<default>"),
        ("client=x", "user=a"),
        ("user=a,client=x", "user=b"),
        ("user=a,client=x", "client=y"),
    ],
)
def test_where_the_bucket_stays_nothing_is_said(entity: str, other: str) -> None:
    assert differences(entity, **{other: 5.0}) == []


def test_a_level_between_hides_the_wider_one() -> None:
    between = {"user=<default>,client=x": 1.0, "client=x": 5.0}
    assert differences("user=a,client=x", **between) == differences("user=a", **between) == []


@pytest.mark.parametrize(
    ("entity", "other", "value"),
    [
        ("user=a", "user=a,client=<default>", 5.0),
        ("user=a", "user=a,client=x", UNLIMITED),
        ("client=x", "user=<default>", 5.0),
        ("client=x", "user=<default>,client=x", 5.0),
        ("client=x", "user=<default>,client=<default>", 5.0),
        ("client=x", "user=b,client=<default>", 5.0),
        ("client=x", "user=b", UNLIMITED),
    ],
)
def test_an_entity_without_a_group_that_kafka_prefers_is_named(
    entity: str, other: str, value: float
) -> None:
    (line,) = superseded(entity, **{other: value})
    assert f"the group's quota holds in place of {other}, which Kafka prefers" in line


@pytest.mark.parametrize(
    ("entity", "other"),
    [
        # Those with groups of their own are preferred as before.
        ("client=x", "user=b"),
        ("user=a", "user=a,client=x"),
        # Kafka looks for these later, or never.
        ("user=a", "user=<default>,client=<default>"),
        ("client=x", "client=<default>"),
        ("client=x", "user=<default>,client=y"),
        ("user=a,client=x", "user=a,client=<default>"),
    ],
)
def test_what_kafka_does_not_prefer_is_not_named(entity: str, other: str) -> None:
    assert superseded(entity, **{other: 5.0}) == []


def test_dimensions_with_the_same_difference_have_one_line() -> None:
    both = {PRODUCE: 1.0, "request_percentage": 1.0}
    found = {Scope("a", None): both, Scope("a", "x"): {"consumer_byte_rate": 1.0}}
    (line,) = Precedence(found).differences(Scope("a", "x"))
    assert line.startswith("publish_bytes, request_ms: no longer counted for user=a; ")


def test_of_many_only_a_few_are_named() -> None:
    (line,) = differences("user=a", **{f"client={number}": 1.0 for number in range(10)})
    assert "client=0, client=1, client=2 and 7 more" in line


def test_names_are_listed_once_for_all_entities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing 20,000 client ids for each of 20,000 users took minutes."""
    lists: list[int] = []

    def counted(texts: list[str], most: int) -> str:
        lists.append(len(texts))
        return first_few(texts, most)

    monkeypatch.setattr("quotaplane.kafka_quotas.differences.first_few", counted)
    users = {Scope(str(number), None): {"consumer_byte_rate": 1.0} for number in range(50)}
    clients = {Scope(None, str(number)): {PRODUCE: 1.0} for number in range(50)}
    precedence = Precedence(users | clients)
    assert all(len(list(precedence.differences(user))) == 1 for user in users)
    assert sum(lists) == len(clients)
