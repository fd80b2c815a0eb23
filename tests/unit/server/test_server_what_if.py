"""``POST /api/v1/what-if``: answers of a recorded history, wrong bodies, empty periods."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.query.buckets import Grid
from quotaplane.registry.table import list_groups
from quotaplane.replay.period import Period
from quotaplane.replay.quick_what_if import KnownPeriod
from quotaplane.server.recorded_periods import KEPT_S, RecordedPeriods, Span
from tests.closed_loop.conftest import START_MS
from tests.unit.server.server_cases import TOKENS, Served, record, settings_with, token, viewer_of

PATH = "/api/v1/what-if"
WANTS = {
    "orders": {"a": [(0, 80.0)], "b": [(0, 80.0)], "c": [(0, 5.0)]},
    "acme::web": {"a": [(0, 60.0)], "b": [(0, 60.0)]},
    "acme::batch": {"a": [(0, 60.0)], "b": [(0, 60.0)]},
}
QUOTAS = {"orders": 100.0, "acme": 80.0, "acme::web": 80.0, "acme::batch": 80.0}


def at(second: float) -> str:
    start = datetime.fromtimestamp(START_MS / 1000, tz=timezone.utc)
    return (start + timedelta(seconds=second)).isoformat()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty rounds of a group with a quota, and of two that share their parent's."""
    folder: Path = tmp_path_factory.mktemp("recorded")
    record(folder, WANTS, QUOTAS, rounds=60)
    return folder


@pytest.fixture
def served(folder: Path) -> Served:
    return viewer_of(folder)


def asked(group: str, **more: Any) -> dict[str, Any]:
    return {"group": group, "since": at(10), "until": at(50), "points": 50, **more}


def only(answer: dict[str, Any]) -> dict[str, Any]:
    (one,) = answer["dimensions"]
    found: dict[str, Any] = one
    return found


def test_without_a_change_nothing_differs(served: Served) -> None:
    answer = served.ok("POST", PATH, asked("orders"))
    assert (answer["group"], answer["step_ms"], len(answer["times"])) == ("orders", 1000, 40)
    assert answer["times"][0] == START_MS + 10_000
    assert (answer["rows"], answer["rows_total"], answer["law"]) == ([], 0, "max_min")
    one = only(answer)
    assert one["dimension"] == "publish_messages"
    assert set(one["quota_per_s"]) == set(one["changed_quota_per_s"]) == {100.0}
    assert [b["broker"] for b in one["brokers"]] == ["a", "b", "c"]
    for line in one["brokers"]:
        assert line["limit_per_s"] == line["changed_limit_per_s"]
    assert one["less_units"] == one["more_units"] == 0
    a = one["brokers"][0]
    assert a["used_per_s"][20] == pytest.approx(47.5, rel=0.05)
    assert a["limit_per_s"][20] == pytest.approx(47.5, rel=0.05)


def test_a_lower_quota(served: Served) -> None:
    answer = served.ok("POST", PATH, asked("orders", changes={"publish_messages_per_s": 50}))
    one = only(answer)
    assert set(one["changed_quota_per_s"]) == {50.0}
    changed = [line["changed_limit_per_s"][20] for line in one["brokers"]]
    assert sum(changed) == pytest.approx(50.0, rel=0.01)
    # For 40 s they use 100 and would have had 50.
    assert one["less_units"] == pytest.approx(40 * 50, rel=0.06)
    assert one["less_s"] == pytest.approx(40)
    rows = answer["rows"]
    assert {row["broker"] for row in rows if row["less_units"] > 0} == {"a", "b"}
    first = datetime.fromisoformat(rows[0]["first_less_at"].replace("Z", "+00:00"))
    assert first.timestamp() * 1000 == START_MS + 10_000
    assert sum(row["less_units"] for row in rows) == pytest.approx(one["less_units"])
    assert list_groups(served.history)["group"].to_pylist() == sorted(QUOTAS)
    row = served.ok("GET", "/api/v1/groups/orders")
    assert row["publish_messages_per_s"] == 100.0  # nothing was written


def test_a_parent_has_the_lines_of_the_groups_below(served: Served) -> None:
    answer = served.ok("POST", PATH, asked("acme", changes={"publish_messages_per_s": 40}))
    one = only(answer)
    assert [line["broker"] for line in one["brokers"]] == ["a", "b"]
    total = sum(line["changed_limit_per_s"][20] for line in one["brokers"])
    assert total == pytest.approx(40.0, rel=0.02)
    assert {row["group"] for row in answer["rows"]} == {"acme::web", "acme::batch"}


