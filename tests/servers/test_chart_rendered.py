"""The Helm chart as Helm renders it: valid for Kubernetes, with least rights, and our names."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

import pytest
import yaml

from tests.servers.chart_tools import ROOT, Rendered, render, tools_folder
from tests.unit.repo.documented_commands import check_options
from tests.unit.repo.test_chart import VALUES, example, merged

pytestmark = pytest.mark.nightly

KAFKA: Final = {
    "kind": "kafka",
    "bootstrap_servers": "kafka:9092",
    "report_topics": ["r"],
    "limits_topic": "l",
}
PULSAR: Final = {
    "kind": "pulsar",
    "service_url": "pulsar+ssl://pulsar:6651",
    "admin_url": "https://pulsar:8443",
    "limits_topic": "persistent://public/quotaplane/limits",
}
PEERS: Final = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "there"}}}]
EVERYTHING: Final[dict[str, Any]] = {
    "settings": {
        "transport": PULSAR,
        "balance": {"cluster": "main"},
        "reports": {"max_report_bytes": 8388608},
        "server": {"host": "0.0.0.0", "tls": "ended-by-a-proxy", "anonymous": "viewer"},
    },
    "secrets": {
        "variables": {"A_SECRET": {"secret": "quotaplane", "key": "a"}},
        "folders": {"pulsar": "pulsar-tls"},
    },
    **{part: {"enabled": True} for part in ("enforcer", "server", "balance", "monitor")},
    "network": {"egress": [{"ports": [{"port": 6651}]}], "metricsFrom": PEERS, "serverFrom": PEERS},
    "pod": {"nodeSelector": {"disk": "fast"}},
}


def with_kafka(**values: Any) -> dict[str, Any]:
    return {"settings": {"transport": KAFKA}, **values}


@pytest.fixture(scope="module")
def everything() -> Rendered:
    return render(EVERYTHING)


def pods(rendered: Rendered) -> dict[str, dict[str, Any]]:
    """The specification of each pod, by the part's name."""
    found = {}
    for document in rendered.documents:
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is not None:
            (container,) = template["spec"]["containers"]
            found[container["name"]] = template["spec"]
    return found


