"""docs/operate/kafka-plugin.md: from a stock broker to a limited tenant, as the page writes it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from quotaplane.settings import KafkaTransport
from quotaplane.transport.kafka_options import client_options
from tests.jvm.kafka_plugin import plugin_jar
from tests.servers.kafka_commands import run_kafka
from tests.servers.kafka_server import KafkaServer
from tests.servers.plugged_kafka import BROKER, Load
from tests.unit.repo.documented_commands import Sandbox
from tests.unit.repo.pages import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

PAGE: Final = ROOT / "docs" / "operate" / "kafka-plugin.md"
ALICE: Final = "alice"


def steps() -> list[str]:
    """The lines of the page's numbered steps, continued ones as one."""
    part = PAGE.read_text("utf-8").partition("## Ten minutes")[2].partition("\n## ")[0]
    lines = re.findall(r"^ {7}(\S.*)$", re.sub(r" \\\n +", " ", part), re.MULTILINE)
    assert len(lines) > 8
    return lines


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
    properties = [line for line in lines if re.match(r"[a-z.]+=", line)]
    settings = "\n".join(properties).replace("HOST:9092", server.bootstrap_servers)
    server.more_properties(dict(line.split("=", 1) for line in settings.split("\n")))
    sandbox = Sandbox(tmp_path / "repository")
    conf = sandbox.folder / "conf" / "kafka.yaml"
    text = conf.read_text().replace("localhost:9092", server.bootstrap_servers)
    text = re.sub(r"(  attachments_topic: )\S+", r"\1quotaplane-attachments", text)
    assert "attachments_topic: quotaplane-attachments" in text
    conf.write_text(text)
    with server:
        for line in lines:
            if line.startswith("kafka-topics.sh"):
                run_kafka(server, shlex.split(line))
        server.create_topic("load")
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
