"""Which group a request belongs to, by the messages that came."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.client.agent import BrokerClient
from quotaplane.client.attachments import ReceivedAttachments
from quotaplane.groups.attachments import PARTS, part_of
from quotaplane.groups.resolve import resolve, scopes_of
from quotaplane.groups.scope import scope_of
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.attachments import AttachmentsMessage, encode_attachments
from quotaplane.wire.signatures import SigningKeys

NAMES = (None, "<default>", "alice", "a b,=%", "größe")
SCOPES = [str(scope_of(user, client)) for user, client in product(NAMES, NAMES) if user or client]


def messages(attached: Mapping[str, str], seq: int = 1) -> list[AttachmentsMessage]:
    """All parts."""
    parts: list[dict[str, str]] = [{} for _ in range(PARTS)]
    for name, group in attached.items():
        parts[part_of(name)][name] = group
    return [
        AttachmentsMessage(part, 1, seq, 0, tuple(found), tuple(found.values()))
        for part, found in enumerate(parts)
    ]


def received(attached: Mapping[str, str]) -> ReceivedAttachments:
    found = ReceivedAttachments()
    for message in messages(attached):
        assert found.apply(message)
    return found


@given(st.lists(st.sampled_from(SCOPES), unique=True))
def test_users_and_clients_have_kafkas_order(scopes: list[str]) -> None:
    """As ``resolve``, which is compared with Kafka's own class."""
    found = received({name: name for name in scopes})
    requests = [
        (user, client)
        for user, client in product(
            ("alice", "a b,=%", "größe", "bob"), ("", "alice", "größe", "x")
        )
    ]
    users, clients = (pa.array(names) for names in zip(*requests, strict=True))
    everywhere = np.ones(len(scopes), np.bool_)
    wanted = resolve(scopes_of(pa.array(scopes, pa.string())), everywhere, users, clients)
    for (user, client), place in zip(requests, wanted.definition.tolist(), strict=True):
        assert found.group_of(user=user, client=client) == (scopes[place] if place >= 0 else None)


def test_without_a_user_only_scopes_of_clients_fit() -> None:
    found = received({"user=<default>": "u", "client=app": "c", "client=<default>": "d"})
    assert found.group_of(client="app") == "c"
    assert found.group_of(client="other") == "d"
    assert found.group_of() is None


def test_a_namespace_counts_before_its_tenant_and_the_longest_beginning_of_a_topic() -> None:
    found = received(
        {
            "tenant=acme": "acme",
            "namespace=acme/orders": "orders",
            "topic=a": "a",
            "topic=abc": "abc",
            "topic=abcd": "abcd",
            "tenants=x": "another kind",
        }
    )
    assert found.group_of(namespace="acme/orders") == "orders"
    assert found.group_of(namespace="acme/other") == found.group_of(tenant="acme") == "acme"
    assert found.group_of(tenant="x") is None
    topics = {name: found.group_of(topic=name) for name in ("", "b", "a", "ab", "abc", "abcde")}
    assert topics == {"": None, "b": None, "a": "a", "ab": "a", "abc": "abc", "abcde": "abcd"}
    assert found.group_of(topic="abc", namespace="acme/orders") == "abc"
    assert found.group_of(topic="b", namespace="acme/orders") == "orders"
    assert found.groups == {"acme", "orders", "a", "abc", "abcd", "another kind"}


def test_the_newest_message_of_a_part_has_all_of_it() -> None:
    found = received({"user=alice": "a", "topic=x": "t"})
    old, newer = (
        next(m for m in messages({"user=alice": group}, seq) if m.names)
        for group, seq in (("old", 1), ("b", 2))
    )
    assert [found.apply(newer), found.apply(newer), found.apply(old)] == [True, False, False]
    assert found.group_of(user="alice") == "b"
    assert found.group_of(topic="xy") == "t"
    assert found.apply(newer._replace(epoch=2, seq=0, names=(), groups=()))
    assert found.group_of(user="alice") is None
    assert found.groups == {"t"}


class Link:
    """Has one portion after the other, and nothing to send to."""

    def __init__(self, *portions: list[bytes]) -> None:
        self._portions = [*portions]

    def poll_limits(self) -> Portion:
        values = self._portions.pop(0) if self._portions else []
        more = bool(self._portions)
        return Portion([Polled("0", value, "") for value in values], more, not more)

    def send_reports(self, reports: object) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


@pytest.mark.parametrize("signed", [False, True])
def test_a_client_polls_attachments_with_its_limits(signed: bool) -> None:
    keys = SigningKeys({"a": "0123456789abcdef0123456789abcdef"}, sign_with="a")
    [value] = [encode_attachments(m) for m in messages({"user=alice": "batch"}) if m.names]
    good = keys.sign(value) if signed else value
    client = BrokerClient(
        Link(),
        "b1",
        now_ms=lambda: 0,
        attachments=Link([b""], [b"junk", good], [value]),
        keys=keys if signed else None,
    )
    assert client.group_of(user="alice") is None
    assert client.poll() == 0
    assert client.group_of(user="alice", client="app") == "batch"
    assert client.attached_groups == {"batch"}
    assert client.refused == (2 if signed else 1), "a message without a value is none"
    assert client.groups == (), "groups are the agent's to have"
