"""``quotaplane setup pulsar``: what it prints, what it makes, and what it leaves as it is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from quotaplane.cli.main import main
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.cluster_setup import Roles, make
from quotaplane.settings import PulsarTransport, parse_settings
from tests.unit.pulsar_admin.cluster_cases import Answer, RestServer

STOCK = "non-persistent://pulsar/system/resource-usage"
LIMITS = "persistent://acme/control/limits"
LEADER = "persistent://acme/control/enforcer-leader"
OBSERVED = "persistent://public/usage/observed"
RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}
IDLE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": False,
}


class Admin(RestServer):
    """The part of a Pulsar's REST API that has topics; policies that are made show after a while.

    ``answers`` override it. It also runs the command, with settings of its own.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__()
        self._conf, self._capsys = folder / "conf.yaml", capsys
        self.given: dict[str, Any] = {
            "transport": {
                "kind": "pulsar",
                "service_url": "pulsar://127.0.0.1:1",
                "limits_topic": LIMITS,
                "report_topics": [STOCK, OBSERVED],
            },
            "history": {"path": "h"},
            "checkpoint": "c",
            "enforce": {"report_topic": OBSERVED},
        }
        self.out = self.err = ""
        self.runtime = {
            "clusterName": "blue",
            "resourceUsageTransportClassName": (
                "org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"
            ),
            "resourceUsageTransportPublishIntervalInSecs": "5",
            "topicLevelPoliciesEnabled": "true",
        }
        self.places: dict[str, Any] = {"tenants/public": {}}
        """Tenants, namespaces and topics by their paths."""
        self.policies: dict[str, Any] = {}
        """Policies by their paths; without a topic: for all topics."""
        self.permissions: dict[str, dict[str, list[str]]] = {}
        self.hidden_looks = 0
        """The number of reads of policies that do not show yet what was made."""
        self._earlier: dict[str, Any] = {}

    def __enter__(self) -> Admin:
        super().__enter__()
        self.given["transport"]["admin_url"] = self.url
        return self

    def run(self, *options: str) -> int:
        """Run the command; returns its exit code."""
        self._conf.write_text(yaml.safe_dump(self.given))
        code = main(["setup", "pulsar", "--conf", str(self._conf), *options])
        self.out, self.err = self._capsys.readouterr()
        return code

    def apply(self, *options: str) -> int:
        return self.run("--apply", *options)

    def find(self, method: str, path: str) -> Answer:
        if f"{method} {path}" in self.answers:
            return super().find(method, path)
        path, _, query = path.partition("?")
        if path == "brokers/configuration/runtime":
            return Answer(200, self.runtime)
        kind = path.rpartition("/")[2]
        if kind in ("retention", "inactiveTopicPolicies", "compactionThreshold"):
            return self._policy(method, path, kind, query)
        if "/permissions" in path:
            topic, _, role = path.partition("/permissions")
            if method == "POST":
                self.permissions.setdefault(topic, {})[role[1:]] = self._body()
                return Answer(204)
            return Answer(200, self.permissions.get(topic, {}))
        place = path.removesuffix("/partitions")
        if method == "PUT":
            assert _parent(place) in (None, *self.places), "made too early"
            self.places[place] = self._body()
            return Answer(204)
        return Answer(200, {"partitions": 0}) if place in self.places else Answer(404)

    def _policy(self, method: str, path: str, kind: str, query: str) -> Answer:
        if method == "POST":
            assert path.removesuffix(f"/{kind}") in self.places, "the topic is not there"
            self._earlier.setdefault(path, self.policies.get(path))
            self.policies[path] = self._body()
            return Answer(204)
        assert query == "applied=true"
        shown = self.policies
        if path in self._earlier and self.hidden_looks:
            self.hidden_looks -= 1
            shown = {path: self._earlier[path]}
        value = shown.get(path, self.policies.get(kind))
        return Answer(204) if value is None else Answer(200, value)

    def _body(self) -> Any:
        text = self.asked[-1].body
        return json.loads(text) if text else None

    def writes(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked if asked.method != "GET"]


def _parent(place: str) -> str | None:
    """The part of a name that must be there first, of a tenant, namespace or topic."""
    kind, tenant, *names = place.split("/")
    if kind == "tenants":
        return None
    return f"tenants/{tenant}" if kind == "namespaces" else f"namespaces/{tenant}/{names[0]}"


