"""Reports that rounds leave out are recorded later: each once, in portions, also after a crash."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from quotaplane.errors import HistoryError, TransportError
from quotaplane.history.left_out import left_out_stretch, skipped_stretches
from quotaplane.history.table_parts import replacing
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import RATE_COLUMNS, THROTTLED_COLUMNS, Round, group_id
from quotaplane.settings import Settings, load_settings
from quotaplane.streams.letter_budget import LetterBudget
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.recorder import Recorder
from quotaplane.transport.base import READ_AGAIN
from quotaplane.wire.reports import encode_report, encode_stock_report
from quotaplane.wire.sender_rules import AllowedBrokers
from tests.histories import make_history
from tests.job import history_table, put_quotas, write_conf, write_round
from tests.unit.agents.condition_cases import Printed
from tests.unit.history.history_cases import NOON_MS

NAN = np.nan


class Topic:
    """One partition, ``r/0``, in memory; offsets as of Kafka's source."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.first = 0
        """The first offset that retention left."""
        self.waits: Callable[[], None] = lambda: None
        """Is called before each few messages; may raise."""
        self.read, self.at_once = 0, 3

    def read_between(self, begin: Any, end: Any) -> Iterator[pa.RecordBatch]:
        first = max(0 if begin is None else begin["r"]["0"], self.first)
        for at in range(first, end["r"]["0"], self.at_once):
            self.waits()
            offsets = range(at, min(at + self.at_once, end["r"]["0"]))
            self.read += len(offsets)
            columns = [
                [self.values[offset] for offset in offsets],
                [NOON_MS + 1000 * offset for offset in offsets],
                [f"r/0@{offset}" for offset in offsets],
                [None for _ in offsets],
                ["r" for _ in offsets],
            ]
            yield pa.record_batch(columns, schema=READ_AGAIN)


def own(sequence: int, group: str = "g", broker: str = "b", **more: Any) -> bytes:
    """A report whose usage is its number."""
    fields = {"groups": [group], "usage": np.array([[float(sequence), NAN]]), **more}
    return encode_report(
        broker=broker, started_at_ms=1, sequence=sequence, window_ms=1000, **fields
    )


