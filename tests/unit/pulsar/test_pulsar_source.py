"""Offsets and options of the Pulsar Data Source: no server, no JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from quotaplane.errors import ConfigError, TransportError
from quotaplane.pulsar import topics
from quotaplane.pulsar.client import open_client
from quotaplane.pulsar.message import Row, batches
from quotaplane.pulsar.options import full_name, must_read, parse_options
from quotaplane.pulsar.position import EARLIEST, Id, Received, as_offset, from_time, ranges, time_of
from quotaplane.pulsar.producer import check_columns
from quotaplane.settings import PulsarConnection, PulsarTransport, Settings
from quotaplane.transport import pulsar as transport_pulsar
from quotaplane.transport.pulsar import PulsarLink, PulsarTopics
from quotaplane.transport.pulsar_options import source_options
from tests.unit.pulsar.pulsar_cases import TOPIC, URL, FakeCluster, FakeSession
from tests.unit.streams.shard_cases import job_settings

NUMBERS = st.integers(min_value=-1, max_value=2**62)
ADMIN = {"admin_url": "http://host:8080"}
IDS = st.builds(Id, NUMBERS, NUMBERS, NUMBERS)


@given(IDS, IDS)
def test_ids_survive_as_text_and_compare_as_numbers(one: Id, two: Id) -> None:
    assert Id.parse(str(one)) == one
    assert (Id.parse(str(one)) < Id.parse(str(two))) == (tuple(one) < tuple(two))


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3:4", "1:2:x", "earliest", " 1:2:3", "1:2:3\n"])
def test_what_is_no_position_is_told(text: str) -> None:
    with pytest.raises(TransportError, match="is not a position in a Pulsar topic"):
        Id.parse(text)
    with pytest.raises(TransportError, match="is not a position in a live topic"):
        Received.parse(text)


@given(st.dictionaries(st.text(max_size=5), IDS.map(str), max_size=5), st.randoms())
def test_equal_offsets_are_equal_texts(positions: dict[str, str], random: Any) -> None:
    shuffled = list(positions.items())
    random.shuffle(shuffled)
    assert json.dumps(as_offset(dict(shuffled))) == json.dumps(as_offset(positions))
    assert as_offset(json.loads(json.dumps(as_offset(positions)))) == positions


def test_what_a_batch_covers_can_be_told_from_its_two_offsets() -> None:
    live = "non-persistent://t/n/live"
    start = {
        "same": "1:1:1",
        "read": "1:1:1",
        "timed": from_time(17),
        "untouched": from_time(17),
        "anew": "9:0:-1",
        live: "17#1",
    }
    end = start | {"read": "1:2:-1", "timed": "1:0:0", "anew": "3:0:-1", live: "17#5"}
    end |= {"appeared": "5:0:0", "empty": EARLIEST}
    assert ranges(start, end) == [
        ("read", "1:1:1", Id(1, 2, -1)),
        ("timed", "@17", Id(1, 0, 0)),
        ("anew", EARLIEST, Id(3, 0, -1)),
        ("appeared", EARLIEST, Id(5, 0, 0)),
    ]
    assert time_of(from_time(17)) == 17


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "option service_url: is required"),
        ({**URL, "topics": "a,a"}, "option topics: names a topic twice"),
        ({**URL, "topics": "a b"}, "'persistent://public/default/a b' is not a topic"),
        ({**URL, "topic": "a", "colour": "red"}, "option colour: is not known"),
        ({**URL, "topic": "a", "starting": "soon"}, "option starting: must match"),
        ({**URL, "topic": "a", "max_messages_per_trigger": "0"}, "option max_messages_per_trigger"),
        ({**URL, "topic": "a", "token": "x", "token_file": "y"}, "exclude each other"),
        ({**URL, "topic": "a", "oauth2_audience": "x"}, "option oauth2_issuer_url: is required"),
        ({**URL, "topics_pattern": "a.*"}, "write persistent://tenant/namespace/regular"),
        ({**URL, "topics_pattern": "persistent://t/n/a("}, "'a(' is not a regular expression"),
        ({**URL, "topics_pattern": "persistent://t/n/[[a]"}, "is not a clear regular expression"),
        ({**URL, "topics_pattern": "persistent://t/n/a"}, "topics_pattern needs admin_url"),
        (
            {**URL, **ADMIN, "topic": "a", "topics_pattern": "persistent://t/n/a"},
            "exclude each other",
        ),
    ],
)
def test_a_wrong_option_is_named_on_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["false", "False", "FALSE"])
def test_a_truth_value_has_the_spellings_of_sparks_own(text: str) -> None:
    assert not parse_options({**URL, "topic": "a", "fail_on_data_loss": text}).fail_on_data_loss


def test_a_reader_needs_a_topic_and_a_writer_does_not() -> None:
    options = parse_options({**URL, "checkpointLocation": "somewhere"})
    with pytest.raises(ConfigError, match="needs option topic"):
        must_read(options)
    with pytest.raises(ConfigError, match="is not a topic"):
        full_name("persistent://only/two")


def test_secrets_are_in_no_message_and_no_repr() -> None:
    given = {**URL, "topic": "a", "token": "hush", "oauth2_issuer_url": "http://i"}
    with pytest.raises(ConfigError) as caught:
        parse_options(given)
    assert "hush" not in str(caught.value)
    local = {"service_url": "pulsar://localhost:6650", "topic": "a", "token": "hush"}
    assert "hush" not in repr(parse_options(local))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": "string"}, "no column value"),
        ({"value": "int"}, "column value is int, not binary or string"),
        ({"value": "binary", "colour": "string"}, "column colour is not one of key, value"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is(
    columns: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_columns(columns)
    check_columns({"value": "binary", "message_id": "string", "publish_time": "timestamp"})


def test_rows_come_in_pieces_that_spark_can_take() -> None:
    row = Row("k", b"x" * 1024, "t", "1:2:3", 1_790_000_000_001, None, {"a": "b"})
    found = list(batches([row] * 40_000))
    assert sum(batch.num_rows for batch in found) == 40_000
    assert max(batch.num_rows for batch in found) == 10_000
    large = list(batches([row._replace(value=b"x" * 9_000_000)] * 5))
    assert [batch.num_rows for batch in large] == [2, 2, 1]
    first = found[0].slice(0, 1).to_pylist()[0]
    assert first["publish_time"].timestamp() == 1_790_000_000.001
    assert (first["event_time"], first["properties"]) == (None, [("a", "b")])


def pulsar_settings() -> Settings:
    transport = {
        "kind": "pulsar",
        **URL,
        "limits_topic": "persistent://acme/control/limits",
        "security": {"token": "hush", "verify_hostname": False},
    }
    return job_settings(transport=transport, security={"allow_cleartext_secrets": True})


def pulsar_transport() -> PulsarTransport:
    transport = pulsar_settings().transport
    assert isinstance(transport, PulsarTransport)
    return transport


def test_settings_say_the_same_to_the_data_source() -> None:
    transport = pulsar_transport()
    options = parse_options(source_options(transport))
    assert options.topics == transport.report_topics
    assert options.security == transport.security
    assert options.security.token == SecretStr("hush")
    assert (options.starting, options.max_messages_per_trigger) == ("latest", 5000)


def test_a_file_is_named_as_settings_and_options_name_it(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with pytest.raises(ConfigError) as caught:
        open_client(parse_options({**URL, "topic": "a", "ca_file": missing}))
    assert str(caught.value).startswith("option ca_file or transport.security.ca_file: ")


def test_what_spark_redacts_already_stays_redacted() -> None:
    session: Any = FakeSession("(?i)url")
    for _ in range(2):
        PulsarTopics(pulsar_transport()).read_reports(session)
    assert session.told == {"spark.sql.redaction.options.regex": "(?i)url|(?i)token|secret"}


def test_a_link_goes_on_while_partitions_are_not_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster([0])
    partitions = Mock(side_effect=[[TOPIC], TransportError("silent"), TransportError("silent")])
    monkeypatch.setattr(transport_pulsar, "PARTITIONS_MAX_AGE_S", 0.0)
    monkeypatch.setattr(transport_pulsar, "open_client", lambda _: cluster)
    monkeypatch.setattr(transport_pulsar, "partitions_of", partitions)
    link = PulsarLink(pulsar_transport(), limits_from="earliest")
    assert [limit.value for limit in link.poll_limits().messages] == [b"0"]
    cluster.script = [1]
    assert [limit.value for limit in link.poll_limits().messages] == [b"1"]
    assert caplog.text.count("continuing with the known partitions") == 1


@pytest.mark.parametrize(
    ("said", "found"), [("12:7", Id(12, 7, -1)), ("12:-1", None), (None, None)]
)
def test_a_ledger_without_an_entry_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, said: str | None, found: Id | None
) -> None:
    def answer(place: PulsarConnection, path: str) -> dict[str, str]:
        assert path.endswith("/persistent/public/default/a/internalStats")
        return {} if said is None else {"lastConfirmedEntry": said}

    monkeypatch.setattr(topics, "_get", answer)
    options = parse_options({**URL, **ADMIN, "topic": "a"})
    assert topics.last_entry(options, "persistent://public/default/a") == found