def test_another_law(served: Served) -> None:
    answer = served.ok("POST", PATH, asked("orders", law="static"))
    assert answer["law"] == "static"
    changed = {row["broker"]: row["changed_limit_per_s"] for row in answer["rows"]}
    assert changed == pytest.approx(dict.fromkeys("abc", 100 / 3), rel=0.001)
    options = {"law": "pip82", "law_options": {"residual": "proportional"}}
    assert served.ok("POST", PATH, asked("orders", **options))["law"] == "pip82"


def test_unlimited(served: Served) -> None:
    answer = served.ok("POST", PATH, asked("orders", changes={"publish_messages_per_s": None}))
    one = only(answer)
    assert set(one["changed_quota_per_s"]) == {None}
    assert {v for line in one["brokers"] for v in line["changed_limit_per_s"]} == {None}


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"group": "none", "since": "1h"}, 404, "does not exist"),
        ({"since": "1h"}, 400, "group"),
        (asked("orders", changes={"weight": -1}), 400, "changes.weight"),
        (asked("orders", changes={"wait": 1}), 400, "wait"),
        (asked("orders", changes={"quotas": ["write 1 parsec"]}), 400, "changes: quotas"),
        (asked("orders", changes={"group": "acme"}), 400, "changes: group"),
        (asked("orders", law="none"), 400, "law: unknown law"),
        (asked("orders", law="pip82", law_options={"x": 1}), 400, "law_options.x"),
        (asked("orders", law_options={"x": 1}), 400, "name the law"),
        (asked("orders", points=0), 400, "points"),
        ({"group": "orders", "since": "soon"}, 400, "body: since"),
        ({"group": "orders", "since": at(5), "until": at(4)}, 400, "later than since"),
    ],
)
def test_wrong_bodies(served: Served, body: object, status: int, reason: str) -> None:
    assert reason in served.refused(status, "POST", PATH, body)


def test_a_period_without_records_has_empty_series(served: Served) -> None:
    body = {"group": "orders", "since": "2020-01-01", "until": "2020-01-02"}
    answer = served.ok("POST", PATH, {**body, "changes": {"publish_messages_per_s": 5}})
    one = only(answer)
    assert (one["brokers"], answer["rows"]) == ([], [])
    assert set(one["changed_quota_per_s"]) == {5.0}


def test_the_period_is_read_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    first = served.ok("POST", PATH, asked("orders", changes={"publish_messages_per_s": 50}))

    async def nothing(*_: object) -> None:
        raise AssertionError("the history is asked again")

    monkeypatch.setattr(served.services.queries, "ask", nothing)
    second = served.ok("POST", PATH, asked("orders", changes={"publish_messages_per_s": 70}))
    assert only(second)["less_units"] < only(first)["less_units"]


def test_a_viewer_of_another_tenant_is_refused(served: Served) -> None:
    served.token = token("viewer:acme")
    served.ok("POST", PATH, asked("acme::web"))
    served.refused(403, "POST", PATH, asked("orders"))


class FakeQueries:
    """Answers with periods of so many pairs, and counts."""

    def __init__(self, pairs: int) -> None:
        self.pairs, self.asked = pairs, 0

    async def ask(self, key: object, query: object) -> KnownPeriod:
        self.asked += 1
        rates, empty = np.zeros((0, 0, 0)), np.zeros(0, np.int64)
        period = Period(
            0, 1, Grid(0, 1, 1000), (), np.zeros(self.pairs, np.int64), empty, *[rates] * 6
        )
        return KnownPeriod(period, ROWS_OF_ONE, None, rates)  # type: ignore[arg-type]


ROWS_OF_ONE = pa.table({"group": ["g"], "updated_at": [1]})


def test_periods_are_kept_for_a_while_and_not_too_many() -> None:
    now = [0.0]
    queries = FakeQueries(pairs=400)
    settings = settings_with(Path("unused"), TOKENS)
    periods = RecordedPeriods(queries, settings, lambda: now[0])  # type: ignore[arg-type]
    bounds = (datetime.now(timezone.utc), datetime.now(timezone.utc))

    def get(since: str, rows: pa.Table = ROWS_OF_ONE) -> int:
        asyncio.run(periods.get(Span("g", since, None, 300), rows, bounds))
        return queries.asked

    assert [get("1h"), get("1h"), get("2h"), get("1h")] == [1, 1, 2, 2]
    assert get("3h") == 3  # 1.2 million cells are too many: that of an hour goes
    assert [get("2h"), get("1h")] == [3, 4]
    # A definition of the tree was changed.
    assert get("1h", pa.table({"group": ["g"], "updated_at": [2]})) == 5
    now[0] += KEPT_S
    assert get("1h") == 6
