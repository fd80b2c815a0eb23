"""The enforcer's reports of usage: from counters to groups, and onto the topic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
from quotaplane.enforce.agent.usage_publisher import UsagePublisher
from quotaplane.enforce.observed_usage import encode_observation, usage_of_groups
from quotaplane.errors import ConfigError, TransportError
from quotaplane.model import group_id
from quotaplane.pulsar.producer import Outgoing
from quotaplane.pulsar_admin.topic_usage import Sample
from quotaplane.settings import Reports, parse_settings
from quotaplane.topics.topic_layout import Layout, empty_layout
from quotaplane.wire.reports import decode
from quotaplane.wire.shard_inputs import pack_reports, unpack_reports
from tests.unit.enforce.enforce_cluster import NAMESPACE, STOCK, FakePulsar, Running
from tests.unit.pulsar_admin.cluster_cases import Answer

TOPIC = "persistent://public/default/observed"
GROUPS = ("acme", "other")
TOPICS = ("t0", "t1", "t2")
NAN = np.nan


def layout(*brokers: int) -> Layout:
    """Topics t0 and t1 of ``acme`` and t2 of ``other``; ``brokers``: the number of each one's."""
    group, every = np.array([0, 0, 1]), np.arange(3)
    return Layout(("b0", "b1"), GROUPS, TOPICS, group, TOPICS, every, np.array(brokers))


def grown(*messages: float) -> np.ndarray:
    """Counters that grew by so many messages in, and ten bytes each."""
    rows = np.zeros((len(messages), 4))
    rows[:, 0], rows[:, 1] = messages, 10.0 * np.array(messages)
    return rows


def test_usage_is_added_up_by_group() -> None:
    used = usage_of_groups(layout(0, 0, 0), "b0", np.arange(3), grown(10, 20, 7), 2.0)
    assert used.groups == ["acme", "other"]
    assert used.usage.tolist() == [[15, 150, 0, 0], [3.5, 35, 0, 0]]
    # A counter that went backwards makes its dimension unknown.
    growth = grown(10, 20, 7)
    growth[1, 2] = NAN
    used = usage_of_groups(layout(0, 0, 0), "b0", np.arange(3), growth, 1.0)
    np.testing.assert_array_equal(used.usage, [[30, 300, NAN, 0], [7, 70, 0, 0]])
    # A topic of no group is left out.
    used = usage_of_groups(layout(0, 0, 0), "b0", np.array([-1, 2]), grown(100, 7), 1.0)
    assert used.usage[:, 0].tolist() == [0, 7]


def test_a_group_without_topics_on_the_broker_is_not_reported() -> None:
    used = usage_of_groups(layout(0, 0, 1), "b1", np.array([2]), grown(8), 1.0)
    assert used.groups == ["other"]
    none = usage_of_groups(layout(0, 0, 0), "b1", np.array([], int), grown(), 1.0)
    assert encode_observation("b1", none, at_ms=1, window_s=1.0) is None


def test_a_topic_that_has_moved_counts_where_its_counters_are() -> None:
    # The layout still has t1 at b1, but b0 has counters of it since a moment ago.
    used = usage_of_groups(layout(0, 1, 0), "b0", np.arange(3), grown(10, 20, 0), 1.0)
    assert used.usage[0, 0] == 30
    # And b1, which has none any more, reports that the group used nothing there.
    gone = usage_of_groups(layout(0, 1, 0), "b1", np.array([], int), grown(), 1.0)
    assert gone.groups == ["acme"]
    assert gone.usage.tolist() == [[0, 0, 0, 0]]


def decoded(*values: bytes) -> Any:
    times = np.full(len(values), 10_000)
    places = [f"o@{number}" for number in range(len(values))]
    return decode(list(values), times, places, now_ms=10_100, reports=Reports())


