"""``quotaplane groups import pulsar`` beside an imitation of a cluster."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quotaplane.cli.main import main
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import list_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.enforce.enforce_cluster import FakePulsar, full
from tests.unit.pulsar_admin.cluster_cases import Answer

ORDERS, BILLS = "acme/orders", "acme/bills"
RATE = {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": -1}
OWN = {"publishThrottlingRateInMsg": 30, "publishThrottlingRateInByte": -1}
DISPATCH = {"dispatchThrottlingRateInMsg": 50, "dispatchThrottlingRateInByte": -1}


class Cluster(FakePulsar):
    """Lists all topics of a namespace, as the enforcer does not ask for, and runs the command."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__()
        self.capsys, self.err = capsys, ""
        self.table = History(path=str(folder / "history"))
        self.conf_file = folder / "conf.yaml"
        self.given: dict[str, Any] = {
            "transport": {
                "kind": "pulsar",
                "service_url": "pulsar://127.0.0.1:1",
                "limits_topic": "persistent://public/q/limits",
                "security": {"token": "abc"},
            },
            "history": {"path": self.table.path},
            "checkpoint": str(folder / "checkpoint"),
            "cluster": {},
        }

    def __enter__(self) -> Cluster:
        super().__enter__()
        self.given["transport"]["admin_url"] = self.url
        return self

    def run(self, *options: str, code: int = 0) -> str:
        """Run the command; returns what it printed."""
        self.conf_file.write_text(yaml.safe_dump(self.given))
        found = main(["groups", "import", "pulsar", "--conf", str(self.conf_file), *options])
        out, self.err = self.capsys.readouterr()
        assert found == code, self.err
        return out

    def proposals(self, *options: str, code: int = 0) -> dict[str, dict[str, Any]]:
        """Run it; returns the answer by namespace."""
        out = self.run("--json", *options, code=code)
        return {one["namespace"]: one for one in json.loads(out)}

    def find(self, method: str, path: str) -> Answer:
        listing = "/topics?mode=ALL"
        if path.endswith(listing) and f"{method} {path}" not in self.answers:
            namespace = path.removeprefix("namespaces/").removesuffix(listing)
            return Answer(200, [t for t in sorted(self.topics) if f"//{namespace}/" in t])
        return super().find(method, path)

    def refuse(self, request: str, status: int = 500) -> None:
        self.answers[request] = Answer(status, {"reason": "not now"})


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    """A cluster: acme/orders has a partitioned topic with a rate of its own, and one without."""
    with Cluster(tmp_path, capsys) as fake:
        fake.namespaces = {ORDERS: None, BILLS: None, "globex/all": "globex", "public/q": None}
        fake.add("a", "returns-partition-0", "returns-partition-1", used=12.0)
        fake.partitioned.add(full("returns"))
        fake.topics |= {full("b", BILLS), full("limits", "public/q"), full("x", "globex/all")}
        fake.namespace_rates[ORDERS, "publishRate"] = RATE
        fake.namespace_rates[BILLS, "dispatchRate"] = DISPATCH
        fake.namespace_rates["public/q", "publishRate"] = RATE
        fake.namespace_rates["globex/all", "publishRate"] = RATE
        fake.rates[full("returns"), "publishRate"] = OWN
        yield fake


def states(answer: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["state"] for name, one in answer.items()}


def quotas(one: dict[str, Any]) -> dict[str, Any]:
    return {name: quota for name, quota in one["quotas"].items() if quota is not None}


def test_a_rate_that_an_enforcer_left_is_not_an_administrators(cluster: Cluster) -> None:
    before = cluster.proposals()[ORDERS]
    cluster.used[full("__change_events")] = 5.0  # of the brokers' own
    left = {"publishThrottlingRateInMsg": 7, "publishThrottlingRateInByte": -2}
    cluster.rates[full("a"), "publishRate"] = left
    assert cluster.proposals()[ORDERS] == before
    left["publishThrottlingRateInByte"] = -3  # in place of a rate that nobody sees here
    assert cluster.proposals(code=6)[ORDERS]["state"] == "failed"
    assert "quotaplane enforce pulsar --remove" in cluster.err


