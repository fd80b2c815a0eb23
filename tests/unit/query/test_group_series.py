"""One group over time: buckets, means, limits in force, quotas, reasons of changes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.model import RATE_COLUMNS
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_series import MOST_BROKERS, group_series
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.history.history_cases import INF, NOON_MS, limits, rejected
from tests.unit.query.audit_cases import given, used, write
from tests.unit.server.server_cases import Served, viewer_of
from tests.unit.sim.recorded_history import at

S = 1000


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Broker a: 10/s in the first minute, 30/s in the second, then silent; b: 5/s in the first.

    Broker a is limited to 20 from 0:30 on and to 40 from 1:30 on.
    """
    made = History(path=str(tmp_path_factory.mktemp("series") / "history"))
    minute: Any = {"throttled": 1.0, "window_ms": 60 * S}
    changed = limits([("a", "g", 40.0)], quota=50.0)
    numbers = pa.array([[80.0, 2.0]], pa.list_(pa.float64()))
    happened = {
        30: given(("a", "g", 20.0), ("a", "other", 7.0), quota=50.0),
        60: used(60, ("a", "g", 10.0), ("b", "g", 5.0), ("a", "other", 1e6), **minute),
        90: {"limits": changed.append_column("publish_messages_reason_numbers", numbers)},
        120: used(120, ("a", "g", 30.0), **minute),
    }
    write(made, happened)
    return made


def asked(history: History, since: float, until: float, points: int = 300, **more: str) -> dict:  # type: ignore[type-arg]
    with DuckDBEngine(history) as engine:
        return group_series(
            engine, "g", more.get("dimension", "publish_messages"), at(since), at(until), points
        )


def test_means_peaks_and_limits_of_each_broker(history: History) -> None:
    found = asked(history, 0, 180, points=3)
    assert (found["step_ms"], found["begin_ms"]) == (60 * S, NOON_MS)
    assert found["times"] == [NOON_MS, NOON_MS + 60 * S, NOON_MS + 120 * S]
    assert found["brokers_total"] == 2
    a, b = found["brokers"]
    assert (a["broker"], b["broker"]) == ("a", "b")
    # What is not reported again counts as unchanged, for five windows.
    np.testing.assert_allclose(a["used_per_s"], [10, 30, 30])
    np.testing.assert_allclose(a["peak_per_s"], [10, 30, 30])
    np.testing.assert_allclose(a["throttled_per_s"], [1, 1, 1])
    # In force from 0:30 on: nothing is known of the first half of the first minute.
    np.testing.assert_allclose(a["limit_per_s"], [20, 30, 40])
    np.testing.assert_allclose(b["used_per_s"], [5, 5, 5])
    assert np.isnan(b["limit_per_s"]).all()


def test_a_silent_broker_uses_nothing_that_is_known(history: History) -> None:
    a, b = asked(history, 240, 480, points=4)["brokers"]
    np.testing.assert_allclose(a["used_per_s"], [30, 30, 30, np.nan])
    np.testing.assert_allclose(b["used_per_s"], [5, 5, np.nan, np.nan])


def test_a_limit_from_before_the_period_holds_in_it(history: History) -> None:
    (a,) = asked(history, 100, 110, points=10)["brokers"][:1]
    assert a["limit_per_s"] == [40.0] * 10
    assert a["used_per_s"] == [30.0] * 10
    assert a["peak_per_s"] == [30.0] * 10
    assert [r["reason"] for r in asked(history, 100, 110)["reasons"]] == []


def test_changes_of_limits_have_their_reasons_the_newest_first(history: History) -> None:
    found = asked(history, 0, 180)
    assert found["reasons_total"] == 2
    assert [(r["at_ms"], r["broker"], r["limit_per_s"]) for r in found["reasons"]] == [
        (NOON_MS + 90 * S, "a", 40.0),
        (NOON_MS + 30 * S, "a", 20.0),
    ]
    with DuckDBEngine(history) as engine:
        texts = engine.ask(
            "SELECT reason FROM limit_values WHERE resource_group = 'g' "
            "AND dimension = 'publish_messages' ORDER BY round_at DESC"
        ).rows
    assert [r["reason"] for r in found["reasons"]] == [text for (text,) in texts]
    assert "fair share of 80" in found["reasons"][0]["reason"]