class World:
    """A job's tables and topic; ``start`` is a start of its process."""

    def __init__(self, folder: Path, **more: Any) -> None:
        transport = more.pop("transport", {"kind": "delta", "path": str(folder / "topics")})
        self.settings: Settings = load_settings(write_conf(folder, transport, **more))
        make_history(self.settings.history)
        put_quotas(self.settings, g=100.0, h=100.0)
        self.topic = Topic()
        self.seq = 0
        self.now_s, self.heard = 0.0, Printed()
        self.allowed: AllowedBrokers | None = None
        self.start()

    def start(
        self, most_reports: int = 2, most_bytes: int = 1 << 20, checkpoint: str = "checkpoint-1"
    ) -> None:
        self.writer = HistoryWriter(self.settings.history, checkpoint)
        topic: Any = self.topic
        self.recorder = Recorder(
            self.writer,
            topic,
            self.settings,
            lambda: self.allowed,
            most_reports=most_reports,
            most_bytes=most_bytes,
            clock=lambda: self.now_s,
        )

    def send(self, *values: bytes) -> None:
        self.topic.values += values

    def leave_out(self, *offsets: int, epoch: int = 1, until: int | None = None) -> None:
        """A round that read the topic, without these reports."""
        end = {"r": {"0": len(self.topic.values) if until is None else until}}
        stamp = Round(epoch, self.seq, NOON_MS)
        stretches = left_out_stretch([f"r/0@{n}" for n in offsets], {"r": {"0": 0}}, end)
        rows = self.recorder.note(stamp, stretches)
        self.writer.append_round(stamp, {} if rows is None else {"left_out": rows})

    def have_used(self, *reports: tuple[int, bool]) -> None:
        """A round that recorded reports of windows of 2 s: when they were published, and whether
        they counted."""
        n = len(reports)
        rates = dict.fromkeys((*RATE_COLUMNS, *THROTTLED_COLUMNS), pa.nulls(n, pa.float64()))
        times, counted = ([*column] for column in zip(*reports, strict=True))
        rows = {"broker": ["b"] * n, "resource_group": ["g"] * n, "position": ["x"] * n}
        rows |= {"published_at_ms": times, "window_ms": [2000] * n, "counted": counted}
        self.writer.append_round(Round(0, 0, NOON_MS), {"usage": pa.table({**rows, **rates})})

    def know(self, in_changes: str, in_leases: str) -> None:
        """A round with a broker that changed its status, and one that did so too long ago."""
        change = {"broker": [in_changes], "status": ["gone"], "last_seen_at_ms": [NOON_MS]}
        lease = {"shard": [0], "broker": [in_leases], "resource_group": ["g"]}
        lease |= {"broker_status": ["live"], "seen_at_ms": [NOON_MS], "has_limit": [False]}
        leases = replacing(pa.table({**lease, "enforced": [True]}), [0])
        tables = {"brokers": pa.table(change), "leases": leases}
        self.writer.append_round(Round(0, 0, NOON_MS), tables)

    def record(self) -> list[tuple[str, str]]:
        self.seq += 1
        self.now_s += 1.0
        stamp = Round(1, self.seq, NOON_MS + self.seq * 1000)
        self.heard.now_s = self.now_s
        self.recorder.record(stamp, LetterBudget(), self.heard.conditions)
        return self.heard.lines()

    def record_all(self) -> None:
        while self.recorder.reports_waiting:
            self.record()

    def recorded(self) -> list[dict[str, Any]]:
        rows = history_table(self.settings, "usage").to_pylist()
        return sorted(rows, key=lambda row: row["published_at"])

    def used(self) -> list[float]:
        return [row["publish_messages_per_s"] for row in self.recorded()]

    def letters(self) -> list[dict[str, Any]]:
        return history_table(self.settings, "rejected_reports").to_pylist()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_a_round_left_out_is_recorded_once_in_portions_and_does_not_count(
    world: World,
) -> None:
    world.send(*map(own, range(9)))
    world.leave_out(0, 2, 3, 5, 8)
    waiting = []
    for _ in range(5):
        assert world.record() == []
        waiting.append(world.recorder.reports_waiting)
    assert waiting == [3, 1, 0, 0, 0]
    assert world.used() == [0, 2, 3, 5, 8]
    first = world.recorded()[0]
    assert first["counted"] is False
    assert (first["broker"], first["resource_group"], first["position"]) == ("b", "g", "r/0@0")
    assert (first["window_ms"], first["seq"]) == (1000, 1)
    assert world.letters() == []


def test_a_portion_ends_with_the_report_that_reaches_its_bytes(world: World) -> None:
    large = [f"{'x' * 100}{n}" for n in range(20)]
    world.send(*(own(n, groups=large, usage=np.ones((20, 1))) for n in range(6)))
    world.leave_out(*range(6))
    world.start(most_reports=1000, most_bytes=3000)
    world.record()
    # One read is not divided; without the bound all six would be one portion.
    assert world.recorder.reports_waiting == 3


def test_a_portion_ends_after_a_quarter_of_an_interval_however_few_reports_it_found(
    tmp_path: Path,
) -> None:
    """One of 30 reports was left out, and a second passes with each three that are read."""
    world = World(tmp_path, reports={"interval_s": 16.0})
    world.send(*map(own, range(30)))
    world.topic.waits = lambda: setattr(world, "now_s", world.now_s + 1.0)
    world.leave_out(29)
    read = []
    while world.recorder.reports_waiting and len(read) < 9:
        assert world.record() == []
        read.append(world.topic.read)
    assert read == [12, 24, 30]  # and nothing twice
    assert world.used() == [29]


