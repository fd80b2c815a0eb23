"""The queries in docs/reference/history.md: each runs and has an answer; some answers are known."""

from __future__ import annotations

from typing import Any

import pytest

from quotaplane.query.answer import Answer
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History
from tests.unit.query.twenty_questions import Question, questions, recorded_day
from tests.unit.sim.recorded_history import at

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(path=str(tmp_path_factory.mktemp("recorded")))
    recorded_day(history)
    return history


def ask(history: History, number: int, until: float = 300) -> Answer:
    (question,) = (each for each in questions() if each.number == number)
    with DuckDBEngine(history) as engine:
        return engine.ask(question.sql, since=at(0), until=at(until))


def columns(answer: Answer, *names: str) -> list[tuple[Any, ...]]:
    places = [answer.columns.index(name) for name in names]
    return [tuple(row[place] for place in places) for row in answer.rows]


def test_there_are_twenty() -> None:
    assert [question.number for question in questions()] == list(range(1, 21))
    assert all(question.text.endswith("?") for question in questions())


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.text)
def test_a_question_has_an_answer(recorded: History, question: Question) -> None:
    answer = ask(recorded, question.number)
    assert answer.rows
    assert all(name.isidentifier() for name in answer.columns)


def test_answers_about_limits_are_right(recorded: History) -> None:
    assert columns(ask(recorded, 1), "resource_group", "broker") == [
        *(("acme/orders", broker) for broker in ("b1", "b2", "b3")),
        *(("acme/quiet", broker) for broker in ("b1", "b2")),
        *(("globex", broker) for broker in ("b1", "b3")),
        *(("globex::batch", broker) for broker in ("b1", "b3")),
    ]
    closest = dict(columns(ask(recorded, 2), "resource_group", "percent"))
    assert closest["acme/quiet"] == pytest.approx(4.0)
    assert closest["acme/logs"] == pytest.approx(100 * 140 / 60)
    of_b1 = columns(ask(recorded, 3), "limit_per_s", "reason")
    limits = [limit for limit, _ in of_b1]
    # First 5 % are the price of the headroom of b3, which needs less as its noise gets known.
    assert limits[0] == pytest.approx(0.95 * 47.5)
    assert limits[:3] == sorted(limits[:3])
    assert limits[2:] == pytest.approx([47.5, 72.5, 50, 70, 110, 70, 40], rel=0.01)
    assert of_b1[-1][1].startswith("saturated at 40, wants 80")
    changes = columns(ask(recorded, 3), "round_at", "limit_per_s")
    for until in (50, 150, 300):
        newest = [change for change in changes if change[0] <= at(until)][-1]
        assert columns(ask(recorded, 14, until), "since", "limit_per_s") == [newest]
    quotas = dict(columns(ask(recorded, 4, until=25), "resource_group", "quota_per_s"))
    assert quotas["acme/orders"] == 150.0
    assert columns(ask(recorded, 8), "resource_group") == [("acme/quiet",)]


def test_answers_about_people_brokers_and_rounds_are_right(recorded: History) -> None:
    assert columns(ask(recorded, 5), "changed_by") == [("ann",), ("bob",), ("eve",)]
    assert columns(ask(recorded, 16), "broker", "status") == [
        ("b1", "live"),
        ("b2", "live"),
        ("b3", "live"),
    ]
    refused = columns(ask(recorded, 17), "reason", "sender")
    assert sorted(refused, key=str) == [("not_protobuf", None), ("unknown_group", "b2")]
    (pause,) = columns(ask(recorded, 19), "from_at", "to_at", "seconds")
    assert pause == (at(199.2), at(300), 100.8)


def test_answers_about_amounts_are_right(recorded: History) -> None:
    by_minute = ask(recorded, 6)
    used = sum(row[0] for row in columns(by_minute, "used"))
    spread = columns(ask(recorded, 10), "broker", "percent")
    assert sum(percent for _, percent in spread if percent) == pytest.approx(100)
    month = columns(ask(recorded, 13, until=90_000), "month", "dimension", "used")
    of_acme = {dimension: amount for _, dimension, amount in month}
    assert 0 < of_acme["publish_messages"] < used
    assert {str(day) for day, _, _ in month} == {"2026-03-01"}