@pytest.fixture
def admin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Admin]:
    with Admin(tmp_path, capsys) as server:
        yield server


def made_paths(topic: str) -> list[str]:
    place = topic.replace("://", "/")
    return [f"PUT {place}", f"POST {place}/retention", f"POST {place}/inactiveTopicPolicies"]


WRITES = [
    "PUT tenants/acme",
    "PUT namespaces/acme/control",
    "PUT namespaces/public/usage",
    *(path for topic in (LIMITS, OBSERVED, LEADER) for path in made_paths(topic)),
]


def test_a_dry_run_prints_commands_and_writes_nothing(admin: Admin) -> None:
    assert admin.run() == 12
    printed = admin.out
    assert admin.run("--dry-run") == 12
    assert admin.out == printed
    assert not admin.writes()
    commands = [shlex.split(line) for line in printed.splitlines() if not line.startswith("#")]
    assert len(commands) == len(WRITES)
    assert ["pulsar-admin", "namespaces", "create", "acme/control"] in commands
    kept = ["--time", "10m", "--size", "-1"]
    assert ["pulsar-admin", "topicPolicies", "set-retention", *kept, LIMITS] in commands


def test_a_second_run_has_nothing_to_do(admin: Admin) -> None:
    admin.hidden_looks = 2
    assert admin.apply() == 0
    assert admin.writes() == WRITES
    assert admin.places["tenants/acme"] == {"adminRoles": [], "allowedClusters": ["blue"]}
    place = LIMITS.replace("://", "/")
    assert admin.policies[f"{place}/retention"] == RETENTION
    assert admin.policies[f"{place}/inactiveTopicPolicies"] == IDLE
    assert len(admin.out.splitlines()) == len(WRITES)
    for options in (["--apply"], []):
        assert (admin.run(*options), admin.out) == (0, "")
    assert admin.writes() == WRITES


def test_what_stands_is_not_lessened(admin: Admin) -> None:
    assert admin.apply() == 0
    admin.asked.clear()
    limits, leader = (topic.replace("://", "/") for topic in (LIMITS, LEADER))
    longer = {"retentionTimeInMinutes": 600, "retentionSizeInMB": -1}
    admin.policies[f"{limits}/retention"] = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    admin.policies[f"{leader}/retention"] = longer
    assert admin.apply() == 0
    assert not admin.writes()
    # A bound on the size may be too small for a lease; the longer time stays.
    admin.policies[f"{leader}/retention"] = {**longer, "retentionSizeInMB": 5}
    assert admin.apply() == 0
    assert admin.writes() == [f"POST {leader}/retention"]
    assert admin.policies[f"{leader}/retention"] == longer


def test_topics_are_not_compacted(admin: Admin) -> None:
    admin.policies["compactionThreshold"] = 1_000_000  # of the namespace
    assert admin.apply() == 0
    assert admin.policies[f"{LIMITS.replace('://', '/')}/compactionThreshold"] == 0


def test_a_topic_of_attachments_is_compacted_and_kept_for_good(admin: Admin) -> None:
    admin.given["transport"]["attachments_topic"] = "attachments"
    assert admin.apply() == 0
    place = f"{LIMITS.replace('://', '/').rpartition('/')[0]}/attachments"
    assert admin.policies[f"{place}/compactionThreshold"] == 10_485_760
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert admin.policies[f"{place}/retention"] == forever
    assert (admin.run(), admin.out) == (0, "")
    admin.policies[f"{place}/compactionThreshold"] = 5
    assert (admin.run(), admin.out) == (0, ""), "it is compacted as it is"


def test_retention_follows_the_lease_and_sections_bring_their_topics(admin: Admin) -> None:
    admin.given |= {"limits": {"lease_s": 3600}, "balance": {}}
    assert admin.apply() == 0
    kept = {
        path.split("/")[3]: value["retentionTimeInMinutes"]
        for path, value in admin.policies.items()
        if path.endswith("/retention")
    }
    lease = dict.fromkeys(("limits", "observed", "enforcer-leader"), 68)
    assert kept == {**lease, "load-reports": 60, "balance-plans": 60}


