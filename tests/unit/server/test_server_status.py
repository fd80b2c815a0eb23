"""``/api/v1/status`` and ``/heat-map``: pages, counts, tenants, and the picture behind them."""

from __future__ import annotations

import asyncio
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from quotaplane.errors import HistoryError
from quotaplane.groups.standing import NEAR_QUOTA, OVER_QUOTA, UNFAIR
from quotaplane.query.cluster_picture import cluster_picture
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_status import StandingLeases
from quotaplane.registry.table import put_groups
from quotaplane.server.fresh_picture import MOST_AGE_S, FreshPicture
from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Workers
from quotaplane.settings import History
from tests.unit.registry.groups_cases import quota
from tests.unit.server.server_cases import Served, record, settings_with, token, viewer_of

STATUS, HEAT = "/api/v1/status", "/api/v1/heat-map"
WANTS = {
    "orders": {"a": [(0, 80.0)], "b": [(0, 80.0)], "c": [(0, 5.0)]},
    "acme": {"a": [(0, 10.0)]},
    "acme::web": {"a": [(0, 20.0)], "b": [(0, 30.0)]},
    "zeta": {"d": [(0, 1.0)]},
}
QUOTAS = {"orders": 100.0, "acme": 50.0, "acme::web": 40.0, "zeta": 100.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty rounds of four groups of three tenants."""
    folder: Path = tmp_path_factory.mktemp("recorded")
    record(folder, WANTS, QUOTAS, rounds=20)
    return folder


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> History:
    """The same for one test, which may change it."""
    return History(path=str(shutil.copytree(folder / "history", tmp_path / "history")))


@pytest.fixture
def served(folder: Path) -> Served:
    return viewer_of(folder)


def names(served: Served, query: str) -> list[str]:
    return [row["group"] for row in served.ok("GET", f"{STATUS}?{query}")["groups"]]


def test_status_has_the_job_and_groups_beside_their_quotas(served: Served) -> None:
    answer = served.ok("GET", STATUS)
    assert answer["job"]["seq"] > 0
    assert answer["job"]["age_s"] > 0
    assert answer["as_of"].startswith("20")
    assert answer["total"] == len(answer["groups"]) == 4
    rows = {row["group"]: row for row in answer["groups"]}
    assert rows["acme::web"]["parent"] == "acme"
    assert rows["acme"]["parent"] is None
    assert rows["acme"]["used_part"] == pytest.approx(1.0, abs=0.1)  # with what is below it
    assert rows["orders"]["quota_per_s"] == 100.0


def test_rows_in_order_and_in_pages(served: Served) -> None:
    def column(name: str, query: str) -> list[float | None]:
        return [row[name] for row in served.ok("GET", f"{STATUS}?{query}")["groups"]]

    most = column("used_part", "")
    assert most == sorted(most, reverse=True)  # type: ignore[type-var]
    assert column("used_part", "sort=used_part") == most[::-1]
    shares = column("worst_share", "sort=worst_share")
    known = [share for share in shares if share is not None]
    assert known == sorted(known)
    assert shares[len(known) :] == [None] * (len(shares) - len(known))
    assert names(served, "sort=group") == sorted(QUOTAS)
    assert names(served, "sort=-group") == sorted(QUOTAS, reverse=True)
    assert names(served, "sort=group&limit=2&offset=1") == sorted(QUOTAS)[1:3]
    assert names(served, "sort=group&offset=9") == []
    assert "sort: must be one of" in served.refused(400, "GET", f"{STATUS}?sort=name")


def test_search_and_dimension(served: Served) -> None:
    assert names(served, "search=WEB") == ["acme::web"]
    assert names(served, "search=none") == []
    assert len(names(served, "dimension=publish_messages")) == 4
    answer = served.ok("GET", f"{STATUS}?dimension=publish_bytes")
    assert (answer["total"], answer["groups"]) == (0, [])
    assert "dimension: must be one of" in served.refused(400, "GET", f"{STATUS}?dimension=x")


@pytest.mark.nightly
def test_groups_that_nobody_reports_are_marked_after_a_day(copied: History) -> None:
    unseen = ["client-id=app", "user=<default>", "silent", "silent::child"]
    put_groups(copied, unseen, quota(5.0).repeat(len(unseen), axis=0), "ann")
    now = datetime.now(timezone.utc)

    def unreported(days: float) -> set[str]:
        with DuckDBEngine(copied) as engine:
            picture = cluster_picture(engine, now + timedelta(days=days))
        _, rows = picture.page(np.full(len(picture.names), True), None, "group", 0, 100)
        return {row["group"] for row in rows if row["unreported"]}

    assert unreported(0.99) == set()
    assert unreported(1.01) == {*QUOTAS, *unseen} - {"user=<default>"}


def test_a_group_is_reported_if_one_below_it_is() -> None:
    names = np.array(["a", "a::b", "changed", "old", "seen"], object)
    lately = np.array([False, False, True, False, False])
    leases = StandingLeases(
        {"resource_group": names, "mode": names, "lately": lately},
        {"broker": np.array(["x"], object), "stale": np.array([True])},
        {
            "place": np.array([1, 3, 4]),
            "broker_place": np.array([0, 0, 0]),
            "limited": np.array([True, True, True]),
            "lately": np.array([True, False, True]),
        },
        {},
    )
    assert leases.unreported.tolist() == [False, False, False, True, False]


def test_counts_are_of_the_callers_groups_whatever_the_search(served: Served) -> None:
    everything = served.ok("GET", STATUS)
    counts, rows = everything["counts"], everything["groups"]
    assert counts["groups"] == 4
    assert counts["over_quota"] == sum(row["used_part"] > OVER_QUOTA for row in rows)
    near = sum(NEAR_QUOTA <= row["used_part"] <= OVER_QUOTA for row in rows)
    assert counts["near_quota"] == near > 0
    assert counts["unfair"] == sum((row["worst_share"] or 1) < UNFAIR for row in rows)
    assert counts["throttled"] == sum(row["throttled_per_s"] > 0 for row in rows)
    assert (counts["brokers_live"], counts["stale_brokers"]) == (4, 0)
    assert served.ok("GET", f"{STATUS}?search=web&limit=1")["counts"] == counts
    served.token = token("viewer:acme")
    mine = served.ok("GET", STATUS)
    assert {row["group"] for row in mine["groups"]} == {"acme", "acme::web"}
    assert (mine["counts"]["groups"], mine["counts"]["brokers_live"]) == (2, 2)
    served.token = token("viewer:nobody")
    none = served.ok("GET", STATUS)
    assert (none["groups"], none["total"]) == ([], 0)
    assert set(none["counts"].values()) == {0}


def test_the_heat_map_has_pairs_that_exist(served: Served) -> None:
    answer = served.ok("GET", f"{HEAT}?sort=group")
    assert answer["dimension"] == "publish_messages"
    assert answer["groups"] == sorted(QUOTAS)
    assert answer["brokers_total"] == 4
    # Brokers a and b are at limits; c and d are not.
    assert sorted(answer["brokers"][:2]) == ["a", "b"]
    assert answer["brokers"][2:] == ["c", "d"]
    column = {name: place for place, name in enumerate(answer["brokers"])}
    used, limit, part = (
        dict(zip(answer["groups"], answer[name], strict=True))
        for name in ("used_per_s", "limit_per_s", "part")
    )
    assert used["orders"][column["d"]] is None
    assert used["zeta"][column["a"]] is None
    a, b, c = (column[name] for name in "abc")
    assert used["orders"][c] == pytest.approx(5.0, rel=0.2)
    # A parent has what is below it, too; acme itself reports from a only.
    assert used["acme"][b] == pytest.approx(used["acme::web"][b])
    assert used["acme"][a] > used["acme::web"][a]
    assert part["orders"][a] == pytest.approx(used["orders"][a] / limit["orders"][a])


def test_the_heat_map_in_pages_and_of_a_tenant(served: Served) -> None:
    answer = served.ok("GET", f"{HEAT}?sort=group&limit=1&offset=2&brokers=1")
    assert (answer["groups"], answer["total"]) == (["orders"], 4)
    assert (len(answer["brokers"]), answer["brokers_total"]) == (1, 4)
    assert np.shape(answer["part"]) == (1, 1)
    found = served.ok("GET", f"{HEAT}?search=zeta")
    assert (found["groups"], found["brokers"]) == (["zeta"], ["d"])
    served.token = token("viewer:zeta")
    mine = served.ok("GET", HEAT)
    assert (mine["groups"], mine["brokers"], mine["brokers_total"]) == (["zeta"], ["d"], 1)
    served.token = token()
    nothing = served.ok("GET", HEAT)
    assert (nothing["groups"], nothing["brokers"], nothing["part"]) == ([], [], [])
    empty = served.ok("GET", f"{HEAT}?dimension=publish_bytes")
    assert (empty["dimension"], empty["total"]) == ("publish_bytes", 0)


def test_a_history_without_rounds(tmp_path: Path) -> None:
    served = Served(settings_with(tmp_path, {"anonymous": "viewer"}))
    answer = served.ok("GET", STATUS)
    assert (answer["job"], answer["groups"], answer["counts"]["groups"]) == (None, [], 0)
    assert served.ok("GET", HEAT)["groups"] == []
    assert served.ok("GET", "/api/v1/limits") == {"limits": []}
    assert served.ok("GET", "/api/v1/brokers") == {"brokers": []}


def test_a_picture_is_made_only_when_a_table_changed_or_after_a_minute(tmp_path: Path) -> None:
    loop, now = record(tmp_path, WANTS, QUOTAS, rounds=20), [1000.0]
    fresh = FreshPicture(loop.history, Workers(60.0), 60.0, clock=lambda: now[0])
    first = asyncio.run(fresh.get())
    assert asyncio.run(fresh.get()) is first
    now[0] += MOST_AGE_S / 2
    assert asyncio.run(fresh.get()) is first
    put_groups(loop.history, ["new"], quota(1.0), "ann")
    second = asyncio.run(fresh.get())
    assert second is not first
    assert "new" in second.names.to_pylist()
    loop.run(1)
    third = asyncio.run(fresh.get())
    assert third is not second
    now[0] += MOST_AGE_S + 1
    assert asyncio.run(fresh.get()) is not third
    assert fresh.close(within_s=60)


def test_an_unreadable_history_is_told_and_no_old_picture(copied: History, tmp_path: Path) -> None:
    usage, away = Path(copied.path) / "usage", tmp_path / "usage"
    fresh, served = FreshPicture(copied, Workers(60.0), 60.0), viewer_of(tmp_path)
    asyncio.run(fresh.get())
    served.ok("GET", STATUS)
    usage.rename(away)
    with pytest.raises(HistoryError, match="usage"):
        asyncio.run(fresh.get())
    assert "usage" in served.refused(503, "GET", STATUS)
    away.rename(usage)
    assert len(asyncio.run(fresh.get()).names) == 4


def test_the_thread_makes_pictures_until_it_is_closed(folder: Path) -> None:
    history, now = History(path=str(folder / "history")), [1000.0]
    fresh = FreshPicture(history, Workers(60.0), 5.0, clock=lambda: now[0])
    fresh.start()
    picture = asyncio.run(fresh.get())  # waits for the first one
    assert len(picture.names) == 4
    assert fresh.close(within_s=60)
    now[0] += 6.0
    # The disk does not answer: the picture is not given out for ever.
    with pytest.raises(AnswerError, match="not read within 5 s"):
        asyncio.run(fresh.get())
