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
from quotaplane.registry.recorded_rates import (
    AdministratorRate,
    change_administrator_rates,
)
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from tests.closed_loop.conftest import START_MS
from tests.closed_loop.recorded_loop import RecordedLoop
from tests.histories import make_history

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


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_status_shows_each_group_beside_its_quota(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "status", "--history", history.path)
    assert found["history"] == history.path
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


def test_status_for_people_and_for_scripts(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--history", history.path, "--table", "--top", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"history  {history.path}\n" in shown
    assert "<- is it running?" in shown  # the rounds are of long ago
    assert "brokers  2 live, 1 stale, 0 gone" in shown
    assert shown.endswith("(1 row)\n")
    assert main(["status", "--history", history.path, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert sorted(row["group"] for row in rows) == ["acme", "orders"]


def test_an_unfair_limit_shows_in_the_worst_share(history: History, tmp_path: Path) -> None:
    copied = History(path=str(shutil.copytree(history.path, tmp_path / "history")))
    rates = np.full((1, len(RATE_COLUMNS)), np.nan)
    rates[0, 0] = 1000.0  # the limits in force are still those of 100
    put_groups(copied, ["orders"], rates, "ann")
    with DuckDBEngine(copied) as engine:
        status = group_status(standing_leases(engine, datetime.now(timezone.utc)))
    (at,) = np.flatnonzero(status.group == "orders")
    assert status.worst_share[at] == pytest.approx(SHARE / (1000 / 3), rel=0.03)


def test_limits_are_listed_with_their_reasons(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(capsys, "limits", "orders", "--history", history.path)
    assert [(row["group"], row["dimension"]) for row in found] == 3 * [
        ("orders", "publish_messages")
    ]
    by_broker = {row["broker"]: row for row in found}
    assert by_broker["a"]["reason"].startswith("saturated at 4")
    assert by_broker["c"]["reason"].startswith("satisfied: has the ")
    one = answer(capsys, "limits", "--broker", "b", "--top", "1", "--history", history.path)
    assert [row["broker"] for row in one] == ["b"]


def test_limits_and_reasons_show_administrators_rates(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = History(path=str(shutil.copytree(history.path, tmp_path / "history")))
    seen = datetime(2026, 11, 27, 8, tzinfo=timezone.utc), "enforcer, process 7 on host h"
    row = "publish", "orders", 5.0, None, "{}"
    topics = [f"persistent://acme/orders/t{i}" for i in range(5)]
    rates = [AdministratorRate("blue", topic, *row, *seen) for topic in topics]
    changes = {(rate.place, rate.kind): rate for rate in rates}
    change_administrator_rates(copied, "blue", changes, "test")  # type: ignore[arg-type]
    texts = [
        f"an administrator's rate of 5 messages/s on topic {topic} (seen by enforcer, process 7 on "
        "host h at 2026-11-27T08:00:00Z)"
        for topic in topics[:3]
    ]
    place = ("--history", copied.path)
    for row_ in answer(capsys, "limits", "orders", *place):
        assert row_["administrators_rates"] == [*texts, "and 2 more"]
    (other, *_) = answer(capsys, "limits", "acme", *place)
    assert other["administrators_rates"] == []
    (now,) = answer(capsys, "why", "orders", "a", *place)
    assert now["administrators_rates"] == [*texts, "and 2 more"]
    assert main(["why", "orders", "a", *place, "--table"]) == 0
    assert f"\n  {texts[0]}\n" in capsys.readouterr().out
    # Nobody had seen them then.
    (then,) = answer(capsys, "why", "orders", "a", *place, "--at", "2023-11-14T22:13:40Z")
    assert then["administrators_rates"] == []


def test_brokers_show_who_is_silent(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["broker"]: row for row in answer(capsys, "brokers", "--history", history.path)}
    assert {name: row["status"] for name, row in found.items()} == {
        "a": "live",
        "b": "live",
        "c": "stale",
    }
    assert found["a"]["group_count"] == 3
    assert found["a"]["limits_reached"] >= 1


def test_why_gives_the_reason_then_and_now(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--history", history.path)
    (now,) = answer(capsys, "why", "orders", "a", *place)
    assert now["limit_per_s"] == pytest.approx(SHARE, rel=0.03)
    assert now["reason"].startswith("saturated at 4")
    assert now["numbers"]["sharing_brokers"] == 2
    assert (now["enforced"], now["quota_per_s"], now["group_quota_per_s"]) == (True, 100.0, 100.0)
    first = datetime.fromtimestamp(START_MS / 1000 + 1, tz=timezone.utc)
    then = answer(capsys, "why", "orders", *place, "--at", f"{first:%Y-%m-%dT%H:%M:%SZ}")
    assert [row["broker"] for row in then] == ["a", "b", "c"]
    assert {row["seq"] for row in then} == {0}
    later = ("--at", "2023-11-14T22:13:40Z")
    assert main(["why", "orders", "c", *place, *later, "--table"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("c  publish_messages: ")
    assert "its latest report (2023-11-14T22:13:40Z): 5 used" in shown


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["why", "nope"], "group 'nope' had no limits at "),
        (["why", "orders", "z"], "broker 'z' had no limit of group 'orders' at "),
        (["why", "orders", "--at", "yesterday"], "--at: 'yesterday' is neither a time"),
        (["why", "orders", "--at", "2001-01-01"], "group 'orders' had no limits at 2001-01-01"),
        (["status", "--top", "-1"], "--top must be 0 or more"),
        (["limits", "--top", "0"], "--top must be 1 or more"),
    ],
)
def test_wrong_questions_are_one_line(
    history: History, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert main([*words, "--history", history.path]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert problem in captured.err
    assert captured.err.count("\n") == 1


def test_before_the_first_round_there_is_nothing_to_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    found = answer(capsys, "status", "--history", history.path)
    assert (found["job"], found["groups"], found["brokers_live"]) == (None, [], 0)
    assert answer(capsys, "limits", "--history", history.path) == []
    assert answer(capsys, "brokers", "--history", history.path) == []
    assert main(["status", "--history", str(tmp_path / "elsewhere")]) == 2
    assert "there is no history at" in capsys.readouterr().err