def test_without_apply_it_writes_nothing_anywhere(cluster: Cluster) -> None:
    answer = cluster.proposals()
    assert states(answer) == {
        BILLS: "proposed",
        ORDERS: "proposed",
        "globex/all": "attached already",
        "public/q": "left out",
    }
    orders = answer[ORDERS]
    assert (orders["group"], orders["parts"]) == ("acme::orders", 3)
    assert quotas(orders) == {"publish_messages_per_s": 100 + 2 * 30}
    assert orders["used"]["publish_messages_per_s"] == 36
    assert orders["notes"] == ["topics with rates of their own: 1"]
    assert quotas(answer[BILLS]) == {"dispatch_messages_per_s": 50}
    assert cluster.writes() == []
    assert not Path(cluster.table.path).exists()
    assert {asked.authorization for asked in cluster.asked} == {"Bearer abc"}
    # Topics of attached namespaces are not read.
    asked_of_globex = [path for path in cluster.paths() if "globex" in path]
    assert sorted(asked_of_globex) == ["namespaces/globex", "namespaces/globex/all"]
    rates = [path for path in cluster.paths() if path.startswith("persistent/acme/orders/")]
    assert len(rates) == 1 + 2 * 3  # the partitioned ones; three rates of two topics


def test_topics_that_can_have_no_rates_are_counted_and_not_asked(cluster: Cluster) -> None:
    cluster.topics |= {f"non-persistent://{ORDERS}/fast", full("like-partition-7")}
    orders = cluster.proposals("--namespaces", ORDERS)[ORDERS]
    assert orders["parts"] == 5
    assert quotas(orders) == {"publish_messages_per_s": 160 + 2 * 100}
    assert "topics that can have none, such as non-persistent: 2" in orders["notes"]
    rates = [path for path in cluster.paths() if path.endswith("Rate")]
    assert {path.split("/")[3] for path in rates} == {"a", "returns"}


def test_apply_makes_groups_in_both_places_and_attaches(cluster: Cluster) -> None:
    make_history(cluster.table)
    before = dict(cluster.namespace_rates), dict(cluster.rates)
    answer = cluster.proposals("--apply", "--by", "ann", "--why", "one quota")
    assert states(answer)[ORDERS] == states(answer)[BILLS] == "attached now"
    assert cluster.namespaces[ORDERS] == "acme::orders"
    assert cluster.groups["acme::orders"]["publishRateInMsgs"] == 160
    assert cluster.groups["acme::bills"]["publishRateInMsgs"] == -1
    assert cluster.groups["acme::bills"]["dispatchRateInMsgs"] == 50
    rows = {row["group"]: row for row in list_groups(cluster.table).to_pylist()}
    assert rows["acme::orders"]["publish_messages_per_s"] == 160
    # Of a group without a publish quota anywhere the sync would wait for one.
    assert rows["acme::bills"]["publish_messages_per_s"] is None
    changes = group_changes(cluster.table)
    assert {(change["by"], change["why"], change["version"]) for change in changes} == {
        ("ann", "one quota", changes[0]["version"])
    }
    assert (cluster.namespace_rates, cluster.rates) == before, "no rate is touched"
    assert "acme/orders: attached to the group acme::orders" in cluster.err

    writes = len(cluster.writes())
    assert states(cluster.proposals("--apply"))[ORDERS] == "attached already"
    assert len(cluster.writes()) == writes
    assert len(group_changes(cluster.table)) == len(changes)