def test_helm_and_kubernetes_find_no_fault(everything: Rendered) -> None:
    for rendered in (everything, render(example())):
        assert not rendered.lint
        assert not rendered.faults
    kinds = {document["kind"] for document in everything.documents}
    assert kinds == {
        *("StatefulSet", "Deployment", "CronJob", "Service", "ServiceAccount", "ConfigMap"),
        *("PersistentVolumeClaim", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"),
    }


def test_a_wrong_document_is_a_fault() -> None:
    """A fault that was put in is found."""
    assert render(merged(EVERYTHING, {"pod": {"nodeSelctor": {}}})).faults


def test_the_linter_of_containerfiles_finds_no_fault() -> None:
    program = tools_folder() / "bin/hadolint"
    done = subprocess.run([program, ROOT / "deploy/Containerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_pod_has_the_least_rights(everything: Rendered) -> None:
    specs = pods(everything)
    parts = {"quota", "maintenance", "enforcer", "server", "balance", "collector"}
    assert specs.keys() == parts
    for part, spec in specs.items():
        (container,) = spec["containers"]
        assert spec["automountServiceAccountToken"] is False, part
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert spec["nodeSelector"] == {"disk": "fast"}


def test_every_pod_starts_a_command_that_exists(everything: Rendered) -> None:
    for part, spec in pods(everything).items():
        (container,) = spec["containers"]
        # the standby is the quota job's own
        check_options([word for word in container["args"] if word != "--standby"])
        assert "/etc/quotaplane/settings.yaml" in container["args"], part


def test_what_serves_has_probes_and_a_service_with_the_name_that_alerts_have(
    everything: Rendered,
) -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    jobs = {job["job_name"] for job in scraped["scrape_configs"]}
    services = [each for each in everything.documents if each["kind"] == "Service"]
    assert {each["metadata"]["labels"]["quotaplane-job"] for each in services} == jobs
    for service in services:
        part = service["spec"]["selector"]["app.kubernetes.io/component"]
        (container,) = pods(everything)[part]["containers"]
        assert container["livenessProbe"]["httpGet"]["port"] == "http"
        (port,) = container["ports"]
        assert service["spec"]["ports"][0]["port"] == port["containerPort"]


def test_the_settings_keep_their_numbers(everything: Rendered) -> None:
    text = everything.of("ConfigMap", "settings")["data"]["settings.yaml"]
    assert json.loads(text) == merged(VALUES["settings"], EVERYTHING["settings"])
    assert "8388608" in text


def test_secrets_are_only_named(everything: Rendered) -> None:
    assert not [each for each in everything.documents if each["kind"] == "Secret"]
    for spec in pods(everything).values():
        (container,) = spec["containers"]
        given = {each["name"]: each for each in container["env"]}
        named = given["A_SECRET"]["valueFrom"]["secretKeyRef"]
        assert named == {"name": "quotaplane", "key": "a"}
        mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
        assert mounts["/run/secrets/quotaplane/pulsar"]["readOnly"] is True


def test_the_policy_is_for_every_pod_and_refuses_what_is_not_listed(everything: Rendered) -> None:
    (policy,) = (
        each["spec"]
        for each in everything.documents
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "quotaplane"
    )
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"] for rule in policy["egress"]] == [
        [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
        [{"port": 6651}],
    ]
    chosen = policy["podSelector"]["matchLabels"].items()
    for document in everything.documents:
        if document["kind"] in ("StatefulSet", "Deployment"):
            assert chosen <= document["spec"]["template"]["metadata"]["labels"].items()
    closed = render(with_kafka())
    policies = [each for each in closed.documents if each["kind"] == "NetworkPolicy"]
    assert [each["spec"]["ingress"] for each in policies] == [None]


def test_a_standby_is_a_second_job(everything: Rendered) -> None:
    job = everything.of("StatefulSet", "quota")["spec"]
    assert job["replicas"] == 2
    assert "--standby" in job["template"]["spec"]["containers"][0]["args"]
    assert everything.of("PodDisruptionBudget", "quota")["spec"]["maxUnavailable"] == 1
    alone = render(with_kafka(quota={"standby": False}))
    job = alone.of("StatefulSet", "quota")["spec"]
    assert job["replicas"] == 1
    assert "--standby" not in job["template"]["spec"]["containers"][0]["args"]
    assert "PodDisruptionBudget" not in {each["kind"] for each in alone.documents}


def test_a_job_with_executors_may_make_pods_and_nobody_else(everything: Rendered) -> None:
    rendered = render({**EVERYTHING, "quota": {"executors": 2}})
    assert not rendered.faults
    for part, spec in pods(rendered).items():
        assert spec["automountServiceAccountToken"] is (part == "quota")
        assert (spec["serviceAccountName"] == "quotaplane-driver") is (part == "quota")
    (subject,) = rendered.of("RoleBinding", "driver")["subjects"]
    assert subject["name"] == "quotaplane-driver"
    options = rendered.of("ConfigMap", "settings")["data"]["spark.conf"].splitlines()
    assert "spark.kubernetes.executor.secrets.pulsar-tls /run/secrets/quotaplane/pulsar" in options
    assert "Role" not in {each["kind"] for each in everything.documents}


def test_an_object_store_needs_no_volume() -> None:
    places = {"history": {"path": "s3a://b/history"}, "checkpoint": "s3a://b/checkpoint"}
    rendered = render({"settings": {"transport": KAFKA, **places}})
    assert "PersistentVolumeClaim" not in {each["kind"] for each in rendered.documents}
    assert {"name": "data", "emptyDir": {}} in pods(rendered)["quota"]["volumes"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "settings.transport: set it as in conf/kafka.yaml"),
        (with_kafka(storage={"accessMode": "ReadWriteOnce"}), "quota.standby: a standby on"),
        (
            with_kafka(
                storage={"accessMode": "ReadWriteOnce"}, quota={"standby": False, "executors": 1}
            ),
            "quota.executors: they need storage.accessMode ReadWriteMany",
        ),
        ({"settings": {"transport": KAFKA, "checkpoint": "s3a://c"}}, "both on the volume, or"),
        (with_kafka(server={"enabled": True}), "server.enabled: needs settings.server"),
        (with_kafka(balance={"enabled": True}), "balance.enabled: needs settings.balance"),
        ({"qouta": {}}, "'qouta' not allowed"),
    ],
)
def test_what_the_chart_can_not_do_it_refuses(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        render(values)


def test_the_notes_name_the_objects(everything: Rendered) -> None:
    assert "statefulset/quotaplane-quota" in everything.notes