def test_topics_of_brokers_are_left_to_the_brokers(admin: Admin) -> None:
    admin.given["enforce"] = {}
    admin.given["transport"]["report_topics"] = ["persistent://public/reports/of-{broker}"]
    admin.runtime["resourceUsageTransportClassName"] = ""  # only stock brokers report by it
    assert admin.apply() == 0
    assert not [path for path in admin.places if "reports" in path]
    assert "# note: persistent://public/reports/of-{broker}: " in admin.out


def test_lines_of_broker_conf_are_named(admin: Admin) -> None:
    wrong = {
        "topicLevelPoliciesEnabled": "false",
        "resourceUsageTransportClassName": "",
        "resourceUsageTransportPublishIntervalInSecs": "60",
        "exposeTopicLevelMetricsInPrometheus": "false",
        "metricsBufferResponse": "true",
    }
    admin.runtime |= wrong
    assert admin.apply() == 12
    # Without policies of topics there is nothing to ask for.
    assert admin.writes() == [path for path in WRITES if not path.startswith("POST")]
    named = [
        line.removeprefix("# by hand: broker.conf: ").partition("=")[0]
        for line in admin.out.splitlines()
        if line.startswith("# by hand")
    ]
    assert named == list(wrong)


def test_rights_are_added_to_those_that_stand(admin: Admin) -> None:
    admin.runtime |= {"authorizationEnabled": "true", "superUserRoles": "[admin, the enforcer]"}
    limits, observed = (topic.replace("://", "/") for topic in (LIMITS, OBSERVED))
    admin.permissions[limits] = {"job": ["functions"], "other": ["consume"]}
    assert admin.apply() == 0
    assert "# note: the cluster checks rights" in admin.out
    roles = ("--job-role", "job", "--enforcer-role")
    assert admin.apply(*roles, "enforcer's") == 12  # the enforcer must be a superuser
    assert "superUserRoles with enforcer's" in admin.out
    assert admin.permissions == {
        STOCK.replace("://", "/"): {"job": ["consume"]},
        observed: {"job": ["consume"], "enforcer's": ["produce"]},
        limits: {
            "job": ["consume", "functions", "produce"],
            "other": ["consume"],
            "enforcer's": ["consume"],
        },
        LEADER.replace("://", "/"): {"enforcer's": ["consume", "produce"]},
    }
    admin.asked.clear()
    assert admin.apply(*roles, "the enforcer") == 0
    assert (admin.writes(), admin.out) == ([], "")


def test_after_a_failure_a_second_run_continues(admin: Admin) -> None:
    refused = f"PUT {OBSERVED.replace('://', '/')}"
    admin.answers[refused] = Answer(403, {"reason": "not allowed"})
    assert admin.apply() == 6
    done = WRITES.index(refused)
    assert admin.writes() == WRITES[: done + 1]
    assert len(admin.out.splitlines()) == done
    assert admin.err.count("\n") == 1
    assert f"topic {OBSERVED}: " in admin.err
    assert f"not allowed; check transport.security and what its role may do; {done} of" in admin.err
    del admin.answers[refused]
    admin.asked.clear()
    assert admin.apply() == 0
    assert admin.writes() == WRITES[done:]


def test_a_role_without_rights_changes_nothing(admin: Admin) -> None:
    admin.answers["GET brokers/configuration/runtime"] = Answer(401, {"reason": "no superuser"})
    assert admin.apply() == 6
    assert not admin.writes()
    assert "no superuser; check transport.security and what its role may do" in admin.err


async def test_what_the_cluster_does_not_show_is_an_error(admin: Admin) -> None:
    admin.hidden_looks = 1_000_000
    settings = parse_settings(admin.given)
    transport, nothing = settings.transport, Roles()
    assert isinstance(transport, PulsarTransport)
    with pytest.raises(ClusterError, match=f"retention of {LIMITS}.*does not show it after 0 s"):
        async with admin.rest() as rest:
            await make(rest, settings, transport, nothing, lambda _: None, 0.0)


def test_a_malformed_answer_is_an_error_of_the_cluster(admin: Admin) -> None:
    admin.policies["retention"] = {"retentionTimeInMinutes": "soon", "retentionSizeInMB": -1}
    assert admin.run() == 6


def test_other_transports_need_no_setup(admin: Admin) -> None:
    admin.given |= {"transport": {"kind": "delta", "path": "t"}, "enforce": {}}
    assert admin.run() == 2
    assert "setup pulsar needs transport.kind: pulsar" in admin.err