def test_a_report_is_read_as_observed_and_beside_others() -> None:
    used = usage_of_groups(layout(0, 0, 0), "b0", np.arange(3), grown(10, 20, 7), 1.0)
    observed = encode_observation("b0", used, at_ms=9_000, window_s=1.0)
    stock = b"\x0a\x02b0\x12\x0d\x0a\x04acme\x12\x05\x08\xac\x02\x10\x03"
    assert observed is not None
    both, plain = decoded(observed, stock), decoded(stock)
    assert both.headers["observed"].to_pylist() == [True, False]
    assert both.headers["sequence"].to_pylist() == [9_000, 10_000]
    assert not both.rejected.num_rows
    assert "observed" not in plain.headers.column_names
    payloads = [payload for one in (plain, both) for _, payload in pack_reports(one, 1)]
    headers, entries = unpack_reports(payloads)
    assert headers["observed"].to_pylist() == [False, True, False]
    assert len(entries) == 4


class Outbox:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []
        self.broken = False

    def send(self, messages: Sequence[Outgoing]) -> None:
        if self.broken:
            raise TransportError("the topic does not answer")
        self.sent += messages


def sample(*messages: float) -> Sample:
    return Sample([*TOPICS], None, grown(*messages), 1.0)


async def test_only_the_newest_report_of_a_broker_waits() -> None:
    outbox, now = Outbox(), [1000.0]
    publisher = UsagePublisher(TOPIC, outbox, lambda: now[0], 5.0, Conditions(print))
    publisher.note(layout(0, 0, 0), "b0", sample(1, 1, 1))
    publisher.note(layout(0, 0, 0), "b0", sample(5, 5, 5))
    publisher.note(layout(0, 0, 1), "b1", sample(2, 2, 2))
    outbox.broken = True
    with pytest.raises(TransportError):
        await publisher.publish()
    outbox.broken = False
    publisher.note(layout(0, 0, 0), "b0", sample(6, 6, 6))
    now[0] = 500.0  # the clock was set back
    publisher.note(layout(0, 0, 0), "b0", sample(7, 7, 7))
    await publisher.publish()
    (message,) = outbox.sent
    assert (message.topic, message.key) == (TOPIC, "b0")
    report = decoded(message.value or b"")
    assert report.entries["publish_messages_per_s"].to_pylist() == [14, 7]
    assert report.headers["sequence"].to_pylist() == [1004]
    assert publisher.sent == 1


async def test_a_group_whose_topics_left_a_broker_is_reported_there_for_a_while() -> None:
    """A stock broker needs up to five report intervals to show that it uses nothing any more."""
    outbox, now = Outbox(), [0.0]
    publisher = UsagePublisher(TOPIC, outbox, lambda: now[0], 5.0, Conditions(print))

    async def rates(at_ms: float, here: Layout) -> list[float]:
        now[0] = at_ms
        loaded = sample(0, 0, 7) if 1 in here.broker else Sample([], None, grown(), 1.0)
        publisher.note(here, "b1", loaded)
        outbox.sent.clear()
        await publisher.publish()
        values = [message.value or b"" for message in outbox.sent]
        if not values:
            return []
        entries = decoded(*values).entries
        assert entries["group_id"].to_pylist() == [group_id("other")]
        return list(entries["publish_messages_per_s"].to_pylist())

    there, moved = layout(0, 0, 1), layout(0, 0, 0)
    assert await rates(1_000, there) == [7]
    assert await rates(2_000, moved) == [0]
    # The placement is read again; no topic has moved.
    assert await rates(3_000, layout(0, 0, 0)) == [0]
    assert await rates(301_999, moved) == [0]
    assert await rates(302_000, moved) == []
    assert await rates(303_000, there) == [7]
    assert await rates(304_000, moved) == [0]
    # Without a topic anywhere it is no group of the cluster any more.
    assert await rates(305_000, empty_layout()) == []


def test_without_live_counters_nothing_is_reported() -> None:
    publisher = UsagePublisher(TOPIC, Outbox(), lambda: 0.0, 5.0, Conditions(print))
    publisher.note(layout(0, 0, 0), "b0", Sample([*TOPICS], grown(1, 1, 1)))
    assert not publisher._waiting


