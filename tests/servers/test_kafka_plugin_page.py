"""docs/operate/kafka-plugin.md as it is written: to a limited tenant, quieter logs, and removal."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from kafka import KafkaAdminClient, KafkaConsumer

from quotaplane.settings import KafkaTransport
from quotaplane.transport.kafka_options import client_options
from tests.jvm.kafka_plugin import plugin_jar
from tests.servers.kafka_commands import run_kafka
from tests.servers.kafka_server import OTHER_VERSIONS, VERSION, KafkaServer
from tests.servers.plugged_kafka import BROKER, LOAD, Job, Load, Reports, plugin_properties
from tests.servers.tools import free_ports
from tests.unit.repo.documented_commands import Sandbox
from tests.unit.repo.pages import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

PAGE: Final = ROOT / "docs" / "operate" / "kafka-plugin.md"
ALICE: Final = "alice"


def section(heading: str) -> str:
    """A section of the page, continued lines as one."""
    part = PAGE.read_text("utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    return re.sub(r" \\\n +", " ", part)


def steps(heading: str = "Ten minutes") -> list[str]:
    """The lines in a section's numbered steps."""
    lines = re.findall(r"^ {7}(\S.*)$", section(heading), re.MULTILINE)
    assert len(lines) >= 3
    return lines


def properties_of(lines: list[str], server: KafkaServer) -> dict[str, str]:
    """Those of the lines that are for server.properties."""
    properties = [line for line in lines if re.match(r"[a-z.]+=", line)]
    settings = "\n".join(properties).replace("HOST:9092", server.bootstrap_servers)
    return dict(line.split("=", 1) for line in settings.split("\n"))


def run_topic_commands(server: KafkaServer, lines: list[str]) -> None:
    for line in lines:
        if line.startswith("kafka-topics.sh"):
            run_kafka(server, shlex.split(line))


@contextmanager
def running(sandbox: Sandbox, line: str, log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        job = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], **sandbox.place, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        wait_until(lambda: ": ready: " in log.read_text(), process=job, said=log.read_text)
        yield
    finally:
        job.send_signal(signal.SIGINT)
        try:
            job.wait(60)
        finally:
            job.kill()


def test_ten_minutes_to_a_limited_tenant(tmp_path: Path) -> None:
    lines = steps()
    secured: dict[str, Any] = {"secure": True, "users": (ALICE,), "access_rules": True}
    server = KafkaServer(tmp_path / "kafka", extra_jars=[plugin_jar()], **secured)
    server.more_properties(properties_of(lines, server))
    sandbox = Sandbox(tmp_path / "repository")
    conf = sandbox.folder / "conf" / "kafka.yaml"
    text = conf.read_text().replace("localhost:9092", server.bootstrap_servers)
    text = re.sub(r"(  attachments_topic: )\S+", r"\1quotaplane-attachments", text)
    assert "attachments_topic: quotaplane-attachments" in text
    conf.write_text(text)
    with server:
        run_topic_commands(server, lines)
        server.create_topic(LOAD)
        run_kafka(server, shlex.split(_RIGHTS))
        put, limits = (line for line in lines if re.match("quotaplane (groups put|limits)", line))
        (run,) = (line for line in lines if line.startswith("quotaplane run quota"))
        with running(sandbox, run, tmp_path / "job.log"):
            subprocess.run(["bash", "-c", put], **sandbox.place, check=True)
            wait_until(lambda: limit_of(sandbox, limits) is not None, said=server.said)
            load = Load(server.bootstrap("SASL_SSL"), "app", **login(server))
            load.rate_over(3)
            limit = limit_of(sandbox, limits)
            assert limit == pytest.approx(3_000_000, rel=0.01), "the only broker has all of it"
            assert load.rate_over(8) == pytest.approx(limit, rel=0.1)
            load.end()


def test_nothing_is_left_after_a_removal(tmp_path: Path) -> None:
    """Kafka's own quotas hold before, where there is no limit, and after; the limit does not."""
    folder, lines = tmp_path / "kafka", steps()
    ports = dict(zip(("PLAINTEXT", "CONTROLLER"), free_ports(2), strict=True))
    server = KafkaServer(folder, extra_jars=[plugin_jar()], ports=ports)
    ours = properties_of(lines, server)
    server.more_properties(ours)
    with server:
        run_topic_commands(server, lines)
        server.create_topic(LOAD)
        for client, rate in (("own", 500_000), ("limited", 2_000_000)):
            set_quota = _QUOTA.format(client=client, rate=rate)
            run_kafka(server, shlex.split(set_quota))
        quotas = run_kafka(server, shlex.split(_QUOTAS))
        assert "producer_byte_rate=500000" in quotas
        job, reports = Job(server), Reports(server)
        job.attach({"client=limited": "acme"})
        job.limit({"acme": {"publish_bytes": 1e6}})
        reports.wait_for("limit_publish_bytes_per_s", "acme", 1e6)
        assert rates_of(server) == {"own": near(500_000), "limited": near(1_000_000)}
        reports.close()
        job.close()

    properties = folder / "kraft.properties"
    kept = [line for line in properties.read_text().splitlines() if line.split("=")[0] not in ours]
    # With Kafka's own windows the mean rate is right after half a minute only.
    properties.write_text("\n".join([*kept, "quota.window.num=1"]) + "\n")
    with KafkaServer(folder, ports=ports) as server:
        run_topic_commands(server, steps("Upgrade and removal"))
        assert run_kafka(server, shlex.split(_QUOTAS)) == quotas
        assert rates_of(server) == {"own": near(500_000), "limited": near(2_000_000)}
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        assert admin.list_topics() == [LOAD]
        assert admin.list_groups() == []
        admin.close()
        assert "quotaplane" not in server.said()
    assert "quotaplane" not in properties.read_text()


