"""Messages that are sent to Pulsar, and those that can't be: fakes, no server."""

from __future__ import annotations

from datetime import datetime, timezone
from unittest.mock import Mock

import pulsar
import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType

from quotaplane.errors import ConfigError, TransportError
from quotaplane.pulsar.producer import Outgoing, PulsarOutbox, write_rows
from quotaplane.pulsar.source import PulsarDataSource
from tests.unit.pulsar.pulsar_cases import OPTIONS, TOPIC, URL


def test_a_dead_cluster_is_waited_for_once() -> None:
    producer = Mock(flush=Mock(side_effect=pulsar.Timeout))
    producer.send_async.side_effect = lambda _, keep, **__: keep(pulsar.Result.Timeout, None)
    outbox = PulsarOutbox(OPTIONS, Mock(create_producer=Mock(return_value=producer)))
    with pytest.raises(TransportError, match="did not accept 1 bytes for 'k': no answer in time"):
        outbox.send([Outgoing(TOPIC, "k", b"x")] * 1000)
    assert producer.send_async.call_count == 1


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            Row(value=b"x", event_time=datetime(1969, 12, 31, tzinfo=timezone.utc)),
            r"column event_time: 1969-12-31 .* is before 1970",
        ),
        (Row(value=b"x", properties={"a": "b", "c": None}), "column properties: 'c' is null"),
    ],
)
def test_what_is_no_message_is_told_by_its_column(row: Row, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write_rows(OPTIONS, [TOPIC], [row])


@pytest.mark.parametrize("writer", ["writer", "streamWriter"])
def test_topics_can_only_be_appended_to(writer: str) -> None:
    source = PulsarDataSource({**URL, "topic": "a"})
    schema = StructType().add("value", "binary")
    getattr(source, writer)(schema, False)
    with pytest.raises(ConfigError, match="can only be appended to"):
        getattr(source, writer)(schema, True)
