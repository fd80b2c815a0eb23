"""Which names reports may have: by key, by topic, by patterns; from rows to dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotabalance.job.job import load_bounds, load_decoder
from quotabalance.wire.load_batch import unpack_loads
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.errors import ConfigError, InputError
from quotaplane.settings import Reports, parse_settings
from quotaplane.settings.transports import belongs, brokers_of, topic_of
from quotaplane.streams.sender_checks import SenderChecks
from quotaplane.streams.sources import Undecoded
from quotaplane.wire.intake import Intake
from quotaplane.wire.report_stock import encode_stock_report
from quotaplane.wire.sender_rules import AllowedBrokers, SenderRules
from tests.unit.balance.load_report_cases import NOW_MS as LOADED_MS
from tests.unit.balance.load_report_cases import load_of
from tests.unit.streams.shard_cases import raw_settings
from tests.unit.streams.shard_cases import usage_report as own
from tests.unit.wire.source_cases import Taken, rows

FULL = "persistent://acme/ops/reports-{broker}"


def stock(broker: str) -> bytes:
    return encode_stock_report(broker, ["g"], np.ones((1, 4)))


def taken(
    values: Sequence[bytes], checks: SenderChecks, intake: Intake | None = None, **columns: Any
) -> tuple[list[tuple[str, int]], dict[str, tuple[str, str, str]]]:
    """Broker and entries of the reports that are used; dead letters by position."""
    ages_s = [number / 1000 for number in range(len(values))]
    found = Taken([rows(values, ages_s, **columns)], intake, checks)
    count = np.bincount(found.entries["report"].to_numpy(), minlength=len(found.brokers))
    return list(zip(found.brokers, count.tolist(), strict=True)), {
        row["position"].partition("@")[2]: (row["reason"], row["sender"], row["detail"])
        for row in found.refused
    }


@pytest.mark.parametrize("encode", [stock, own])
def test_a_report_under_another_key_is_a_dead_letter_with_both_names(encode: Any) -> None:
    values = [encode(name) for name in ("a", "b", "c", "größe", "e")]
    keys = pa.array([b"a", b"a", None, "größe".encode(), b"\xff" * 40], pa.binary())
    used, letters = taken(values, SenderChecks("key"), key=keys)
    assert used == [("a", 1), ("größe", 1)]
    assert {reason for reason, _, _ in letters.values()} == {"other_broker"}
    assert letters["1"][1:] == ("b", "the report names the broker 'b', but its key names 'a'")
    assert letters["2"][2] == "the report names the broker 'c', but its key names none"
    assert [*letters] == ["1", "2", "4"]


def test_a_heartbeat_and_a_report_with_two_names_are_checked_too() -> None:
    heartbeat = own("b", groups=())
    # protobuf takes the last of several values of a field, so this one is of broker "b".
    twice = own("a") + b"\x12\x01b"
    both = stock("a") + b"\x0a\x01b"
    keys = pa.array([b"a", b"a", b"a"], pa.binary())
    used, letters = taken([heartbeat, twice, both], SenderChecks("key"), key=keys)
    assert used == []
    assert {
        pos: (reason, name[-21:]) for pos, (reason, _, name) in letters.items()
    } == dict.fromkeys("012", ("other_broker", "but its key names 'a'"))
    assert [name for name, _ in taken([heartbeat, twice, both], SenderChecks())[0]] == ["b"] * 3


def test_by_topic_each_broker_has_its_own() -> None:
    topics = [
        "persistent://acme/ops/reports-a",
        "persistent://acme/ops/reports-b-partition-3",
        "persistent://acme/ops/reports-b",
        "persistent://acme/ops/others",
        None,
    ]
    checks = SenderChecks.of(Reports(broker_from="topic"), (FULL,))
    used, letters = taken([stock(name) for name in "abcde"], checks, topic=pa.array(topics))
    assert used == [("a", 1), ("b", 1)]
    assert letters["2"][2] == "the report names the broker 'c', but its topic names 'b'"
    assert letters["3"][2] == "the report names the broker 'd', but its topic names none"
    assert [*letters] == ["2", "3", "4"]


def test_brokers_that_no_pattern_allows_are_dead_letters() -> None:
    checks = SenderChecks.of(Reports(allowed_brokers=("b?", "host.*:8080")))
    names = ["b1", "b12", "xb1", "host.a:8080", "hostxa:8080", "host.a:8080\u00e9"]
    used, letters = taken([stock(name) for name in names], checks)
    assert [name for name, _ in used] == ["b1", "host.a:8080"]
    assert letters["1"] == (
        "broker_not_allowed",
        "b12",
        "broker 'b12' is not one of allowed_brokers: b?, host.*:8080",
    )


def test_forged_reports_push_no_report_of_the_broker_out() -> None:
    """Neither among the newest of a broker, nor when a task reads only the newest."""
    few = Intake(older_bytes=0)
    forged = [own("a", sequence=2**60 + n, groups=("g", "h" * 90)) for n in range(40)]
    keys = pa.array([b"x"] * 40 + [b"a"], pa.binary())
    used, letters = taken([*forged, own("a")], SenderChecks("key"), few, key=keys)
    assert used == [("a", 1)]
    assert len(letters) == 40
    assert taken([*forged, own("a")], SenderChecks(), few)[0] == [("a", 2)], "the newest forged one"


def test_the_same_holds_for_load_reports() -> None:
    settings = parse_settings(raw_settings())
    values = [encode_load_report(load_of(name)) for name in ("a", "b", "c")]
    keys = pa.array([b"a", b"a", b"c"], pa.binary())
    allowed = AllowedBrokers("a, b", patterns=("a", "b"))
    rules = SenderRules(keys, "key", allowed)
    messages = Undecoded(values, np.full(3, LOADED_MS), list("012"), LOADED_MS, rules)
    payloads, letters, bundles = load_decoder(load_bounds(settings, 3600.0))(messages)
    loads = unpack_loads([payload for _, payload in payloads])
    assert (loads.reports["broker"].to_pylist(), bundles) == (["a"], 1)
    assert letters["reason"].to_pylist() == ["other_broker", "broker_not_allowed"]


@pytest.mark.parametrize(
    ("names", "topic", "broker"),
    [
        (["r-{broker}"], "r-b.1_x-y", b"b.1_x-y"),
        (["r-{broker}"], "r-", None),
        (["r-{broker}"], "xr-b", None),
        (["r-{broker}"], "r-b:1", None),
        (["r-{broker}"], "r-b\n", None),
        (["r.{broker}.v1", "s-{broker}"], "r.b.v1", b"b"),
        (["r.{broker}.v1", "s-{broker}"], "rxb.v1", None),
        (["r.{broker}.v1", "s-{broker}"], "s-b", b"b"),
        (["shared", "s-{broker}"], "shared", None),
        # Kafka's topics have no such partitions in their names.
        (["s-{broker}"], "s-b-partition-1", b"b-partition-1"),
    ],
)
def test_a_topics_name_gives_the_broker(names: list[str], topic: str, broker: bytes | None) -> None:
    assert brokers_of(names, [topic]) == [broker]
    if broker is not None:
        assert any(topic_of(name, broker.decode()) == topic for name in names)
        assert any(belongs(name, topic) for name in names)


def test_a_name_that_no_topic_can_have_is_an_error_where_it_is_sent() -> None:
    with pytest.raises(InputError, match=r"broker 'pulsar://b1:6650': r-\{broker\} needs names of"):
        topic_of("r-{broker}", "pulsar://b1:6650")


KAFKA = {"kind": "kafka", "bootstrap_servers": "k:1", "limits_topic": "limits"}
PULSAR = {
    "kind": "pulsar",
    "service_url": "pulsar://p:6650",
    "admin_url": "http://p:8080",
    "limits_topic": "persistent://a/b/limits",
}


@pytest.mark.parametrize(
    ("transport", "more", "says"),
    [
        ({"kind": "delta", "path": "t"}, {"broker_from": "topic"}, "a report topic per broker"),
        (KAFKA | {"report_topics": ["r"]}, {"broker_from": "topic"}, "a report topic per broker"),
        (KAFKA | {"report_topics": ["{broker}"]}, {}, "behind some other characters"),
        (KAFKA | {"report_topics": ["r-{broker}{broker}"]}, {}, "only one {broker}"),
        (KAFKA | {"report_topics": ["r-{name}"]}, {}, "only one {broker}"),
        (KAFKA | {"report_topics": ["l{broker}"]}, {}, "'limits' is one of transport.report_topi"),
        (KAFKA | {"report_topics": ["e{broker}"]}, {}, "'enforcer-leader' is one of transport"),
        (PULSAR | {"report_topics": ["persistent://a/{broker}/r"]}, {}, "the topic's own name"),
        (PULSAR | {"report_topics": [FULL, "persistent://a/b/c"]}, {}, "must be the only one"),
        (PULSAR | {"report_topics": [FULL], "admin_url": None}, {}, "needs admin_url"),
        (KAFKA | {"report_topics": ["r"]}, {"allowed_brokers": "cluster"}, "needs transport.kind"),
        (KAFKA | {"report_topics": ["r"]}, {"allowed_brokers": []}, "no broker would be allowed"),
        (KAFKA | {"report_topics": ["r"]}, {"allowed_brokers": ["a", ""]}, "a pattern is empty"),
        (KAFKA | {"report_topics": ["r"]}, {"max_brokers": 0}, "must be at least 1"),
    ],
)
def test_settings_that_bind_no_names_are_errors(
    transport: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says.replace("{", r"\{")):
        parse_settings(raw_settings(transport=transport, reports=more))


def test_settings_of_load_reports_know_one_topic() -> None:
    with pytest.raises(ConfigError, match="all load reports are in loads_topic: use key"):
        parse_settings(raw_settings(transport=PULSAR, balance={"broker_from": "topic"}))
    both = {"broker_from": "key", "allowed_brokers": "cluster"}
    parse_settings(raw_settings(transport=PULSAR, balance=both))
