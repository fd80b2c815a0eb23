"""``/api/v1/groups``: reading, changing, conditions, dry runs, history, rollback."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from quotaplane.groups.policy_options import DEFAULTS
from quotaplane.history.store import open_table
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry import table
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.server.schemas import GroupBody
from tests.unit.registry.groups_cases import quota
from tests.unit.server.server_cases import Served, token

G = "/api/v1/groups/"


def version(served: Served) -> int:
    return int(open_table(served.history, "resource_groups").version())


def test_a_group_is_created_changed_read_and_deleted(served: Served) -> None:
    made = served.ask("PUT", G + "acme/orders", {"publish_messages_per_s": 100, "mode": "soft"})
    assert made.status_code == 201
    answer = made.json()
    assert (answer["result"], answer["from"], answer["dry_run"]) == ("created", None, False)
    assert answer["to"] == served.ok("GET", G + "acme/orders")
    assert answer["to"]["updated_by"] == "ann"
    changed = served.ok("PATCH", G + "acme/orders", {"weight": 2.5, "mode": None})
    assert changed["result"] == "changed"
    assert (changed["from"]["mode"], changed["from"]["weight"]) == ("soft", 1.0)
    assert (changed["to"]["mode"], changed["to"]["weight"]) == ("hard", 2.5)
    assert changed["to"]["publish_messages_per_s"] == 100
    gone = served.ok("DELETE", G + "acme/orders")
    assert (gone["result"], gone["to"], gone["from"]["weight"]) == ("deleted", None, 2.5)
    assert served.refused(404, "GET", G + "acme/orders") == "group 'acme/orders' does not exist"
    assert "does not exist" in served.refused(404, "DELETE", G + "acme/orders")


def test_put_replaces_and_patch_keeps(served: Served) -> None:
    terms = {"b1": {"ceiling": {"publish_bytes_per_s": 3}}}
    served.ok("PUT", G + "a", {"publish_bytes_per_s": 7, "weight": 3, "brokers": terms})
    kept = served.ok("PATCH", G + "a", {"dispatch_bytes_per_s": 5})["to"]
    assert (kept["publish_bytes_per_s"], kept["weight"]) == (7, 3)
    assert kept["brokers"] == {"b1": {"ceiling": {"publish_bytes_per_s": 3.0}}}
    put = served.ok("PUT", G + "a", {"dispatch_bytes_per_s": 5})["to"]
    assert [put[c] for c in RATE_COLUMNS if put[c] is not None] == [5]
    assert (put["weight"], put["brokers"]) == (1.0, {})
    patched = served.ok("PATCH", G + "a", {"dispatch_bytes_per_s": "unlimited"})["to"]
    assert not any(patched[c] for c in RATE_COLUMNS)


def test_what_is_read_can_be_put_back(served: Served) -> None:
    body = {"publish_messages_per_s": 1.5, "throttle": {"*": {"law": "sliding_window"}}}
    served.ok("PUT", G + "a", {**body, "floor_publish_bytes_per_s": 2, "priority": -3})
    read, before = served.ok("GET", G + "a"), version(served)
    assert served.ok("PUT", G + "a", read)["result"] == "unchanged"
    assert version(served) == before
    assert served.ok("PATCH", G + "a", read)["result"] == "unchanged"


def test_quotas_as_texts(served: Served) -> None:
    made = served.ok("PUT", G + "a", {"quotas": ["write 60KB/min"]})["to"]
    assert made["publish_bytes_per_s"] == 1024
    assert made["throttle"]["publish_bytes"]["window_s"] == 60


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"wieght": 1}, "body: wieght: unknown key"),
        ({"weight": "2"}, "body: weight: must be a number, not a string"),
        ({"weight": 0}, "body: weight: must be at least 1e-09"),
        ({"priority": 1.5}, "body: priority: must be a whole number, not a number"),
        ({"mode": "harsh"}, "body: mode: must be 'hard', 'soft' or 'shadow'"),
        ({"publish_bytes_per_s": -1}, "body: publish_bytes_per_s: must be a number from 0 to"),
        ({"publish_bytes_per_s": "9"}, "body: publish_bytes_per_s: must be a number from 0 to"),
        ({"brokers": {"b": {"weigth": 1}}}, "body: brokers.b.weigth: unknown key"),
        ({"throttle": {"bytes": {}}}, "body: throttle.bytes: "),
        ({"quotas": ["write fast"]}, "body: quotas: "),
        ({"group": "b"}, "body: group: must be 'a', as in the path, or left out"),
        ({"why": "x\ny"}, "body: why: must be a printable text"),
        ([], "body: must be an object, not a list"),
        (None, "body: not JSON"),
    ],
)
def test_what_is_wrong_is_refused_and_named(served: Served, body: Any, reason: str) -> None:
    before = version(served)
    for method in ("PUT", "PATCH"):
        assert reason in served.refused(400, method, G + "a", body)
    assert version(served) == before


def test_a_body_is_json_and_not_too_large(served: Served) -> None:
    form = served.ask("PUT", G + "a", raw=b"{}", Content_Type="text/plain")
    assert form.status_code == 415
    assert served.ask("PUT", G + "a", raw=b" " * 1024 * 1025).status_code == 413
    bytes_ = served.ask("PUT", G + "a", raw=b"\xff")
    assert (bytes_.status_code, "not UTF-8" in bytes_.json()["reason"]) == (400, True)


@pytest.mark.parametrize(
    "name", ["a b", "jürgen", "a%2Fb", "user=CN%3Da", "x?y#z", "a/b/c", "a::b", "..a", "100%"]
)
def test_any_name_goes_percent_encoded(served: Served, name: str) -> None:
    path = G + quote(name, safe="")
    assert served.ok("PUT", path, {"weight": 2})["group"] == name
    assert served.ok("GET", path)["group"] == name
    assert served.ok("DELETE", path)["group"] == name


def test_names_that_no_group_has(served: Served) -> None:
    assert "empty part" in served.refused(400, "PUT", G + "a::", {})
    assert "control" in served.refused(400, "PUT", G + "a%00b", {})
    assert "printed" in served.refused(400, "PUT", G + "a%E2%80%AEb", {})
    assert "UTF-8" in served.refused(400, "PUT", G + "a%ff", {})
    assert "method" in served.refused(405, "PUT", G, {})  # as without the slash
    assert "at most 1024" in served.refused(400, "PUT", G + "x" * 1025, {})


def test_an_etag_is_the_groups_own(served: Served) -> None:
    made = served.ask("PUT", G + "a", {"weight": 2})
    tag = made.headers["etag"]
    assert served.ask("GET", G + "a").headers["etag"] == tag
    served.ok("PUT", G + "b", {})
    assert served.ask("GET", G + "a").headers["etag"] == tag
    again = served.ask("GET", G + "a", If_None_Match=f'"x", {tag}')
    assert (again.status_code, again.content) == (304, b"")
    # The same after a restart.
    other = Served(served.settings)
    other.token = served.token
    assert other.ask("GET", G + "a").headers["etag"] == tag
    changed = served.ask("PATCH", G + "a", {"weight": 3}, If_Match=tag)
    assert changed.status_code == 200
    assert changed.headers["etag"] not in (tag, "")
    assert served.ask("GET", G + "a").headers["etag"] == changed.headers["etag"]


def test_conditions(served: Served) -> None:
    assert "does not exist" in served.refused(412, "PUT", G + "a", {}, If_Match="*")
    tag = served.ask("PUT", G + "a", {}, If_None_Match="*").headers["etag"]
    assert "exists" in served.refused(412, "PUT", G + "a", {}, If_None_Match="*")
    before = version(served)
    for method in ("PUT", "PATCH"):
        body = {"weight": 9}
        assert "If-Match" in served.refused(412, method, G + "a", body, If_Match='"old"')
    assert "If-Match" in served.refused(412, "DELETE", G + "a", If_Match='"old"')
    assert version(served) == before
    served.ok("PATCH", G + "a", {"weight": 9}, If_Match=f'"old", {tag}')
    served.refused(412, "DELETE", G + "a", If_Match=tag)
    served.ok("DELETE", G + "a", If_Match="*")


def test_a_condition_is_checked_again_where_another_writer_was_faster(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = served.ask("PUT", G + "a", {}).headers["etag"]
    real, calls = table.rows_after, []

    def overtaken(*given: Any) -> Any:
        rows = real(*given)
        if not calls:
            calls.append(1)
            put_groups(served.history, ["a"], quota(5.0), "bob")
        return rows

    monkeypatch.setattr(table, "rows_after", overtaken)
    served.refused(412, "PATCH", G + "a", {"weight": 4}, If_Match=tag)
    assert calls == [1]
    assert served.ok("GET", G + "a")["publish_messages_per_s"] == 5


def test_a_dry_run_changes_nothing(served: Served) -> None:
    served.ok("PUT", G + "acme", {"publish_bytes_per_s": 10})
    before = version(served)
    would = served.ask("PUT", G + "acme::x?dry_run=true", {"publish_bytes_per_s": 20})
    answer = would.json()
    assert (would.status_code, answer["result"], answer["dry_run"]) == (200, "created", True)
    assert "etag" not in would.headers
    assert answer["to"]["parent"] == "acme"
    assert "is more than the 10 of its parent" in answer["warnings"][0]
    assert served.ok("PATCH", G + "acme?dry_run=true", {"weight": 5})["to"]["weight"] == 5
    assert served.ok("DELETE", G + "acme?dry_run=true")["result"] == "deleted"
    assert "unknown key" in served.refused(400, "PUT", G + "acme?dry_run=true", {"x": 1})
    assert version(served) == before


def test_who_and_why_are_in_the_history(served: Served) -> None:
    served.ok("PUT", G + "a", {"weight": 2, "why": "zunächst"})
    served.token = token("admin", sub="bob")
    served.ok("PATCH", G + "a", {"weight": 3}, Quotaplane_Why="f%C3%BCr%20mehr")
    served.ok("DELETE", G + "a", Quotaplane_Why="gone")
    page = served.ok("GET", "/api/v1/changes?group=a")
    assert page["total"] == 3
    assert [(c["by"], c["why"]) for c in page["changes"]] == [
        ("bob", "gone"),
        ("bob", "für mehr"),
        ("ann", "zunächst"),
    ]
    changed = page["changes"][1]
    assert (changed["from"]["weight"], changed["to"]["weight"]) == (2, 3)
    # Delta's own tools show the reason, too.
    log = open_table(served.history, "resource_groups").history(1)[0]
    assert (log["userName"], log["userMetadata"]) == ("bob", "gone")
    assert "printable" in served.refused(400, "DELETE", G + "a", Quotaplane_Why="%00")


def test_changes_are_paged_newest_first_and_follow_the_table(served: Served) -> None:
    names = [f"g{n}" for n in range(5)]
    for weight in (1.0, 2.0):
        put_groups(served.history, names, quota(weight).repeat(5, axis=0), "x")
    changes = group_changes(served.history)
    expected = [(c["version"], c["group"]) for c in changes][::-1]
    seen = []
    for offset in range(0, 12, 3):
        page = served.ok("GET", f"/api/v1/changes?limit=3&offset={offset}")
        assert page["total"] == 10
        seen += [(c["version"], c["group"]) for c in page["changes"]]
    assert seen == expected
    delete_groups(served.history, ["g1"], "y")
    newest = served.ok("GET", "/api/v1/changes?limit=1")
    assert (newest["total"], newest["changes"][0]["group"]) == (11, "g1")
    assert newest["changes"][0]["to"] is None


def test_rollback(served: Served) -> None:
    served.ok("PUT", G + "a", {"weight": 2, "mode": "soft"})
    served.ok("PUT", G + "b", {"weight": 2})
    then = version(served)
    served.ok("PUT", G + "a", {"weight": 7})
    served.ok("DELETE", G + "b")
    now = version(served)
    back = {"groups": ["a"], "version": then, "why": "too many refused"}
    would = served.ok("POST", "/api/v1/rollback?dry_run=true", back)
    assert (len(would["changed"]), would["dry_run"], version(served)) == (1, True, now)
    done = served.ok("POST", "/api/v1/rollback", back)
    (one,) = done["changed"]
    assert (one["from"]["weight"], one["to"]["weight"], one["to"]["mode"]) == (7, 2, "soft")
    assert served.ok("GET", G + "a")["mode"] == "soft"
    assert served.ok("GET", "/api/v1/changes?limit=1")["changes"][0]["why"] == "too many refused"
    # Without names or a time: what was deleted.
    restored = served.ok("POST", "/api/v1/rollback", {"groups": []})
    assert [r["group"] for r in restored["changed"]] == ["b"]
    assert served.ok("POST", "/api/v1/rollback", back)["changed"] == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"groups": ["none"], "version": 1}, "group 'none' did not exist at version 1"),
        ({"groups": ["a"], "version": 99}, "version: the table's history has 0 to 1, not 99"),
        ({"groups": ["a"], "version": 1, "at": "2h"}, "version and at exclude each other"),
        ({"groups": "a"}, "body: groups: must be a list, not a string"),
        ({}, "body: groups: is required"),
    ],
)
def test_a_rollback_that_can_not_be_made(served: Served, body: Any, reason: str) -> None:
    served.ok("PUT", G + "a", {})
    assert reason in served.refused(400, "POST", "/api/v1/rollback", body)


def test_lists_are_searched_sorted_and_paged(served: Served) -> None:
    names = ["acme::a", "acme::b", "globex", "Acme2"]
    put_groups(served.history, names, quota(1.0).repeat(4, axis=0), "x")
    served.ok("PATCH", G + "globex", {"publish_messages_per_s": 50, "weight": 4})
    served.ok("PATCH", G + "Acme2", {"publish_messages_per_s": None})

    def found(query: str) -> list[str]:
        answer = served.ok("GET", f"/api/v1/groups?{query}")
        return [group["group"] for group in answer["groups"]]

    assert found("") == ["Acme2", "acme::a", "acme::b", "globex"]
    assert found("search=ACME") == ["Acme2", "acme::a", "acme::b"]
    assert found("sort=-publish_messages_per_s") == ["Acme2", "globex", "acme::a", "acme::b"]
    assert found("sort=weight&offset=3") == ["globex"]
    assert found("sort=-group&limit=2") == ["globex", "acme::b"]
    assert found("search=a.me") == []
    assert served.ok("GET", "/api/v1/groups?offset=9&limit=1") == {
        "total": 4,
        "version": version(served),
        "groups": [],
    }
    for query in ("sort=size", "limit=0", "limit=1001", "offset=-1", "limit=x"):
        served.refused(400, "GET", f"/api/v1/groups?{query}")


def test_a_list_has_the_tables_version_as_its_etag(served: Served) -> None:
    served.ok("PUT", G + "a", {})
    tag = served.ask("GET", "/api/v1/groups").headers["etag"]
    assert served.ask("GET", "/api/v1/groups", If_None_Match=tag).status_code == 304
    put_groups(served.history, ["b"], quota(1.0), "x")  # by another program
    time.sleep(0.03)  # FRESH_S
    answer = served.ask("GET", "/api/v1/groups", If_None_Match=tag)
    assert (answer.status_code, answer.json()["total"]) == (200, 2)


def test_quotas_of_a_users_requests(served: Served) -> None:
    served.ok("PUT", G + quote("user=alice"), {"publish_bytes_per_s": 9})
    (one,) = served.ok("GET", "/api/v1/resolve?user=alice&client=app")
    assert (one["dimension"], one["rate_per_s"]) == ("publish_bytes", 9)
    assert (one["group"], one["shared_by"]) == ("user=alice", {"user": "alice"})
    assert served.ok("GET", "/api/v1/resolve?user=bob") == []
    assert (
        served.refused(400, "GET", "/api/v1/resolve?user=")
        == "query parameter user: must not be empty"
    )


def test_a_name_with_the_id_of_another_is_a_conflict(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.ok("PUT", G + "a", {})
    monkeypatch.setattr("quotaplane.registry.rows_after.collisions", lambda *_: {"b": "a"})
    assert "same id" in served.refused(409, "PUT", G + "b", {})


def tables_of(served: Served) -> tuple[bool, Any]:
    """Whether all tables are whole, and the table of groups."""
    answer = served.ok("GET", "/api/v1/tables")
    tables = {table["table"]: table for table in answer["tables"]}
    assert tables["attachments"]["fault"] is None
    return answer["whole"], tables["resource_groups"]


def test_a_missing_table_is_named(served: Served) -> None:
    log = Path(served.history.path) / "resource_groups" / "_delta_log"
    log.rename(log.with_name("away"))
    for path in ("groups", "changes"):
        assert "resource_groups" in served.refused(503, "GET", f"/api/v1/{path}")
    _, groups = tables_of(served)
    assert (groups["exists"], groups["fault"]) == (False, "is missing")


def test_a_broken_table_is_named(served: Served) -> None:
    served.ok("PUT", G + "a", {})
    whole, groups = tables_of(served)
    assert (whole, groups["version"], groups["files"], groups["fault"]) == (True, 1, 1, None)
    commit = Path(served.history.path) / "resource_groups/_delta_log" / f"{1:020d}.json"
    commit.write_bytes(b"")
    whole, groups = tables_of(served)
    assert (whole, "is empty" in groups["fault"]) == (False, True)


def test_the_body_has_every_column_of_a_group() -> None:
    assert set(GroupBody.model_fields) >= {*RATE_COLUMNS, *DEFAULTS}