def test_nothing_is_known_of_another_dimension_or_group(history: History) -> None:
    found = asked(history, 0, 180, dimension="dispatch_bytes")
    assert found["reasons"] == []
    assert all(np.isnan(line["used_per_s"]).all() for line in found["brokers"])
    with DuckDBEngine(history) as engine:
        none = group_series(engine, "none", "publish_messages", at(0), at(60), 10)
    assert (none["brokers"], none["brokers_total"], none["reasons_total"]) == ([], 0, 0)
    assert len(none["quota_per_s"]) == len(none["times"])


def test_the_quota_changes_when_it_was_changed(tmp_path: Path) -> None:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    before = datetime.now(timezone.utc)
    for rate in (100.0, 300.0):
        put_groups(history, ["g"], np.array([[rate] + [INF] * (len(RATE_COLUMNS) - 1)]), "ann")
    with DuckDBEngine(history) as engine:
        until = before + timedelta(minutes=10)
        since = before - timedelta(minutes=10)
        found = group_series(engine, "g", "publish_messages", since, until, 1000)
        bytes_too = group_series(engine, "g", "publish_bytes", since, until, 1000)
    assert np.isnan(found["quota_per_s"][0])  # the group was not defined
    assert found["quota_per_s"][-1] == 300
    assert np.isnan(bytes_too["quota_per_s"]).all()


def test_many_brokers_have_one_line_together(tmp_path: Path) -> None:
    history = History(path=str(tmp_path))
    many = MOST_BROKERS + 3
    rows = [(f"b{place:02d}", "g", float(place + 1)) for place in range(many)]
    write(history, {60: used(60, *rows, window_ms=60 * S)})
    found = asked(history, 0, 60, points=2)
    assert found["brokers_total"] == many
    assert len(found["brokers"]) == MOST_BROKERS + 1
    assert found["brokers"][0]["broker"] == f"b{many - 1:02d}"
    assert found["brokers"][-1]["broker"] is None
    assert found["brokers"][-1]["used_per_s"] == [1 + 2 + 3] * 2


@pytest.fixture
def served(history: History) -> Served:
    return viewer_of(Path(history.path).parent)


PERIOD = "since=2026-03-01T12:00:00Z&until=2026-03-01T12:03:00Z"


def test_the_route_answers_with_null_for_what_is_not_known(served: Served) -> None:
    found = served.ok("GET", f"/api/v1/series?group=g&{PERIOD}&points=3")
    assert (found["group"], found["dimension"]) == ("g", "publish_messages")
    assert found["brokers"][0]["used_per_s"] == pytest.approx([10, 30, 30])
    assert found["quota_per_s"] == [None] * 3
    assert found["brokers"][1]["limit_per_s"] == [None] * 3


def test_wrong_questions_are_refused(served: Served) -> None:
    for query, reason in (
        ("", "query parameter group"),
        ("group=g&dimension=kittens", "dimension: must be one of publish_messages"),
        ("group=g&since=2026-03-01&until=2026-03-01", "since: must be earlier than until"),
        ("group=g&points=0", "query parameter points"),
        ("group=g&bins=3", "query parameter bins: is not known"),
    ):
        assert reason in served.refused(400, "GET", f"/api/v1/series?{query}")


def test_refused_reports_by_reason_and_sender(tmp_path: Path) -> None:
    def letters(detail: str) -> dict[str, pa.Table]:
        changes = {
            "reason": pa.array(["stale", "stale", "truncated"]),
            "detail": pa.array([detail] * 3),
        }
        table = rejected([NOON_MS] * 3)
        for name, column in changes.items():
            table = table.set_column(table.column_names.index(name), name, column)
        table = table.append_column("reports", pa.array([5, 0, None], pa.int64()))
        return {"rejected_reports": table.append_column("sender", pa.array(["a", "b", None]))}

    history = History(path=str(tmp_path / "history"))
    write(history, {0: letters("first"), 1: letters("second")})
    served = viewer_of(tmp_path)
    found = served.ok("GET", "/api/v1/rejected/summary?since=2026-03-01")
    assert found["total"] == 3
    assert [tuple(row.values())[:3] for row in found["rows"]] == [
        ("stale", "a", 10),
        ("stale", "b", 2),
        ("truncated", None, 2),
    ]
    assert {row["detail"] for row in found["rows"]} == {"second"}
    assert served.ok("GET", "/api/v1/rejected/summary?since=1s")["rows"] == []
