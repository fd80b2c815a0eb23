"""Scopes: one spelling each, Kafka's order of precedence, and who shares what."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import InputError
from quotaplane.groups.resolve import Resolved, resolve, scopes_of
from quotaplane.groups.scope import Scope, decode, encode, is_scope, parse_scope, scope_of

NAMES = ["alice", "bob", "<default>", "a,b=c", "é ~*"]
WHO = [None, "", *NAMES, "zed"]
SCOPES = [
    str(Scope(user, client))
    for user, client in product([None, "<default>", *map(encode, NAMES)], repeat=2)
    if (user, client) != (None, None)
]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_survives_a_scope(name: str) -> None:
    for scope in (scope_of(None, name), scope_of(name, "<default>")):
        text = str(scope)
        assert is_scope(text)
        assert text.isprintable()
        assert text.isascii()
        assert parse_scope(text) == scope
    assert decode(encode(name)) == name


def test_names_are_encoded_as_kafka_does() -> None:
    # SanitizerTest of Kafka has this principal.
    name = "CN=Some characters !@#$%&*()_-+=';:,/~"
    assert encode(name) == (
        "CN%3DSome%20characters%20%21%40%23%24%25%26%2A%28%29_-%2B%3D%27%3B%3A%2C%2F%7E"
    )


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ("user=", "user: must not be empty"),
        ("client=", "client: must not be empty"),
        ("user=a,client=", "client: must not be empty"),
        ("client=c,user=u", "must be user=NAME, client=NAME or user=NAME,client=NAME, in this"),
        ("user=a,user=b", "in this order"),
        ("user=a,", "a comma in a name is %2C"),
        ("user=a,b", "a comma in a name is %2C"),
        ("user=a, client=b", "in this order"),
        ("user=a b", "user: 'a b' must be written a%20b"),
        ("user=%41", "user: '%41' must be written A"),
        ("user=%FF", "user: '%FF' must be written %25FF"),
        ("user=é", "user: 'é' must be written %C3%A9"),
        ("client=<DEFAULT>", "must be written %3CDEFAULT%3E"),
        ("user=a::b", "scopes are no trees"),
        ("user=a,client=b::c", "scopes are no trees"),
    ],
)
def test_what_is_no_scope_says_why(group: str, problem: str) -> None:
    assert is_scope(group)
    with pytest.raises(InputError) as refused:
        parse_scope(group)
    assert problem in str(refused.value)


@pytest.mark.parametrize("name", ["", "\ud800"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="client: must"):
        scope_of("a", name)


def test_the_order_is_kafkas() -> None:
    order = [
        "user=alice,client=app",
        "user=alice,client=<default>",
        "user=alice",
        "user=<default>,client=app",
        "user=<default>,client=<default>",
        "user=<default>",
        "client=app",
        "client=<default>",
    ]
    shared = [("alice", "app"), ("alice", "app"), ("alice", None)] * 2 + [(None, "app")] * 2
    for turn in range(len(order)):
        has_quota = np.arange(len(order)) >= turn
        found = one(order, has_quota, "alice", "app")
        assert found.definition.tolist() == found.entity_definition.tolist() == [turn]
        assert (found.entity_user[0].as_py(), found.entity_client[0].as_py()) == shared[turn]
    nothing = one(order, np.zeros(8, bool), "alice", "app")
    assert (nothing.definition.tolist(), nothing.entity.tolist()) == ([-1], [-1])
    assert len(nothing.entity_definition) == 0


def one(groups: list[str], has_quota: np.ndarray, user: str, client: str) -> Resolved:
    return resolve(scopes_of(pa.array(groups)), has_quota, pa.array([user]), pa.array([client]))


def test_a_user_called_default_is_not_the_default() -> None:
    groups = ["user=<default>", "user=%3Cdefault%3E"]
    found = one(groups, np.ones(2, bool), "<default>", "app")
    assert found.definition.tolist() == [1]
    assert one(groups, np.ones(2, bool), "%3Cdefault%3E", "app").definition.tolist() == [0]


def test_what_is_no_scope_fits_nobody() -> None:
    groups = ["tenant/ns", "user=a b", "user=", "acme::user=alice"]
    assert one(groups, np.ones(4, bool), "alice", "app").definition.tolist() == [-1]


def plainly(
    groups: list[str], has_quota: list[bool], user: str | None, client: str | None
) -> tuple[int, tuple[str | None, str | None] | None]:
    """Kafka's DefaultQuotaCallback, read off: the definition, and the tags of the bucket."""
    quotas = {group: at for at, group in enumerate(groups) if has_quota[at]}

    def at(user: str | None, client: str | None) -> int | None:
        return quotas.get(str(Scope(user, client)))

    u, c = (encode(name) if name else "" for name in (user, client))
    d = "<default>"
    # quotaMetricTags, of more than one type of quotas; of one type, it comes to the same.
    if at(u, c) is not None or at(u, d) is not None:
        tags = (u, c)
    elif at(u, None) is not None:
        tags = (u, "")
    elif at(d, c) is not None or at(d, d) is not None:
        tags = (u, c)
    elif at(d, None) is not None:
        tags = (u, "")
    else:
        tags = ("", c)
    # quotaLimit
    if tags[0] and tags[1]:
        found = [at(u, c), at(u, d), at(d, c), at(d, d)]
    elif tags[0]:
        found = [at(u, None), at(d, None)]
    elif tags[1]:
        found = [at(None, c), at(None, d)]
    else:
        found = []
    for definition in found:
        if definition is not None:
            return definition, (user if tags[0] else None, client if tags[1] else None)
    return -1, None