def test_a_round_that_runs_again_notes_nothing_twice(world: World) -> None:
    world.send(*map(own, range(4)))
    world.leave_out(1, 2)
    world.leave_out(1, 2)
    world.start()
    world.leave_out(1, 2)
    world.record()
    world.record()
    assert world.used() == [1, 2]
    assert world.letters() == [], "nothing is missed that was not there"
    assert len(history_table(world.settings, "left_out")) == 1


@pytest.mark.nightly
@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(["", "letters", "usage", "restart"]), max_size=12), st.data())
def test_each_report_is_recorded_once_wherever_the_job_ends(
    tmp_path_factory: pytest.TempPathFactory, ends: list[str], data: st.DataObject
) -> None:
    """A process ends before, between and after the two commits of a portion."""
    world = World(tmp_path_factory.mktemp("world"))
    bad = {4, 9}
    world.send(*(b"?" if n in bad else own(n) for n in range(14)))
    for until in (7, 14):
        chosen = data.draw(st.sets(st.integers(until - 7, until - 1), min_size=1))
        world.leave_out(*chosen, until=until)
        world.seq += 1
    left_out = {
        int(position[4:])
        for row in history_table(world.settings, "left_out").to_pylist()
        for position in row["chosen"]
    }
    append = HistoryWriter.append
    for end in ends:

        def cut_off(self: HistoryWriter, name: str, *given: Any, at: str = end, **more: Any) -> Any:
            done = append(self, name, *given, **more)
            if name == {"letters": "rejected_reports", "usage": "usage"}.get(at):
                raise RuntimeError("killed")
            return done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HistoryWriter, "append", cut_off)
            try:
                world.record()
            except RuntimeError:
                world.start(most_reports=data.draw(st.integers(1, 3)))
        if end == "restart":
            world.start()
    world.record_all()
    assert world.used() == sorted(left_out - bad)
    assert sorted(row["position"] for row in world.letters()) == sorted(
        f"r/0@{n}" for n in left_out & bad
    )


def test_reports_that_retention_took_become_one_letter_and_one_line(world: World) -> None:
    world.send(*map(own, range(8)))
    world.leave_out(*range(8))
    world.topic.first = 5
    world.start(most_reports=100)
    ((kind, text),) = world.record()
    assert kind == "warning"
    assert text.startswith("lost reports: 5 that rounds left out are missing in usage")
    assert world.record() == []
    assert world.used() == [5, 6, 7]
    (letter,) = world.letters()
    assert (letter["reason"], letter["reports"]) == ("gone", 5)
    assert letter["position"] == "r/0@0, r/0@1, r/0@2"
    assert world.recorder.reports_waiting == 0


def unreachable() -> NoReturn:
    raise TransportError("Kafka at k:9092: can't be reached")


def test_a_topic_that_can_not_be_read_is_tried_again_after_a_minute(world: World) -> None:
    world.send(*map(own, range(2)))
    world.leave_out(0, 1)
    world.topic.waits = unreachable
    ((_, text),) = world.record()
    assert text.startswith(
        "unrecorded reports: 2 wait to be recorded in usage: Kafka at k:9092: can't be"
    )
    world.topic.waits = lambda: None
    assert world.record() == []
    assert world.used() == []
    world.now_s += 60
    assert world.record() == [("recovered", "unrecorded reports: over after 62 s")]
    assert world.used() == [0, 1]


def test_the_minute_begins_when_the_topic_was_given_up(world: World) -> None:
    def given_up() -> NoReturn:
        world.now_s += 120
        raise TransportError("Pulsar at p:6650: can't be reached")

    world.send(*map(own, range(2)))
    world.leave_out(0, 1)
    world.topic.waits = given_up
    assert len(world.record()) == 1
    world.topic.waits = lambda: None
    assert world.record() == []
    assert world.used() == []


