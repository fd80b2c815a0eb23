"""``quotaplane status``, ``limits``, ``brokers`` and ``why`` on a recorded history."""

from __future__ import annotations

import csv
import io
import json
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.cli.main import main
from quotaplane.model import RATE_COLUMNS
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_status import group_status, standing_leases
from quotaplane.registry.recorded_rates import AdministratorRate, change_administrator_rates
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from tests.closed_loop.conftest import START_MS
from tests.closed_loop.recorded_loop import RecordedLoop
from tests.histories import make_history
from tests.unit.cli.refusals import refused

WANTS = {
    "orders": {"a": [(0, 80.0)], "b": [(0, 30.0), (3, 80.0)], "c": [(0, 5.0)]},
    "acme": {"a": [(0, 10.0)]},
    "acme::web": {"a": [(0, 20.0)], "b": [(0, 30.0)]},
}
QUOTAS = {"orders": 100.0, "acme": 50.0}
SHARE = (100 - 5) / 2 * 0.975
"""The share of a and of b in orders, within 2.5 %: up to 5 % are the price of c's headroom."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Rounds of three groups, one below another; broker c is silent from round 20 on."""
    history = History(path=str(tmp_path_factory.mktemp("status") / "history"))
    make_history(history)
    rates = np.full((3, len(RATE_COLUMNS)), np.nan)
    rates[:2, 0] = list(QUOTAS.values())
    put_groups(history, ["orders", "acme", "acme::web"], rates, "ann")

    def mangle(reports: list[Any]) -> list[Any]:
        late = reports and reports[0].published_at_ms > START_MS + 20_000
        return [each for each in reports if not (late and each.broker == "c")]

    quotas = {name: {"publish_messages": quota} for name, quota in QUOTAS.items()}
    loop = RecordedLoop(history, WANTS, {**quotas, "acme::web": {}}, mangle=mangle)
    loop.run(24)  # silence of two intervals counts from the round that read the last report
    return history


class Asked:
    """Commands on a history."""

    def __init__(self, history: History, capsys: pytest.CaptureFixture[str]) -> None:
        self.history, self._capsys = history, capsys

    def text(self, *words: str) -> str:
        """Output of a command that must succeed."""
        assert main([*words, "--history", self.history.path]) == 0
        return self._capsys.readouterr().out

    def __call__(self, *words: str) -> Any:
        """Answer of a command that must succeed."""
        return json.loads(self.text(*words, "--json"))