@pytest.mark.parametrize(
    ("groups", "user", "client", "holds"),
    [
        (["user=alice", "user=alice,client=<default>"], "alice", "", "user=alice"),
        (["user=alice,client=<default>", "user=<default>"], "alice", "", "user=<default>"),
        (["user=alice,client=<default>", "client=<default>"], "alice", "", None),
        (["user=<default>", "user=<default>,client=<default>"], "bob", "", "user=<default>"),
        (["user=<default>,client=<default>"], "", "app", None),
        (["user=<default>,client=<default>", "client=app"], "", "app", "client=app"),
        # Kafka looks among the users, where there is nobody without a name.
        (["user=<default>", "client=app"], "", "app", None),
        (["user=<default>", "client=<default>"], "", "", None),
    ],
)
def test_who_has_no_name_is_nobody_as_in_kafka(
    groups: list[str], user: str, client: str, holds: str | None
) -> None:
    found = one(groups, np.ones(len(groups), bool), user, client)
    wanted = -1 if holds is None else groups.index(holds)
    assert found.definition.tolist() == [wanted]
    assert plainly(groups, [True] * len(groups), user, client)[0] == wanted


@given(
    st.lists(
        st.tuples(st.sampled_from([*SCOPES, "tenant/ns"]), st.booleans()), unique_by=lambda x: x[0]
    ),
    st.lists(st.tuples(st.sampled_from(WHO), st.sampled_from(WHO)), max_size=40),
    st.booleans(),
)
def test_many_requests_are_resolved_as_one_by_one(
    definitions: list[tuple[str, bool]], requests: list[tuple[str | None, str | None]], numpy: bool
) -> None:
    groups, has_quota = [group for group, _ in definitions], [quota for _, quota in definitions]
    users, clients = [user for user, _ in requests], [client for _, client in requests]
    found = resolve(
        scopes_of(pa.array(groups, pa.string())),
        np.array(has_quota, bool),
        np.array(users, object) if numpy else pa.array(users, pa.string()),
        np.array(clients, object) if numpy else pa.chunked_array([clients], pa.string()),
    )
    expected = [plainly(groups, has_quota, *request) for request in requests]
    assert found.definition.tolist() == [definition for definition, _ in expected]
    owners = list(zip(found.entity_user.to_pylist(), found.entity_client.to_pylist(), strict=True))
    assert len(set(owners)) == len(owners) == len(found.entity_definition)
    assert {owner for _, owner in expected} - {None} == set(owners)
    for number, (definition, owner) in zip(found.entity.tolist(), expected, strict=True):
        assert (number < 0) == (owner is None)
        if owner is not None:
            assert owners[number] == owner
            assert found.entity_definition[number] == definition
