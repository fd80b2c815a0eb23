"""Pulsar's own paths, without a cluster and beside one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.errors import GroupInUseError, UnknownGroupError
from quotaplane.history.store import open_table
from quotaplane.model import DIMENSIONS
from quotaplane.registry.attachments import attach, delete_unattached, list_attachments
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.current_groups import GroupSnapshot
from quotaplane.registry.table import get_group, list_groups, put_groups
from quotaplane.server.cluster_groups import rates_to_set
from quotaplane.server.fresh_picture import FreshGroups
from tests.unit.group_sync.follower_cases import Rig
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.unit.server.server_cases import Served, WritableCluster

RG, NS, TENANTS = "/admin/v2/resourcegroups", "/admin/v2/namespaces", "/admin/v2/tenants"
INF, NAN = np.inf, np.nan


def rates(publish_m: int, publish_b: int, dispatch_m: int, dispatch_b: int) -> dict[str, int]:
    return {
        "publishRateInMsgs": publish_m,
        "publishRateInBytes": publish_b,
        "dispatchRateInMsgs": dispatch_m,
        "dispatchRateInBytes": dispatch_b,
    }


def test_put_creates_and_updates_in_part(served: Served) -> None:
    made = served.ask("PUT", f"{RG}/a", {"publishRateInMsgs": 100, "publishRateInBytes": None})
    assert (made.status_code, made.content) == (204, b"")
    assert served.ok("GET", f"{RG}/a") == rates(100, -1, -1, -1)
    served.ok("PUT", f"{RG}/a", {"dispatchRateInBytes": 7, "publishRateInMsgs": None})
    assert served.ok("GET", f"{RG}/a") == rates(100, -1, -1, 7)
    served.ok("PUT", f"{RG}/a", rates(-1, 0, -1, 8))
    assert served.ok("GET", f"{RG}/a") == rates(-1, 0, -1, 8)
    served.ok("PUT", f"{RG}/b", {})
    assert served.ok("GET", RG) == ["a", "b"]
    assert served.ask("DELETE", f"{RG}/a").status_code == 204
    assert served.refused(404, "GET", f"{RG}/a") == "ResourceGroup does not exist"
    assert "does not exist" in served.refused(404, "DELETE", f"{RG}/a")


def test_a_policy_of_ours_stays(served: Served) -> None:
    body = {"weight": 3, "total_bytes_per_s": 9, "publish_messages_per_s": 0.5}
    served.ok("PUT", "/api/v1/groups/a", body)
    assert served.ok("GET", f"{RG}/a") == rates(1, -1, -1, -1)
    served.ok("PUT", f"{RG}/a", {"publishRateInBytes": 10})
    row = get_group(served.history, "a")
    assert (row["weight"], row["total_bytes_per_s"], row["publish_messages_per_s"]) == (3, 9, 0.5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"publishRateInMsg": 1}, "body: publishRateInMsg: unknown key"),
        ({"publishRateInMsgs": "5"}, "body: publishRateInMsgs: must be a whole number, not a str"),
        ({"dispatchRateInBytes": -2}, "body: dispatchRateInBytes: must be at least -1"),
        ({"dispatchRateInBytes": 10**19}, "body: dispatchRateInBytes: must be at most 1e+18"),
    ],
)
def test_a_wrong_key_or_value_is_refused_and_named(served: Served, body: Any, reason: str) -> None:
    assert reason in served.refused(400, "PUT", f"{RG}/a", body)
    assert served.ok("GET", RG) == []


def test_attachments(served: Served) -> None:
    served.ok("PUT", f"{RG}/orders", {})
    served.ok("PUT", f"{RG}/tenant-a/x", {})
    path = f"{NS}/acme/ns/resourcegroup"
    assert served.ask("GET", path).status_code == 204
    assert served.ask("POST", f"{path}/orders").status_code == 204
    answer = served.ask("GET", path)
    # As Pulsar answers it, and its client prints it: the bare name.
    assert (answer.text, answer.headers["content-type"]) == ("orders", "text/plain; charset=utf-8")
    assert served.ask("POST", f"{path}/tenant-a/x").status_code == 204
    assert served.ask("GET", path).text == "tenant-a/x"
    assert served.refused(412, "POST", f"{path}/none") == "ResourceGroup does not exist"
    assert served.ask("POST", f"{TENANTS}/acme/resourcegroup/orders").status_code == 204
    assert served.ask("GET", f"{TENANTS}/acme/resourcegroup").text == "orders"
    listed = served.ok("GET", "/api/v1/attachments")
    assert [(a["kind"], a["name"], a["resource_group"]) for a in listed["attachments"]] == [
        ("namespace", "acme/ns", "tenant-a/x"),
        ("tenant", "acme", "orders"),
    ]
    assert served.ok("GET", "/api/v1/attachments?group=orders")["total"] == 1
    for group, user in (("orders", "tenant acme"), ("tenant-a/x", "namespace acme/ns")):
        for base in (RG, "/api/v1/groups"):
            assert f"in use: {user} is attached" in served.refused(412, "DELETE", f"{base}/{group}")
    for attached in (path, f"{TENANTS}/acme/resourcegroup"):
        for _ in range(2):  # Pulsar: again is no error
            assert served.ask("DELETE", attached).status_code == 204
        assert served.ask("GET", attached).status_code == 204
    assert served.ask("DELETE", f"{RG}/orders").status_code == 204


@pytest.mark.parametrize("name", ["a b", "a%20b", "%C3%BC", "a*"])
def test_names_that_pulsar_does_not_have(served: Served, name: str) -> None:
    served.ok("PUT", f"{RG}/g", {})
    for method, end in (("GET", ""), ("POST", "/g"), ("DELETE", "")):
        path = f"{NS}/acme/{name}/resourcegroup{end}"
        assert "must be" in served.refused(400, method, path)
        path = f"{TENANTS}/{name}/resourcegroup{end}"
        assert "must be" in served.refused(400, method, path)


def test_a_change_of_an_attachment_has_a_reason_and_no_change_is_not_written(
    served: Served,
) -> None:
    served.ok("PUT", f"{RG}/a", {})
    served.ok("PUT", f"{RG}/b", {})
    for group in ("a", "b", None):
        attach(served.history, "tenant", "acme", group, "ann", why="moved")
    table = open_table(served.history, "attachments")
    assert [entry["userMetadata"] for entry in table.history(3)] == ["moved"] * 3
    assert attach(served.history, "tenant", "acme", None, "ann") == (None, None)
    assert table.version() == open_table(served.history, "attachments").version()


def test_attaching_and_deleting_at_once_leaves_nothing_attached_to_nothing(served: Served) -> None:
    """Whichever is first: the other one is refused."""

    def attaching() -> str:
        try:
            attach(served.history, "namespace", "acme/ns", "g", "x")
        except UnknownGroupError:
            return "no group"
        return "attached"

    def deleting() -> str:
        try:
            delete_unattached(served.history, ["g"], "y")
        except GroupInUseError:
            return "in use"
        return "deleted"

    with ThreadPoolExecutor(2) as threads:
        for _ in range(4):
            served.ok("PUT", f"{RG}/g", {})
            outcomes = {*threads.map(lambda work: work(), (attaching, deleting))}
            assert outcomes in ({"attached", "in use"}, {"no group", "deleted"})
            assert len(list_attachments(served.history)) == ("attached" in outcomes)
            attach(served.history, "namespace", "acme/ns", None, "x")


# Beside a cluster


def test_a_new_group_is_made_in_the_cluster_and_in_the_table(
    cluster: WritableCluster, beside: Served
) -> None:
    beside.ok("PUT", f"{RG}/a", {"publishRateInMsgs": 100}, Quotaplane_Why="new")
    assert cluster.groups == {"a": rates(100, -1, -1, -1)}
    (change,) = group_changes(beside.history)
    assert (change["by"], change["why"]) == ("anonymous", "new")
    assert get_group(beside.history, "a")["publish_messages_per_s"] == 100
    # Our API makes groups in the table only: a child of a cluster's group, a user's quota.
    beside.ok("PUT", "/api/v1/groups/a::child", {"publish_messages_per_s": 5})
    assert list(cluster.groups) == ["a"]
    assert "no / in its name" in beside.refused(400, "PUT", f"{RG}/x/y", {})
    assert len(list_groups(beside.history)) == 2


def test_a_change_of_a_stock_rate_goes_to_the_cluster_first(
    cluster: WritableCluster, beside: Served
) -> None:
    beside.ok("PUT", f"{RG}/a", rates(100, 200, 300, -1))
    cluster.asked.clear()
    beside.ok("PATCH", "/api/v1/groups/a", {"publish_messages_per_s": 50.5, "weight": 2})
    assert cluster.groups["a"] == rates(51, 200, 300, -1)
    assert get_group(beside.history, "a")["publish_messages_per_s"] == 50.5
    beside.ok("PATCH", "/api/v1/groups/a", {"weight": 3})
    assert len(cluster.paths("PUT")) == 1
    beside.ok("PATCH", "/api/v1/groups/a", {"publish_messages_per_s": None})
    assert cluster.groups["a"]["publishRateInMsgs"] == -1
    assert get_group(beside.history, "a")["publish_messages_per_s"] is None


def test_what_is_wrong_reaches_no_cluster(cluster: WritableCluster, beside: Served) -> None:
    beside.ok("PUT", f"{RG}/a", rates(100, -1, -1, -1))
    cluster.asked.clear()
    assert "0 for unlimited" in beside.refused(400, "PUT", f"{RG}/a", {"publishRateInMsgs": 0})
    path = "/api/v1/groups/a"
    beside.refused(400, "PATCH", path, {"publish_messages_per_s": 5, "weight": 0})
    beside.refused(412, "PATCH", path, {"publish_messages_per_s": 5}, If_Match='"old"')
    would = beside.ok("PATCH", f"{path}?dry_run=true", {"publish_messages_per_s": 5})
    assert would["to"]["publish_messages_per_s"] == 5
    assert cluster.paths("PUT") == []
    assert get_group(beside.history, "a")["publish_messages_per_s"] == 100


def test_a_cluster_that_refuses_or_is_silent(cluster: WritableCluster, beside: Served) -> None:
    beside.ok("PUT", f"{RG}/a", rates(100, -1, -1, -1))
    cluster.answers["PUT resourcegroups/a"] = Answer(401, {"reason": "who are you"})
    body = {"publishRateInMsgs": 5}
    assert "401" in beside.refused(502, "PUT", f"{RG}/a", body)
    cluster.answers["PUT resourcegroups/a"] = Answer(cut=True)
    assert "PUT" in beside.refused(502, "PUT", f"{RG}/a", body)
    assert get_group(beside.history, "a")["publish_messages_per_s"] == 100


def test_a_groups_end_is_the_clusters_too(cluster: WritableCluster, beside: Served) -> None:
    beside.ok("PUT", f"{RG}/a", {})
    cluster.namespaces["acme/ns"] = "a"
    assert "in use" in beside.refused(412, "DELETE", f"{RG}/a")
    assert beside.ok("GET", RG) == ["a"]
    cluster.namespaces["acme/ns"] = None
    beside.ok("DELETE", "/api/v1/groups/a", Quotaplane_Why="done")
    assert cluster.groups == {}
    assert group_changes(beside.history)[-1]["why"] == "done"


def test_attachments_are_the_clusters(cluster: WritableCluster, beside: Served) -> None:
    beside.ok("PUT", f"{RG}/a", {})
    cluster.namespaces["acme/ns"] = None
    path = f"{NS}/acme/ns/resourcegroup"
    beside.ok("POST", f"{path}/a")
    assert cluster.namespaces == {"acme/ns": "a"}
    assert beside.ask("GET", path).text == "a"
    beside.refused(412, "POST", f"{path}/none")
    beside.refused(404, "GET", f"{NS}/acme/none/resourcegroup")
    beside.ok("DELETE", path)
    assert beside.ask("GET", path).status_code == 204
    assert len(list_attachments(beside.history)) == 0
    # Tenants are in the settings.
    assert beside.ask("GET", f"{TENANTS}/globex/resourcegroup").text == "batch"
    for method, end in (("POST", "/a"), ("DELETE", "")):
        reason = beside.refused(409, method, f"{TENANTS}/globex/resourcegroup{end}")
        assert "cluster.tenants in /etc/quotaplane/conf.yaml" in reason
    assert "keeps its attachments" in beside.refused(409, "GET", "/api/v1/attachments")


def test_a_rollback_reaches_the_cluster(cluster: WritableCluster, beside: Served) -> None:
    beside.ok("PUT", f"{RG}/a", rates(100, -1, -1, -1))
    beside.ok("PUT", "/api/v1/groups/table-only", {"weight": 2})
    version = beside.ok("GET", "/api/v1/changes?limit=1")["changes"][0]["version"]
    beside.ok("PUT", f"{RG}/a", rates(7, -1, -1, -1))
    beside.ok("PATCH", "/api/v1/groups/table-only", {"weight": 3})
    back = {"groups": ["a", "table-only"], "version": version}
    assert len(beside.ok("POST", "/api/v1/rollback", back)["changed"]) == 2
    assert cluster.groups == {"a": rates(100, -1, -1, -1)}
    assert get_group(beside.history, "a")["publish_messages_per_s"] == 100
    assert get_group(beside.history, "table-only")["weight"] == 2


@pytest.mark.parametrize("wanted", [None, 150, 7])
def test_the_sync_does_not_bring_back_what_it_read_before_a_change(
    cluster: WritableCluster, beside: Served, wanted: int | None
) -> None:
    """The job reads the group in the cluster; then it is changed here; then the job writes."""
    rig = Rig(cluster, beside.history)
    beside.ok("PUT", f"{RG}/a", rates(100, -1, 5, -1))

    def change() -> Answer:
        del cluster.answers["GET resourcegroups/a"]
        old = Answer(200, dict(cluster.groups["a"]))
        body = {"publish_messages_per_s": wanted}
        with ThreadPoolExecutor(1) as thread:  # the event loop of the sync runs in this one
            thread.submit(beside.ok, "PATCH", "/api/v1/groups/a", body).result()
        return old

    def change_while_it_reads() -> None:
        cluster.answers["GET resourcegroups/a"] = change

    row = [wanted, None, 5, None]
    rig.sync(lambda: None, change_while_it_reads)
    assert rig.table() == {"a": row}
    rig.sync(lambda: None, lambda: None)
    assert rig.table() == {"a": row}
    assert {c["by"] for c in group_changes(beside.history)} == {"anonymous"}


@pytest.mark.parametrize(
    ("wanted", "table", "cluster", "set_"),
    [
        ([NAN] * 4, [1, 2, 3, INF], [1, 2, 3, INF], {}),
        ([5, NAN, NAN, NAN], [1, INF, INF, INF], [1, INF, INF, INF], {0: 5}),
        ([INF, NAN, INF, NAN], [1, INF, 3, INF], [1, INF, 3, INF], {0: -1, 2: -1}),
        # After a take-over: the same number is no change, another one is.
        ([1, NAN, NAN, NAN], [1, INF, INF, INF], [INF] * 4, {}),
        ([2, NAN, NAN, NAN], [1, INF, INF, INF], [INF] * 4, {0: 2}),
        ([INF, NAN, NAN, NAN], [1, INF, INF, INF], [INF] * 4, {}),
        # Dispatch rates are never hidden.
        ([NAN, NAN, 3, NAN], [INF, INF, 3, INF], [INF] * 4, {2: 3}),
        ([99.5, 0.4, NAN, NAN], [INF] * 4, [INF] * 4, {0: 100, 1: 1}),
        ([1e12, 1e12, NAN, NAN], [INF] * 4, [INF] * 4, {0: 2**31 - 1, 1: 10**12}),
        # The cluster does not have it: it gets all that the table has.
        ([NAN, 6, NAN, NAN], [5, INF, INF, INF], None, {0: 5, 1: 6, 2: -1, 3: -1}),
    ],
)
def test_which_rates_are_set_in_the_cluster(
    wanted: list[float], table: list[float], cluster: list[float] | None, set_: dict[int, int]
) -> None:
    has = None if cluster is None else np.array(cluster)
    found = rates_to_set(np.array(wanted), np.array(table), has)
    keys = list(rates(0, 0, 0, 0))
    assert found == {keys[place]: rate for place, rate in set_.items()}


def test_rates_are_those_that_pulsars_clients_can_read(served: Served) -> None:
    """`pulsar-admin` reads messages as a Java int, and bytes as a long."""
    served.ok("PUT", f"{RG}/a", rates(10**18, 10**18, 2**31, 2**31))
    assert served.ok("GET", f"{RG}/a") == rates(2**31 - 1, 10**18, 2**31 - 1, 2**31)
    served.ok("PUT", "/api/v1/groups/b", {"publish_messages_per_s": 2147483646.5})
    assert served.ok("GET", f"{RG}/b") == rates(2**31 - 1, -1, -1, -1)


def test_pip82_spells_paths_keys_and_verbs_otherwise(served: Served) -> None:
    singular = "/admin/v2/resourcegroup"
    keys = {
        "publishRateInmsgs": 1,
        "PublishRateInbytes": 2,
        "DispatchRateInmsgs": 3,
        "DispatchRateInbytes": 4,
    }
    assert served.ask("PUT", f"{singular}/a", keys).status_code == 204
    assert served.ok("GET", f"{singular}/a") == served.ok("GET", f"{RG}/a") == rates(1, 2, 3, 4)
    for path in (singular, f"{singular}/", RG, f"{RG}/"):
        assert served.ok("GET", path) == ["a"]
    for place in (f"{NS}/acme/orders/resourcegroup", f"{TENANTS}/acme/resourcegroup"):
        assert served.ask("PUT", f"{place}/a").status_code == 204
        for spelling in (place, f"{place}/"):
            assert served.ask("GET", spelling).text == "a"
        assert served.ask("DELETE", f"{place}/").status_code == 204
    assert served.ask("DELETE", f"{singular}/a").status_code == 204
    twice = {"publishRateInMsgs": 1, "PublishRateInmsgs": 2}
    assert "twice" in served.refused(400, "PUT", f"{singular}/a", twice)


def test_a_slash_at_the_end_of_a_name_is_part_of_it(served: Served) -> None:
    served.ok("PUT", "/api/v1/groups/a", {})
    assert [row["group"] for row in served.ok("GET", "/api/v1/groups/")["groups"]] == ["a"]
    served.refused(404, "GET", "/api/v1/groups/a/")
    served.refused(404, "GET", f"{RG}/a/")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz/", "/api/v1/groups", RG])
def test_head_is_get_without_the_body(served: Served, path: str) -> None:
    head, get = served.ask("HEAD", path), served.ask("GET", path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_options_of_health(served: Served, path: str) -> None:
    answer = served.ask("OPTIONS", path)
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS")


def test_if_match_holds_where_another_program_changed_the_cluster(
    cluster: WritableCluster, beside: Served
) -> None:
    beside.ok("PUT", f"{RG}/a", rates(100, -1, 7, -1))
    path, body = "/api/v1/groups/a", {"publish_messages_per_s": 5}
    tag = beside.ask("GET", path).headers["ETag"]
    cluster.put("a", dispatchRateInMsgs=9)  # not copied yet
    for method in ("PUT", "PATCH"):
        reason = beside.refused(412, method, path, body, If_Match=tag)
        assert "was changed in the Pulsar cluster" in reason
    beside.refused(412, "DELETE", path, If_Match=tag)
    assert cluster.groups["a"] == rates(100, -1, 9, -1)
    cluster.put("a", dispatchRateInMsgs=7)
    beside.ok("PATCH", path, body, If_Match=tag)
    assert cluster.groups["a"] == rates(5, -1, 7, -1)
    cluster.put("b", dispatchRateInMsgs=9)
    beside.refused(412, "PUT", "/api/v1/groups/b", {}, If_None_Match="*")
    beside.ok("PUT", "/api/v1/groups/c", {}, If_None_Match="*")


def test_if_match_after_a_take_over(cluster: WritableCluster, beside: Served) -> None:
    beside.ok("PUT", f"{RG}/a", rates(100, -1, -1, -1))
    tag = beside.ask("GET", "/api/v1/groups/a").headers["ETag"]
    cluster.put("a", publishRateInMsgs=-1)  # by the enforcer
    beside.ok("PATCH", "/api/v1/groups/a", {"weight": 2}, If_Match=tag)


def test_nobody_but_the_enforcer_changes_a_copy(cluster: WritableCluster, beside: Served) -> None:
    cluster.put("a.taken-over", publishRateInMsgs=100)
    for path in (f"{RG}/a.taken-over", "/api/v1/groups/a.taken-over"):
        for method in ("PUT", "DELETE"):
            body = {} if method == "PUT" else None
            reason = beside.refused(409, method, path, body)
            assert "keeps the quota of group 'a' for the enforcer" in reason
    assert cluster.groups["a.taken-over"]["publishRateInMsgs"] == 100


MSGS, BYTES = "replicationDispatchRateInMsgs", "replicationDispatchRateInBytes"
"""Fields that not all versions of Pulsar have."""


def fields(served: Served, group: str) -> Any:
    return json.loads(get_group(served.history, group)["pulsar_fields"] or "{}")


def test_other_fields_of_pulsar_are_kept_and_given_back(served: Served) -> None:
    served.ok("PUT", f"{RG}/a", {**rates(100, -1, -1, -1), MSGS: 400})
    assert served.ok("GET", f"{RG}/a") == {**rates(100, -1, -1, -1), MSGS: 400}
    # A partial update: the rest stays.
    served.ok("PUT", f"{RG}/a", {BYTES.lower(): 2**40, MSGS: None})
    served.ok("PUT", f"{RG}/a", {"publishRateInMsgs": 7, "replicatorDispatchRate": {}})
    assert served.ok("GET", f"{RG}/a") == {**rates(7, -1, -1, -1), MSGS: 400, BYTES: 2**40}
    by_cluster = {"b->c": {"dispatchThrottlingRateInMsg": 5}}
    served.ok("PUT", f"{RG}/a", {MSGS: -1, "replicatorDispatchRate": by_cluster})
    assert fields(served, "a") == {BYTES: 2**40, "replicatorDispatchRate": by_cluster}
    shown = served.ok("GET", "/api/v1/groups/a")["pulsar_fields"]
    assert shown == {BYTES: 2**40, "replicatorDispatchRate": by_cluster}
    served.ok("PATCH", "/api/v1/groups/a", {"weight": 2})
    assert fields(served, "a") == shown
    served.ok("PATCH", "/api/v1/groups/a", {"pulsar_fields": {"any": 1}})
    assert served.ok("GET", f"{RG}/a") == {**rates(7, -1, -1, -1), "any": 1}
    served.ok("PUT", "/api/v1/groups/a", {})
    assert served.ok("GET", f"{RG}/a") == rates(-1, -1, -1, -1)
    versions = served.ok("GET", "/api/v1/changes")["changes"]
    back = {"groups": ["a"], "version": versions[-1]["version"]}
    served.ok("POST", "/api/v1/rollback", back)
    assert served.ok("GET", f"{RG}/a") == {**rates(100, -1, -1, -1), MSGS: 400}


@pytest.mark.parametrize(
    ("base", "body", "reason"),
    [
        (RG, {MSGS: "5"}, f"body: {MSGS}: must be a whole number"),
        (RG, {MSGS: 1, MSGS.lower(): 2}, "is given twice"),
        (RG, {"replicatorDispatchRate": {"x": "y" * 5000}}, "at most 4096 bytes"),
        ("/api/v1/groups", {"pulsar_fields": {"PublishRateInMsgs": 5}}, "column of its own"),
        ("/api/v1/groups", {"pulsar_fields": {"a b": 5}}, "letters, digits or _"),
        ("/api/v1/groups", {"pulsar_fields": [5]}, "must be an object"),
    ],
)
def test_a_wrong_field_of_pulsar_is_refused(
    served: Served, base: str, body: Any, reason: str
) -> None:
    assert reason in served.refused(400, "PUT", f"{base}/a", body)


def test_a_field_that_was_changed_at_the_same_time_is_not_lost(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.ok("PUT", f"{RG}/a", {MSGS: 1})

    class Stale(FreshGroups):
        async def get(self) -> GroupSnapshot:
            found = await FreshGroups.get(self)
            policy = pa.table({"pulsar_fields": [json.dumps({MSGS: 5})]})
            put_groups(
                served.history, ["a"], np.full((1, len(DIMENSIONS)), NAN), "x", policy=policy
            )
            return found

    with monkeypatch.context() as patched:
        patched.setattr(served.services.groups, "get", Stale.get.__get__(served.services.groups))
        assert "make the request again" in served.refused(409, "PUT", f"{RG}/a", {BYTES: 2})
    served.services.groups.expire()
    served.ok("PUT", f"{RG}/a", {BYTES: 2})
    assert fields(served, "a") == {MSGS: 5, BYTES: 2}


def test_other_fields_of_a_cluster_pass_through(cluster: WritableCluster, beside: Served) -> None:
    rig = Rig(cluster, beside.history)
    beside.ok("PUT", f"{RG}/a", {**rates(100, -1, -1, -1), MSGS: 400})
    assert cluster.groups["a"] == {**rates(100, -1, -1, -1), MSGS: 400}
    # Somebody changes it in the cluster, and adds what nobody here knows.
    cluster.put("a", **{MSGS: 500, BYTES: -1, "storageRateInBytes": 9, "name": "x"})
    beside.ok("PUT", f"{RG}/a", {"dispatchRateInMsgs": 3})
    rig.sync()
    found = {**rates(100, -1, 3, -1), MSGS: 500, "storageRateInBytes": 9, "name": "x"}
    assert beside.ok("GET", f"{RG}/a") == found
    assert cluster.groups["a"] == {**found, BYTES: -1}
    # Before the sync has copied the cluster's, a request builds on the cluster's.
    cluster.put("a", **{MSGS: 600})
    beside.ok("PUT", f"{RG}/a", {BYTES: 7})
    assert cluster.groups["a"] == {**found, MSGS: 600, BYTES: 7}
    assert beside.ok("GET", f"{RG}/a") == {**found, MSGS: 600, BYTES: 7}
    beside.ok("PATCH", "/api/v1/groups/a", {"weight": 2})
    assert cluster.groups["a"] == {**found, MSGS: 600, BYTES: 7}
    beside.ok("PATCH", "/api/v1/groups/a", {"pulsar_fields": {MSGS: 5}})
    rest = {"storageRateInBytes": -1, "name": "x"}
    assert cluster.groups["a"] == {**rates(100, -1, 3, -1), MSGS: 5, BYTES: -1, **rest}
    rig.sync()
    assert fields(beside, "a") == {MSGS: 5, "name": "x"}
    version = rig.version()
    rig.sync()
    assert rig.version() == version
    # A group that is only in the table is created with what the table has.
    beside.ok("PUT", "/api/v1/groups/b", {"pulsar_fields": {MSGS: 8}})
    beside.ok("PUT", f"{RG}/b", {})
    assert cluster.groups["b"] == {**rates(-1, -1, -1, -1), MSGS: 8}
    del cluster.groups["a"]["name"]
    cluster.put("a", **{MSGS: -1})
    rig.sync()
    assert fields(beside, "a") == {}
