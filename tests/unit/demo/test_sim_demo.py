"""The demo without Spark: its scenario, what is recorded of it, and how it is shown."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from py4j.protocol import Py4JError
from rich.console import Console

from quotaplane.demo.cluster import Director
from quotaplane.demo.live import Screen, print_summary, view
from quotaplane.demo.record import DemoRecord, rate
from quotaplane.demo.report import AuditAnswer, write_report
from quotaplane.demo.run import demo_settings, end_job, fresh_folder
from quotaplane.demo.scenarios import DEMO, DURATION_S, Event, Scenario, Story
from quotaplane.errors import ConfigError
from quotaplane.model import DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.demand_schedule import Change
from quotaplane.wire.limits import encode_limits

PUBLISH = DIMENSIONS[0]

RAISED = Event(3.0, "raised to 100", "put", quota={PUBLISH: 100.0})
WAKES = Event(6.0, "b2 wakes")
SMALL = Scenario(
    brokers=(BrokerSpec("b1"), BrokerSpec("b2"), BrokerSpec("b3")),
    stories=(
        Story(
            "old",
            "raised, then the second wakes, then the third dies",
            {PUBLISH: 60.0},
            (
                Change(0.0, "b1", "old", {PUBLISH: 80.0}),
                Change(6.0, "b2", "old", {PUBLISH: 80.0}),
                Change(0.0, "b3", "old", {PUBLISH: 20.0}),
            ),
            (RAISED, WAKES),
        ),
        Story(
            "new",
            "comes <late> & goes early",
            {PUBLISH: 50.0},
            (Change(0.0, "b2", "new", {PUBLISH: 20.0}),),
            (Event(2.0, "made", "put", quota={PUBLISH: 50.0}), Event(9.0, "deleted", "delete")),
            from_s=2.0,
            until_s=9.0,
        ),
    ),
    events=(Event(10.0, "b3 dies", "die", broker="b3"),),
)


class Groups:
    """Stands in for the table of resource groups."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def put(self, groups, quotas: np.ndarray) -> None:
        assert np.isinf(quotas[:, 1:]).all()
        self.calls += [
            ("put", group, quota) for group, quota in zip(groups, quotas[:, 0], strict=True)
        ]

    def delete(self, groups) -> None:
        self.calls += [("delete", group) for group in groups]


def limit_message(seq: int, broker: str, group: str, limit: float) -> bytes:
    head = {"shard": 0, "epoch": 1, "seq": seq, "issued_at_ms": 0, "lease_ms": 10**6}
    row = np.array([[limit, np.inf, np.inf, np.inf]])
    return encode_limits(broker=broker, **head, groups=[group], limits=row)  # type: ignore[arg-type]


LIMITS = {
    1: {"b1": 38.0, "b2": 2.0, "b3": 20.0},
    5: {"b1": 76.0, "b2": 4.0, "b3": 20.0},
    8: {"b1": 40.0, "b2": 40.0, "b3": 20.0},
    13: {"b1": 50.0, "b2": 50.0},
}
"""Limits of the group ``old`` that come into force in these seconds."""


def directed(scenario: Scenario, record: DemoRecord) -> Director:
    director = Director(scenario, record, lambda groups, quotas: None, lambda groups: None)
    director.open()
    return director


@pytest.fixture(scope="module")
def played() -> tuple[DemoRecord, Director, Groups]:
    """Sixteen seconds of the small scenario, its limits made by hand."""
    record, groups = DemoRecord(SMALL), Groups()
    director = Director(SMALL, record, groups.put, groups.delete)
    director.open()
    for t in range(16):
        director.advance(float(t), 1000 * t)
        limits = LIMITS.get(t, {})
        director.world.receive(limit_message(t, b, "old", limit) for b, limit in limits.items())
        record.add(director.world.interval(float(t), 1000 * t), director.quota)
    return record, director, groups


def test_quotas_are_put_and_deleted_at_their_time(played) -> None:
    record, _, groups = played
    assert groups.calls == [
        ("put", "old", 60.0),
        ("put", "new", 50.0),
        ("put", "old", 100.0),
        ("delete", "new"),
    ]
    old, new = SMALL.stories
    assert record.quota(old, PUBLISH).tolist() == [60.0] * 3 + [100.0] * 13
    assert np.isinf(record.quota(new, PUBLISH)[[0, 1, 15]]).all()
    assert record.quota(new, PUBLISH)[5] == 50.0


def test_a_group_is_reported_after_it_is_known_and_not_when_it_is_deleted(played) -> None:
    record, _, _ = played
    used = record.series("usage", SMALL.stories[1], PUBLISH)[:, 1]
    assert used.tolist() == [0.0] * 4 + [20.0] * 5 + [0.0] * 7


def test_limited_is_said_only_when_every_broker_has_its_limits() -> None:
    director = directed(SMALL, DemoRecord(SMALL))
    director.advance(0.0, 0)
    for number, broker in enumerate(("b1", "b2", "b3"), start=1):
        assert not director.limited(0)
        director.world.receive([limit_message(number, broker, "old", 20.0)])
    assert director.limited(0)