def test_a_backlog_that_a_start_passed_over_is_read_as_a_whole(world: World) -> None:
    begin, end = {"r": {"0": 2}}, {"r": {"0": 7}}
    world.send(*map(own, range(9)))
    rows = world.recorder.note(Round(1, 0, NOON_MS), skipped_stretches(begin, end))
    assert rows is not None
    assert json.loads(rows["positions"][0].as_py()) == {"from": begin, "to": end}
    world.writer.append_round(Round(1, 0, NOON_MS), {"left_out": rows})
    world.start(most_reports=3)
    world.record_all()
    assert world.used() == [2, 3, 4, 5, 6]
    assert world.topic.read == 5  # nothing of it twice


def test_of_a_backlog_that_was_passed_over_nothing_is_recorded_again(world: World) -> None:
    """A new checkpoint begins far back, and a restart passes over what it has not read yet."""
    begin, end = {"r": {"0": 0}}, {"r": {"0": 9}}
    world.send(*map(own, range(9)))
    recorded_ms = NOON_MS + 4000.0  # of the earlier epoch: reports 0 to 4
    stretches = skipped_stretches(begin, end, recorded_ms)
    rows = world.recorder.note(Round(2, 0, NOON_MS), stretches)
    world.writer.append_round(Round(2, 0, NOON_MS), {} if rows is None else {"left_out": rows})
    world.start(most_reports=2)
    world.record_all()
    assert world.used() == [5, 6, 7, 8]
    assert world.letters() == []


def test_names_and_ids_of_defined_groups_are_recorded_and_repeated_reports_once(
    world: World,
) -> None:
    by_id = {"groups": None, "group_ids": [group_id("h"), group_id("unknown")]}
    both = np.array([[7.0, NAN], [8.0, NAN]])
    stock = np.array([[9.0, 90.0, NAN, NAN]])
    world.send(own(1), own(2, usage=both, **by_id), own(3, group="unknown"), own(1))
    world.send(encode_stock_report("s", ["g"], stock))
    world.leave_out(*range(5))
    world.start(most_reports=100)
    world.record()
    found = [(row["broker"], row["resource_group"]) for row in world.recorded()]
    assert found == [("b", "g"), ("b", "h"), ("s", "g")]
    assert world.used() == [1.0, 7.0, 9.0 / 5]
    (letter,) = world.letters()
    assert letter["reason"] == "unknown_group"
    assert letter["detail"].startswith("2 entries of reports that rounds left out are of groups")
    assert world.recorded()[0]["publish_bytes_per_s"] is None  # unchanged since the report before


@pytest.mark.parametrize(
    ("allowed", "recorded"),
    [
        (AllowedBrokers("the cluster's list", names=frozenset({"new"})), ["left", "new"]),
        (AllowedBrokers("ne*", patterns=("ne*",)), ["new"]),
    ],
)
def test_brokers_that_left_the_clusters_list_meanwhile_are_recorded(
    world: World, allowed: AllowedBrokers, recorded: list[str]
) -> None:
    world.allowed = allowed
    world.know("left", "other")
    senders = ("left", "new", "ghost")
    world.send(*(own(1, broker=broker) for broker in senders))
    world.leave_out(*range(3))
    world.start(most_reports=100)
    world.record()
    assert [row["broker"] for row in world.recorded()] == recorded
    refused = [(letter["reason"], letter["sender"]) for letter in world.letters()]
    assert refused == [("broker_not_allowed", name) for name in senders if name not in recorded]


def test_invented_brokers_are_recorded_up_to_the_bounds_and_known_ones_always(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, reports={"max_brokers": 4})
    world.know("b", "c")
    senders = [*"b12c", *"34b5", *"678c"]
    world.send(*(own(n, broker=broker) for n, broker in enumerate(senders)))
    world.leave_out(*range(len(senders)))
    world.topic.at_once = 2
    world.start(most_reports=4)
    for _ in range(3):
        world.record()
    recorded = [row["broker"] for row in world.recorded()]
    assert [name for name in recorded if name in "bc"] == [*"bcbc"]
    invented = [name for name in recorded if name not in "bc"]
    assert sorted(invented) == ["1", "2"]
    reasons = Counter(letter["reason"] for letter in world.letters())
    assert reasons == {"too_many_brokers": 6}


