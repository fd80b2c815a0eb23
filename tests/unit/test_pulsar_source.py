"""Offsets and options of the Pulsar Data Source: no server, no JVM."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from quotaplane.errors import ConfigError, TransportError
from quotaplane.pulsar.options import full_name, must_read, parse_options
from quotaplane.pulsar.outbox import check_columns
from quotaplane.pulsar.position import EARLIEST, Id, Received, as_offset, from_time, ranges, time_of
from quotaplane.pulsar.reader import Row
from quotaplane.pulsar.rows import batches
from quotaplane.settings import PulsarTransport, Settings, parse_settings
from quotaplane.streams.running import known_failure
from quotaplane.transport.pulsar import source_options

NUMBERS = st.integers(min_value=-1, max_value=2**62)
IDS = st.builds(Id, NUMBERS, NUMBERS, NUMBERS)
URL = {"service_url": "pulsar://host:6650"}


@given(IDS, IDS)
def test_ids_survive_as_text_and_compare_as_numbers(one: Id, two: Id) -> None:
    assert Id.parse(str(one)) == one
    assert (Id.parse(str(one)) < Id.parse(str(two))) == (tuple(one) < tuple(two))


@pytest.mark.parametrize("text", ["", "1:2", "1:2:3:4", "1:2:x", "earliest", " 1:2:3", "1:2:3\n"])
def test_what_is_no_position_is_told(text: str) -> None:
    with pytest.raises(TransportError, match="is no position in a Pulsar topic"):
        Id.parse(text)
    with pytest.raises(TransportError, match="is no position in a live topic"):
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
        ({}, "option service_url: Field required"),
        ({**URL, "topics": "a,a"}, "option topics: names a topic twice"),
        ({**URL, "topics": "a b"}, "'persistent://public/default/a b' is no topic"),
        ({**URL, "topic": "a", "colour": "red"}, "option colour: Extra inputs are not permitted"),
        ({**URL, "topic": "a", "starting": "soon"}, "option starting: String should match"),
        ({**URL, "topic": "a", "max_messages_per_trigger": "0"}, "option max_messages_per_trigger"),
        ({**URL, "topic": "a", "token": "x", "token_file": "y"}, "exclude each other"),
        ({**URL, "topic": "a", "oauth2_audience": "x"}, "option oauth2_issuer_url: Field required"),
        ({**URL, "topics_pattern": "a.*"}, "write persistent://tenant/namespace/regular"),
        ({**URL, "topics_pattern": "persistent://t/n/a("}, "'a(' is no regular expression"),
        ({**URL, "topics_pattern": "persistent://t/n/a"}, "topics_pattern needs admin_url"),
        (
            {
                **URL,
                "admin_url": "http://host:8080",
                "topic": "a",
                "topics_pattern": "persistent://t/n/a",
            },
            "exclude each other",
        ),
    ],
)
def test_a_wrong_option_is_named_on_one_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_reader_needs_a_topic_and_a_writer_does_not() -> None:
    options = parse_options({**URL, "checkpointLocation": "somewhere"})
    with pytest.raises(ConfigError, match="needs option topic"):
        must_read(options)
    with pytest.raises(ConfigError, match="is no topic"):
        full_name("persistent://only/two")


def test_secrets_are_in_no_message_and_no_repr() -> None:
    given = {**URL, "topic": "a", "token": "hush", "oauth2_issuer_url": "http://i"}
    with pytest.raises(ConfigError) as caught:
        parse_options(given)
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(parse_options({**URL, "topic": "a", "token": "hush"}))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": "string"}, "no column value"),
        ({"value": "int"}, "column value is int, not binary or string"),
        ({"value": "binary", "colour": "string"}, "column colour is none of key, value"),
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


def pulsar_settings(**throttle: Any) -> Settings:
    return parse_settings(
        {
            "transport": {
                "kind": "pulsar",
                **URL,
                "limits_topic": "persistent://acme/control/limits",
                "security": {"token": "hush", "verify_hostname": False},
            },
            "history": {"path": "history"},
            "checkpoint": "checkpoint",
            "throttle": throttle,
        }
    )


def test_settings_say_the_same_to_the_data_source() -> None:
    transport = pulsar_settings().transport
    assert isinstance(transport, PulsarTransport)
    options = parse_options(source_options(transport))
    assert options.topics == transport.report_topics
    assert options.security == transport.security
    assert options.security.token == SecretStr("hush")
    assert (options.starting, options.max_messages_per_trigger) == ("latest", 5000)


def test_topics_of_the_throttle_job_may_be_full_names() -> None:
    full = "persistent://other/place/events"
    transport = pulsar_settings(events_topic=full).transport
    assert isinstance(transport, PulsarTransport)
    assert transport.full_name(full) == full
    assert transport.full_name("events") == "persistent://acme/control/events"
    for name in ("limits", "persistent://acme/control/limits", "decisions"):
        with pytest.raises(ConfigError, match=r"throttle\.\w+_topic: the topic .* is .*already"):
            pulsar_settings(events_topic=name)
    with pytest.raises(ConfigError, match=r"throttle\.events_topic: only Pulsar has topics like"):
        parse_settings(
            {
                "transport": {"kind": "delta", "path": "topics"},
                "history": {"path": "history"},
                "checkpoint": "checkpoint",
                "throttle": {"events_topic": full},
            }
        )


def test_what_stops_the_source_is_told_by_the_job() -> None:
    said = (
        "[PYTHON_DATA_SOURCE_ERROR] latestOffset: Traceback (most recent call last):\n  File x\n"
        "quotaplane.errors.TransportError: topic 'a': messages after 1:2:3 may be gone\n SQLSTATE"
    )
    failure = known_failure(said)
    assert isinstance(failure, TransportError)
    assert str(failure) == "topic 'a': messages after 1:2:3 may be gone"