def test_a_window_longer_than_the_brokers_own_is_not_reported() -> None:
    lines: list[str] = []
    publisher = UsagePublisher(TOPIC, Outbox(), lambda: 0.0, 5.0, Conditions(lines.append))

    def reported(*windows_s: float) -> list[bool]:
        found = []
        for window_s in windows_s:
            publisher._waiting.clear()
            one = sample(1, 1, 1)._replace(window_s=window_s)
            publisher.note(layout(0, 0, 0), "b0", one)
            found.append(bool(publisher._waiting))
        return found

    assert reported(1.0, 5.0, 6.0, 1.0) == [True, True, False, True]
    assert not lines, "a single one may be that of a busy moment"
    assert publisher.longest_window_s == 1.0
    assert reported(20.0, 21.0, 22.0) == [False] * 3
    assert publisher.longest_window_s is None
    (line,) = lines
    assert line.startswith("observed usage: b0: its metrics can be read only every 21 s")
    assert reported(2.0, 2.0) == [True, True]
    assert lines[1:] == ["observed usage: over after 0 s"]


class Counting(FakePulsar):
    """Brokers with live counters, which grow by 100 messages with each read."""

    def __init__(self, brokers: int, folder: Path) -> None:
        super().__init__(brokers, folder)
        self.runtime["exposeTopicLevelMetricsInPrometheus"] = "true"
        self.reads = 0
        self.slow = ""
        """Metrics of brokers whose path begins with this take a minute."""
        self.outbox = Outbox()

    def find(self, method: str, path: str) -> Any:
        if path.endswith("metrics/") and self.slow and path.startswith(self.slow):
            return Answer(200, "", delay_s=60.0)
        if path.endswith("metrics/"):
            self.reads += 1
            lines = [
                f'pulsar_in_messages_total{{namespace="{NAMESPACE}",topic="{topic}"}} '
                f"{100 * self.reads}\n"
                for topic in sorted(self.topics)
            ]
            return Answer(200, "".join(lines))
        return super().find(method, path)

    def reporting(self) -> AbstractAsyncContextManager[Running]:
        return self.enforcing(self.outbox, report_topic=TOPIC, report_interval_s=0.5)


@pytest.mark.parametrize("leads", [True, False])
async def test_who_leads_reports_each_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    cluster = Counting(1, tmp_path)
    cluster.add("t", "u")
    monkeypatch.setattr(EnforcerParts, "leads", lambda _: leads)
    async with cluster.reporting() as running:
        if not leads:
            await running.until(lambda: cluster.reads > 6)
            assert not cluster.outbox.sent
            return
        await running.until(lambda: len(cluster.outbox.sent) > 2)
        assert running.enforcer.status().usage_reports > 0
    report = decoded(cluster.outbox.sent[-1].value or b"")
    assert report.entries["group"].to_pylist() == ["g"]
    # Two topics with 100 messages each in a window, however long that was.
    (rate,) = report.entries["publish_messages_per_s"].to_pylist()
    (window_s,) = report.headers["window_s"].to_pylist()
    assert rate * window_s == pytest.approx(200, rel=0.01)


async def test_a_broker_that_does_not_answer_delays_no_other(tmp_path: Path) -> None:
    cluster = Counting(2, tmp_path)
    cluster.add("t")
    sent = cluster.outbox.sent
    async with cluster.reporting() as running:
        await running.until(lambda: len(sent) > 1)
        cluster.slow = "/b1/"
        asked = len(cluster.paths())
        await running.until(lambda: any("/b1/" in p for p in cluster.paths()[asked:]))
        before = len(sent)
        # It is given up after ten seconds or later.
        await running.until(lambda: len(sent) > before + 4, within_s=9.0)


def test_the_job_must_read_the_topic_and_brokers_must_not(cluster: FakePulsar) -> None:
    def settings(report_topic: str, *report_topics: str) -> Any:
        given = json.loads(Path(cluster.conf()).read_text())
        given["transport"]["report_topics"] = report_topics
        return parse_settings(given | {"enforce": {"report_topic": report_topic}})

    assert settings(TOPIC, STOCK, TOPIC).enforce.report_topic == TOPIC
    with pytest.raises(ConfigError, match="is not one of transport"):
        settings(TOPIC, STOCK)
    with pytest.raises(ConfigError, match="brokers read"):
        settings(STOCK, STOCK, TOPIC)