_QUOTA: Final = (
    "kafka-configs.sh --bootstrap-server HOST:9092 --alter --entity-type clients "
    "--entity-name {client} --add-config producer_byte_rate={rate}"
)
_QUOTAS: Final = "kafka-configs.sh --bootstrap-server HOST:9092 --describe --entity-type clients"


def near(rate: float) -> Any:
    return pytest.approx(rate, rel=0.25)


def rates_of(server: KafkaServer) -> dict[str, float]:
    """Bytes per second of two clients that send as fast as they may, at the same time."""
    loads = {name: Load(server.bootstrap_servers, name) for name in ("own", "limited")}
    loads["own"].rate_over(3.0)  # Bursts are over then.
    before = {name: load.sent for name, load in loads.items()}
    loads["own"].rate_over(6.0)
    rates = {name: (load.sent - before[name]) / 6 for name, load in loads.items()}
    for load in loads.values():
        load.end()
    return rates


@pytest.mark.parametrize("version", [VERSION, OTHER_VERSIONS[-1]])
def test_the_lines_of_the_page_end_kafkas_lines_about_limits(tmp_path: Path, version: str) -> None:
    loggers = re.findall(r"^ {4}( {6,8}\S.*)$", section("Watch it"), re.MULTILINE)
    assert len(loggers) == 8
    logged = limits_logged(tmp_path / "before", version, [])
    assert logged >= _IN_KAFKAS_UNITS
    assert limits_logged(tmp_path / "after", version, loggers) == set()


_CHANGED: Final = {
    "publish_bytes": 3e6,
    "dispatch_bytes": 5e6,
    "request_ms": 7000.0,
    "controller_mutations": 11.0,
}
_IN_KAFKAS_UNITS: Final = {"3000000.0", "5000000.0", "700.0", "11.0"}
_LOG4J2: Final = """\
Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        - ref: STDOUT
    Logger:
      - name: kafka
        level: INFO
"""
"""As Kafka's own config/log4j2.yaml."""


def limits_logged(folder: Path, version: str, loggers: list[str]) -> set[str]:
    """The limits of all kinds that a server logs when they change, with these loggers, too."""
    yaml = _LOG4J2 + "\n".join(loggers) + "\n"
    server = KafkaServer(folder, version=version, extra_jars=[plugin_jar()], log4j2_yaml=yaml)
    server.more_properties(plugin_properties(bootstrap_servers=server.bootstrap_servers))
    with server, ExitStack() as ends:
        job, reports = Job(server), Reports(server)
        job.create_topics()
        job.attach({"client=limited": "acme"})
        load = Load(server.bootstrap_servers, "limited", 1e5)
        ends.callback(load.end)
        client: dict[str, Any] = {"bootstrap_servers": server.bootstrap_servers}
        client["client_id"] = "limited"
        reader = KafkaConsumer(LOAD, group_id=None, auto_offset_reset="earliest", **client)
        ends.callback(reader.close)
        admin = KafkaAdminClient(**client)
        ends.callback(admin.close)
        for number, factor in enumerate((2.0, 1.0)):
            job.limit({"acme": {name: factor * limit for name, limit in _CHANGED.items()}})
            reports.wait_for(
                "limit_publish_bytes_per_s", "acme", factor * _CHANGED["publish_bytes"]
            )
            # Kafka looks at limits with the next request of each kind.
            admin.create_topics({f"new-{number}": {"num_partitions": 1, "replication_factor": 1}})
            wait_until(lambda: reader.poll(timeout_ms=100), 20)
            load.rate_over(0.5)
        said = server.said()
    assert " INFO " in said
    return set(re.findall(r"already exists\. Setting quota to (\S+) in MetricConfig", said))


_RIGHTS: Final = (
    f"kafka-acls.sh --bootstrap-server HOST:9092 --add --allow-principal User:{ALICE} "
    "--operation Write --operation Describe --topic load"
)


def login(server: KafkaServer) -> dict[str, Any]:
    """Settings of a client that logs in as alice."""
    transport = {"kind": "kafka", "report_topics": ["r"], "limits_topic": "l"}
    options = client_options(KafkaTransport.model_validate(transport | server.login(ALICE)))
    ours = ("security_protocol", "sasl_", "ssl_")
    return {name: value for name, value in options.items() if name.startswith(ours)}


def limit_of(sandbox: Sandbox, line: str) -> float | None:
    """The broker's limit in bytes per second, as the page's command prints it; None: none yet."""
    done = subprocess.run(
        ["bash", "-c", f"{line} --json"], **sandbox.place, capture_output=True, text=True
    )
    rows = json.loads(done.stdout or "[]")
    found = [row["limit_per_s"] for row in rows if row["broker"] == BROKER]
    return found[0] if found else None