@pytest.fixture
def asked(history: History, capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(history, capsys)


@pytest.fixture
def copied(history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Asked:
    """Commands on a copy of the history, which the test may change."""
    return Asked(History(path=str(shutil.copytree(history.path, tmp_path / "history"))), capsys)


def test_status_shows_each_group_beside_its_quota(asked: Asked) -> None:
    found = asked("status")
    assert found["history"] == asked.history.path
    assert (found["job"]["epoch"], found["job"]["seq"]) == (1, 23)
    groups = {row["group"]: row for row in found["groups"]}
    assert set(groups) == {"orders", "acme"}  # acme::web has no quota of its own
    orders = groups["orders"]
    assert (orders["quota_per_s"], orders["dimension"]) == (100.0, "publish_messages")
    assert orders["saturated"] == 2
    assert orders["used_part"] == pytest.approx(1.0, abs=0.05)
    assert orders["limits_per_s"] == pytest.approx(100.0, rel=1e-6)
    # a and b have what is left over by c: nearly an even share each, which is a third.
    assert orders["worst_share"] == 1.0
    assert groups["acme"]["used_per_s"] == pytest.approx(50.0, abs=3)  # 10, and 40 of the child
    assert found["groups_with_quota"] == 2
    assert (found["brokers_live"], found["brokers_stale"]) == (2, 1)


def test_status_for_people_and_for_scripts(asked: Asked) -> None:
    shown = asked.text("status", "--table", "--top", "1")
    assert f"history  {asked.history.path}\n" in shown
    assert "<- is it running?" in shown  # the rounds are of long ago
    assert "brokers  2 live, 1 stale, 0 gone" in shown
    assert shown.endswith("(1 row)\n")
    rows = list(csv.DictReader(io.StringIO(asked.text("status", "--csv"))))
    assert sorted(row["group"] for row in rows) == ["acme", "orders"]


def test_an_unfair_limit_shows_in_the_worst_share(copied: Asked) -> None:
    rates = np.full((1, len(RATE_COLUMNS)), np.nan)
    rates[0, 0] = 1000.0  # the limits in force are still those of 100
    put_groups(copied.history, ["orders"], rates, "ann")
    with DuckDBEngine(copied.history) as engine:
        status = group_status(standing_leases(engine, datetime.now(timezone.utc)))
    (at,) = np.flatnonzero(status.group == "orders")
    assert status.worst_share[at] == pytest.approx(SHARE / (1000 / 3), rel=0.03)


def test_limits_are_listed_with_their_reasons(asked: Asked) -> None:
    found = asked("limits", "orders")
    kinds = [(row["group"], row["dimension"]) for row in found]
    assert kinds == 3 * [("orders", "publish_messages")]
    by_broker = {row["broker"]: row for row in found}
    assert by_broker["a"]["reason"].startswith("saturated at 4")
    assert by_broker["c"]["reason"].startswith("satisfied: has the ")
    assert [row["broker"] for row in asked("limits", "--broker", "b", "--top", "1")] == ["b"]


def test_limits_and_reasons_show_administrators_rates(copied: Asked) -> None:
    seen = datetime(2026, 11, 27, 8, tzinfo=timezone.utc), "enforcer, process 7 on host h"
    row = "publish", "orders", 5.0, None, "{}"
    topics = [f"persistent://acme/orders/t{i}" for i in range(5)]
    rates = [AdministratorRate("blue", topic, *row, *seen) for topic in topics]
    changes = {(rate.place, rate.kind): rate for rate in rates}
    change_administrator_rates(copied.history, "blue", changes, "test")  # type: ignore[arg-type]
    texts = [
        f"an administrator's rate of 5 messages/s on topic {topic} (seen by enforcer, process 7 on "
        "host h at 2026-11-27T08:00:00Z)"
        for topic in topics[:3]
    ]
    for row_ in copied("limits", "orders"):
        assert row_["administrators_rates"] == [*texts, "and 2 more"]
    assert copied("limits", "acme")[0]["administrators_rates"] == []
    (now,) = copied("why", "orders", "a")
    assert now["administrators_rates"] == [*texts, "and 2 more"]
    assert f"\n  {texts[0]}\n" in copied.text("why", "orders", "a", "--table")
    # Nobody had seen them then.
    (then,) = copied("why", "orders", "a", "--at", "2023-11-14T22:13:40Z")
    assert then["administrators_rates"] == []


def test_brokers_show_who_is_silent(asked: Asked) -> None:
    found = {row["broker"]: row for row in asked("brokers")}
    statuses = {name: row["status"] for name, row in found.items()}
    assert statuses == {"a": "live", "b": "live", "c": "stale"}
    assert found["a"]["group_count"] == 3
    assert found["a"]["limits_reached"] >= 1


def test_why_gives_the_reason_then_and_now(asked: Asked) -> None:
    (now,) = asked("why", "orders", "a")
    assert now["limit_per_s"] == pytest.approx(SHARE, rel=0.03)
    assert now["reason"].startswith("saturated at 4")
    assert now["numbers"]["sharing_brokers"] == 2
    assert (now["enforced"], now["quota_per_s"], now["group_quota_per_s"]) == (True, 100.0, 100.0)
    first = datetime.fromtimestamp(START_MS / 1000 + 1, tz=timezone.utc)
    then = asked("why", "orders", "--at", f"{first:%Y-%m-%dT%H:%M:%SZ}")
    assert [row["broker"] for row in then] == ["a", "b", "c"]
    assert {row["seq"] for row in then} == {0}
    shown = asked.text("why", "orders", "c", "--at", "2023-11-14T22:13:40Z", "--table")
    assert shown.startswith("c  publish_messages: ")
    assert "its latest report (2023-11-14T22:13:40Z): 5 used" in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["why", "nope"], "group 'nope' had no limits at "),
        (["why", "orders", "z"], "broker 'z' had no limit of group 'orders' at "),
        (["why", "orders", "--at", "2001-01-01"], "group 'orders' had no limits at 2001-01-01"),
        (["status", "--top", "-1"], "--top must be 0 or more"),
        (["limits", "--top", "0"], "--top must be 1 or more"),
    ],
)
def test_wrong_questions_are_one_line(
    history: History, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert problem in refused(capsys, *words, "--history", history.path)


def test_before_the_first_round_there_is_nothing_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    asked = Asked(history, capsys)
    found = asked("status")
    assert (found["job"], found["groups"], found["brokers_live"]) == (None, [], 0)
    assert asked("limits") == asked("brokers") == []