def test_how_to_go_on_and_back_is_printed(cluster: Cluster) -> None:
    make_history(cluster.table)
    relative = {"ratePeriodInSecond": 2, "relativeToPublishRate": True}
    cluster.namespace_rates[ORDERS, "dispatchRate"] = DISPATCH | relative
    out = cluster.run("--apply", "--table", "--namespaces", ORDERS)
    _, removal, back = out.split("\n\n#")
    assert removal.splitlines()[1:] == [
        "pulsar-admin namespaces remove-publish-rate acme/orders",
        "pulsar-admin topicPolicies remove-publish-rate persistent://acme/orders/returns",
    ]
    assert back.splitlines()[1:] == [
        "pulsar-admin namespaces set-publish-rate -m 100 -b -1 acme/orders",
        "pulsar-admin namespaces set-dispatch-rate -md 50 -bd -1 -dt 2 -rp acme/orders",
        "pulsar-admin namespaces remove-resource-group acme/orders",
        "pulsar-admin resourcegroups delete acme::orders",
        f"quotaplane groups delete acme::orders --conf {cluster.conf_file}",
        "pulsar-admin topicPolicies set-publish-rate -m 30 -b -1 persistent://acme/orders/returns",
    ]


def test_only_rates_that_a_quota_replaces_are_to_be_removed(cluster: Cluster) -> None:
    """A topic is unlimited in bytes: there is no quota of bytes, and the others' rates stay."""
    cluster.namespace_rates[ORDERS, "publishRate"] = {**RATE, "publishThrottlingRateInByte": 5000}
    orders = cluster.proposals()[ORDERS]
    assert quotas(orders) == {"publish_messages_per_s": 160}
    (command,) = orders["remove_rates"]
    assert command == f"pulsar-admin topicPolicies remove-publish-rate {full('returns')}"


def test_names_in_commands_are_quoted(cluster: Cluster) -> None:
    evil = full("a; rm -rf ~")
    cluster.topics.add(evil)
    cluster.rates[evil, "publishRate"] = OWN
    commands = cluster.proposals()[ORDERS]["remove_rates"]
    assert f"pulsar-admin topicPolicies remove-publish-rate '{evil}'" in commands


def test_a_second_run_continues_one_that_failed(cluster: Cluster) -> None:
    make_history(cluster.table)
    attach = f"POST namespaces/{BILLS}/resourcegroup/acme::bills"
    cluster.refuse(attach)
    answer = cluster.proposals("--apply", code=6)
    assert (states(answer)[BILLS], states(answer)[ORDERS]) == ("failed", "attached now")
    assert "500 not now" in answer[BILLS]["notes"][-1]
    assert answer[BILLS]["go_back"], "a part of it was done"
    assert cluster.err.splitlines()[-1].startswith("quotaplane: error: 1 of 4 namespaces failed")
    del cluster.answers[attach]
    assert states(cluster.proposals("--apply"))[BILLS] == "attached now"
    assert cluster.namespaces[BILLS] == "acme::bills"


def test_when_the_cluster_stops_to_answer_nothing_more_is_begun(cluster: Cluster) -> None:
    make_history(cluster.table)
    cluster.answers[f"POST namespaces/{BILLS}/resourcegroup/acme::bills"] = Answer(cut=True)
    answer = cluster.proposals("--apply", code=6)
    assert states(answer)[BILLS] == states(answer)[ORDERS] == "failed"
    assert "not begun" in answer[ORDERS]["notes"][-1]
    assert "acme::orders" not in cluster.groups


def test_a_namespace_that_is_attached_meanwhile_stays_so(cluster: Cluster) -> None:
    make_history(cluster.table)
    policies = [{}, {"resource_group_name": "other"}]
    cluster.answers[f"GET namespaces/{BILLS}"] = lambda: Answer(200, policies.pop(0))
    cluster.namespace_rates[BILLS, "publishRate"] = RATE
    policies[0] = {"publishMaxMessageRate": {"blue": RATE}}
    answer = cluster.proposals("--apply", "--namespaces", BILLS)
    assert states(answer) == {BILLS: "attached already"}
    assert answer[BILLS]["notes"] == ["meanwhile to other"]
    assert cluster.writes() == []


def test_what_can_not_be_read_concerns_its_namespace_only(cluster: Cluster) -> None:
    cluster.refuse(f"GET persistent/{ORDERS}/a/dispatchRate", 403)
    answer = cluster.proposals(code=6)
    assert (states(answer)[ORDERS], states(answer)[BILLS]) == ("failed", "proposed")
    assert answer[ORDERS]["go_back"] == [], "nothing was done"
    cluster.answers.clear()
    cluster.topics.add(full("a\\b", BILLS))  # a tenant may name a topic so; no request can have it
    answer = cluster.proposals(code=6)
    assert (states(answer)[ORDERS], states(answer)[BILLS]) == ("proposed", "failed")


