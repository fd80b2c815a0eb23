"""``/api/v1``: how things stand, limits and reasons, rounds, audits, of a recorded history."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.query.audit import list_audits
from tests.unit.server.server_cases import Served, record, token, viewer_of

ALL_TIME = "since=2000-01-01"
WANTS = {
    "orders": {"a": [(0, 80.0)], "b": [(0, 80.0)], "c": [(0, 5.0)]},
    "acme": {"a": [(0, 10.0)]},
    "acme::web": {"a": [(0, 20.0)], "b": [(0, 30.0)]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty rounds of three groups of two tenants."""
    folder: Path = tmp_path_factory.mktemp("recorded")
    record(folder, WANTS, {"orders": 100.0, "acme": 50.0, "acme::web": 40.0}, rounds=20)
    return folder


@pytest.fixture
def served(folder: Path) -> Served:
    return viewer_of(folder)


def test_limits_in_force_and_why(served: Served) -> None:
    limits = served.ok("GET", "/api/v1/limits")["limits"]
    assert limits
    assert all(limit["reason"] for limit in limits if limit["limit_per_s"] is not None)
    assert all(limit["lease_ends_at"] > limit["since"] for limit in limits)
    first = limits[0]
    group, broker = first["group"], first["broker"]
    of_group = served.ok("GET", f"/api/v1/limits?group={group}")["limits"]
    assert {limit["group"] for limit in of_group} == {group}
    reasons = served.ok("GET", f"/api/v1/why?group={group}&broker={broker}")["limits"]
    (same,) = [r for r in reasons if r["dimension"] == first["dimension"]]
    assert (same["reason"], same["limit_per_s"]) == (first["reason"], first["limit_per_s"])
    assert "law" in same
    assert same["lease_s"] > 0
    early = f"/api/v1/why?group={group}&at=2001-01-01"
    assert "had no limits at 2001" in served.refused(400, "GET", early)
    assert "query parameter group" in served.refused(400, "GET", "/api/v1/why")
    assert "neither a time" in served.refused(400, "GET", f"{early[:-10]}soon")


def test_a_viewer_of_one_tenant_asks_for_its_groups_only(served: Served) -> None:
    group = served.ok("GET", "/api/v1/limits")["limits"][0]["group"]
    served.token = token(f"viewer:{group.partition('::')[0].partition('/')[0]}")
    served.ok("GET", f"/api/v1/limits?group={group}")
    served.ok("GET", f"/api/v1/why?group={group}")
    served.refused(403, "GET", "/api/v1/limits")
    served.refused(403, "GET", "/api/v1/why?group=another")


def test_brokers_rounds_and_dead_letters(served: Served) -> None:
    brokers = served.ok("GET", "/api/v1/brokers")["brokers"]
    assert brokers
    assert all(broker["status"] for broker in brokers)
    rows = served.ok("GET", f"/api/v1/rounds?{ALL_TIME}&limit=5")["rows"]
    assert len(rows) == 5
    assert [r["seq"] for r in rows] == sorted((r["seq"] for r in rows), reverse=True)
    assert rows[0]["reports"] > 0
    next_rows = served.ok("GET", f"/api/v1/rounds?{ALL_TIME}&limit=1&offset=5")["rows"]
    assert next_rows[0]["seq"] < rows[-1]["seq"]
    assert served.ok("GET", "/api/v1/rounds?since=1s")["rows"] == []
    assert served.ok("GET", f"/api/v1/rejected?{ALL_TIME}")["rows"] == []
    assert served.ok("GET", f"/api/v1/balance?{ALL_TIME}")["rows"] == []
    assert "since" in served.refused(400, "GET", "/api/v1/rounds?since=soon")


PERIODS = [
    *("rounds", "rejected", "balance", "rejected/summary", "audits/conservation"),
    "series?group=orders",
]


@pytest.mark.parametrize("path", PERIODS)
def test_a_period_that_ends_before_it_begins_or_is_out_of_range_is_refused(
    served: Served, path: str
) -> None:
    asked = f"/api/v1/{path}{'&' if '?' in path else '?'}"
    reason = served.refused(400, "GET", f"{asked}since=1h&until=2h")
    assert "query parameter until: " in reason
    assert " is before query parameter since, " in reason
    for query, name in (("since=999999d", "since"), ("since=1h&until=999999d", "until")):
        reason = served.refused(400, "GET", f"{asked}{query}")
        assert reason == f"query parameter {name}: '999999d' must be between 1970 and 2200"


def test_a_moment_out_of_range_is_refused(served: Served) -> None:
    reason = served.refused(400, "GET", "/api/v1/why?group=orders&broker=a&at=999999d")
    assert reason == "query parameter at: '999999d' must be between 1970 and 2200"
    body = {"group": "orders", "since": "999999d", "changes": {"weight": 2}}
    reason = served.refused(400, "POST", "/api/v1/what-if", body)
    assert reason == "body: since: '999999d' must be between 1970 and 2200"


def test_audits(served: Served) -> None:
    listed = {audit["name"]: audit for audit in served.ok("GET", "/api/v1/audits")["audits"]}
    assert set(listed) == {audit.name for audit in list_audits()}
    for name in listed:
        answer = served.ok("GET", f"/api/v1/audits/{name}?{ALL_TIME}")
        assert answer["total"] >= len(answer["rows"]) >= 0
        assert all(len(row) == len(answer["columns"]) for row in answer["rows"])
    one = served.ok("GET", f"/api/v1/audits/exceeded?{ALL_TIME}&set=tolerance=0.5&limit=1")
    assert len(one["rows"]) <= 1
    for query, reason in (
        ("set=tolerant=1", "has no parameter tolerant"),
        ("set=tolerance=-1", "must be 0 or more"),
        ("set=tolerance", "must be 0 or more"),
        ("tolerance=1", "query parameter tolerance: is not known"),
    ):
        assert reason in served.refused(400, "GET", f"/api/v1/audits/exceeded?{query}")
    assert "there is no audit" in served.refused(404, "GET", "/api/v1/audits/none")


def test_no_path_of_a_file_is_an_audit(served: Served, tmp_path: Path) -> None:
    (tmp_path / "own.sql").write_text("SELECT 1")
    for name in (f"{tmp_path}/own.sql", "..%2F..%2Fown.sql", "own.sql"):
        assert served.ask("GET", f"/api/v1/audits/{name}").status_code == 404