def test_each_event_is_followed_to_the_moment_when_all_is_fair(played) -> None:
    record, _, _ = played
    found = {outcome.event.text: outcome for outcome in record.outcomes()}
    assert found["raised to 100"].settled_s == 2.0
    assert found["b2 wakes"].settled_s == 2.0
    assert found["b3 dies"].settled_s == 3.0
    assert found["b3 dies"].shares == (("b1", 50.0), ("b2", 50.0))
    assert "made" in found
    assert "deleted" not in found


def test_what_never_becomes_fair_is_said_to_be_so() -> None:
    record = DemoRecord(SMALL)
    director = directed(SMALL, record)
    for t in range(12):
        director.advance(float(t), 1000 * t)
        if t == 1:
            limits = LIMITS[1].items()
            director.world.receive(limit_message(1, b, "old", limit) for b, limit in limits)
        record.add(director.world.interval(float(t), 1000 * t), director.quota)
    assert {outcome.settled_s for outcome in record.outcomes() if outcome.story.group == "old"} == {
        None
    }


def test_utilisation_is_what_was_used_of_what_could_be(played) -> None:
    record, _, _ = played
    wanted = 3 * 60.0 + 13 * 100.0  # all of the quotas, in each of 16 s
    assert record.utilisation(SMALL.stories[0]) == pytest.approx(1326.67 / wanted, rel=1e-5)


def test_moved_limits_and_events_are_noted_in_order(played) -> None:
    record, _, _ = played
    notes = [(note.t_s, note.kind, note.text) for note in record.notes]
    assert (3.0, "event", "raised to 100") in notes
    assert (8.0, "limits", "b1 76→40, b2 4→40") in notes
    assert [note.t_s for note in record.notes] == sorted(note.t_s for note in record.notes)


def text_of(*renderables, width: int = 100, **options) -> str:
    console = Console(file=io.StringIO(), width=width, **options)
    for renderable in renderables:
        renderable(console) if callable(renderable) else console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_table_shows_quota_use_and_limits(played) -> None:
    shown = text_of(view(played[0], "all well"))
    old = next(line.split() for line in shown.splitlines() if line.startswith("old"))
    assert old == ["old", "100", "100", "50/50", "50/50", "-"]
    assert "deleted" in next(line for line in shown.splitlines() if line.startswith("new"))
    assert "t = 15 s" in shown
    assert "all well" in shown


def test_the_demos_table_fits_a_terminal_of_100_by_40() -> None:
    record = DemoRecord(DEMO)
    director = directed(DEMO, record)
    for t in range(DURATION_S):
        director.advance(float(t), 1000 * t)
        record.add(director.world.interval(float(t), 1000 * t), director.quota)
        if t % 6:
            continue
        lines = text_of(view(record, "x" * 30), height=40).splitlines()
        assert len(lines) <= 38
        assert max(map(len, lines)) <= 100
        assert not any("…" in line for line in lines[:20])


def test_without_a_terminal_there_are_plain_lines_each_once(played) -> None:
    def twice(console: Console) -> None:
        with Screen(console) as screen:
            screen.show(played[0], "all well")
            screen.show(played[0], "all well")

    shown = text_of(twice, width=60)
    assert shown.count("raised to 100") == 1
    assert shown.count("all well") == 1
    assert "\x1b" not in shown


AUDIT = AuditAnswer(
    "a1", "who & when?", "SELECT 1", ("broker_name", "seconds"), (("b<1>", 1.25), (None, 2))
)


def test_the_summary_tells_each_story_the_facts_and_the_audit(played) -> None:
    facts = {"reports sent": "48"}
    shown = text_of(lambda console: print_summary(console, played[0], facts, AUDIT), width=120)
    for words in ("b2 wakes", "fair within 2 s", "reports sent 48", "who & when?", "b<1>", "1.2"):
        assert words in shown


def test_the_report_opens_offline_and_holds_every_story(played, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report(page, played[0], {"reports sent": "48"}, AUDIT)
    html = page.read_text(encoding="utf-8")
    assert "<script src=" not in html
    assert "<link" not in html
    assert html.count("Plotly.newPlot(") >= 3
    assert "comes &lt;late&gt; &amp; goes early" in html
    assert "b&lt;1&gt;" in html
    assert "fair within 2 s" in html


@pytest.mark.parametrize(
    ("value", "shown"),
    [(999.6, "1k"), (999_600.0, "1M"), (1234.0, "1.2k"), (0.04, "0"), (12.5, "12")],
)
def test_rates_stay_short(value: float, shown: str) -> None:
    assert rate(value) == shown


def test_an_earlier_demos_folder_is_replaced_and_no_other_is_touched(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    fresh_folder(folder)
    (folder / "history").mkdir()
    fresh_folder(folder)
    assert not (folder / "history").exists()
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="neither empty"):
        fresh_folder(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_the_demos_settings_are_settings(tmp_path: Path) -> None:
    settings = demo_settings(tmp_path, "static")
    assert settings.reports.interval_s == 1.0
    assert settings.law.name == "static"
    assert Path(settings.checkpoint).parent == tmp_path


@pytest.mark.parametrize(
    "gone", [ConnectionRefusedError(111, "Connection refused"), Py4JError("Answer is empty")]
)
def test_the_job_ends_quietly_when_a_signal_stopped_spark_too(gone: Exception) -> None:
    class Job:
        @property
        def query(self) -> None:
            raise gone

    end_job(Job())  # type: ignore[arg-type]