def test_topics_and_namespaces_that_are_deleted_meanwhile(cluster: Cluster) -> None:
    cluster.deleted_unseen.add(full("a"))
    cluster.refuse(f"GET namespaces/{BILLS}", 404)
    answer = cluster.proposals()
    assert BILLS not in answer
    assert quotas(answer[ORDERS]) == {"publish_messages_per_s": 60}, "without the deleted topic"


def test_without_topic_policies_no_topic_is_asked(cluster: Cluster) -> None:
    cluster.runtime["topicLevelPoliciesEnabled"] = "false"
    assert quotas(cluster.proposals()[ORDERS]) == {"publish_messages_per_s": 300}
    assert not [path for path in cluster.paths() if path.endswith("/publishRate")]


def test_the_brokers_own_rate_counts(cluster: Cluster) -> None:
    cluster.runtime["maxPublishRatePerTopicInMessages"] = "40"
    found = quotas(cluster.proposals()[BILLS])
    assert found == {"publish_messages_per_s": 40, "dispatch_messages_per_s": 50}


def test_the_proposals_do_not_need_the_usage(cluster: Cluster) -> None:
    cluster.owned["127.0.0.1:1"] = []
    cluster.refuse("GET /lookup/v2/topic/persistent/pulsar/127.0.0.1:1/healthcheck", 503)
    orders = cluster.proposals()[ORDERS]
    assert orders["state"] == "proposed"
    assert set(orders["used"].values()) == {None}
    assert "the usage is not shown" in cluster.err


def test_groups_that_exist_with_other_quotas_are_left_alone(cluster: Cluster) -> None:
    make_history(cluster.table)
    cluster.put("acme::orders", publishRateInMsgs=7)
    put = ["groups", "put", "acme::bills", "--publish-messages-per-s", "3"]
    assert main([*put, "--history", cluster.table.path]) == 0
    cluster.capsys.readouterr()
    answer = cluster.proposals("--apply")
    assert states(answer)[ORDERS] == states(answer)[BILLS] == "name taken"
    assert "in the cluster with other quotas" in answer[ORDERS]["notes"][-1]
    assert "in the history with other quotas" in answer[BILLS]["notes"][-1]
    assert cluster.writes() == []


def test_tenants_of_the_settings_are_left_to_the_job(cluster: Cluster) -> None:
    cluster.given["cluster"] = {"tenants": {"acme": "rg"}}
    answer = cluster.proposals()
    assert answer[ORDERS]["notes"] == ["cluster.tenants attaches it to rg"]
    assert answer[ORDERS]["state"] == "left out"


def test_tables(cluster: Cluster) -> None:
    rows = list(csv.DictReader(io.StringIO(cluster.run("--csv"))))
    assert [(row["namespace"], row["quota_per_s"], row["used_per_s"]) for row in rows] == [
        (BILLS, "50", "0"),
        (ORDERS, "160", "36"),
        ("globex/all", "", ""),
        ("public/q", "", ""),
    ]
    lines = cluster.run("--table").splitlines()
    assert lines[-2] == "2 proposed, 1 attached already, 1 left out"
    assert lines[-1].startswith("nothing was changed")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--namespaces", "nobody/*"], "no namespace matches 'nobody/*'"),
        (["--apply"], "there is no history at"),
        (["--why", " "], "--why must not be empty"),
    ],
)
def test_wrong_options(cluster: Cluster, options: list[str], line: str) -> None:
    assert cluster.run(*options, code=2) == ""
    assert line in cluster.err


def test_another_transport(cluster: Cluster) -> None:
    cluster.given |= {"transport": {"kind": "delta", "path": "t"}, "cluster": None}
    cluster.run(code=2)
    assert "groups import pulsar needs transport.kind: pulsar" in cluster.err