def test_where_brokers_own_reports_are_stored_observations_are_not_recorded_beside_them(
    world: World,
) -> None:
    world.send(own(1), own(1, observed=True, broker="c"))
    world.leave_out(0, 1)
    world.record()
    assert [row["broker"] for row in world.recorded()] == ["b"]


def test_observations_of_a_time_that_counted_reports_have_are_not_recorded(tmp_path: Path) -> None:
    """An enforcer's clock is behind, or a busy round left them out."""
    observed = "persistent://public/default/observed"
    topics = ["non-persistent://public/default/reports", observed]
    world = World(
        tmp_path,
        transport={"kind": "pulsar", "service_url": "pulsar://h:1", "report_topics": topics}
        | {"admin_url": "http://h:2", "limits_topic": "persistent://public/default/limits"},
        enforce={"report_topic": observed},
    )
    world.have_used((NOON_MS + 3000, True), (NOON_MS + 9000, False))
    for sequence in range(11):
        world.send(own(sequence, observed=True))
    world.leave_out(*range(11))
    world.record_all()
    found = {row["publish_messages_per_s"] for row in world.recorded() if row["position"][0] == "r"}
    assert found == {0, 1, 4, 5, 6, 7, 8, 9, 10}  # those of noon and so many seconds


def test_a_new_checkpoint_goes_on_with_what_an_earlier_one_left(world: World) -> None:
    world.send(*map(own, range(6)))
    world.leave_out(0, 1, 2)
    world.record()
    world.start(checkpoint="checkpoint-2")
    world.seq = 0
    world.leave_out(4, 5, epoch=2)
    for _ in range(3):
        world.record()
    assert world.used() == [0, 1, 2, 4, 5]


def test_two_processes_that_record_at_once_record_nothing_twice(world: World) -> None:
    world.send(*map(own, range(6)))
    world.leave_out(*range(6))
    frozen = world.recorder
    frozen.record(Round(1, 7, NOON_MS), LetterBudget(), world.heard.conditions)
    world.start(most_reports=1)
    world.topic.at_once = 2
    world.record()
    assert world.used() == [0, 1, 2, 3]
    with pytest.raises(HistoryError, match="another process writes as quotaplane-recorder"):
        frozen.record(Round(1, 8, NOON_MS), LetterBudget(), world.heard.conditions)
    world.record()
    assert world.used() == [0, 1, 2, 3, 4, 5]


def test_a_row_that_expired_before_its_reports_were_recorded_is_not_forgotten(world: World) -> None:
    world.send(*map(own, range(4)))
    world.leave_out(0, 1)
    world.seq += 1
    world.leave_out(2, 3)
    DeltaTable(f"{world.settings.history.path}/left_out").delete("number = 0")
    ((_, text),) = world.record()
    assert text.startswith("lost reports: 2 that rounds left out are missing in usage")
    assert world.used() == [2, 3]
    (letter,) = world.letters()
    assert (letter["reason"], letter["reports"]) == ("gone", 2)


@pytest.mark.parametrize(("starting", "noted"), [("earliest", NOON_MS + 5.0), ("latest", None)])
def test_a_checkpoint_that_reads_nothing_again_drops_no_usage(
    tmp_path: Path, starting: str, noted: float | None
) -> None:
    """Also of brokers whose clocks are behind the newest report of all."""
    transport = {"kind": "delta", "path": str(tmp_path / "topics"), "starting": starting}
    world = World(tmp_path, transport=transport)
    world.have_used((NOON_MS + 5, True))
    write_round(world.settings.history, 1)
    assert QuotaSpec(world.settings).checkpoint_note["earlier_recorded_ms"] == noted
