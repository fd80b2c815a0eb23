"""The plugin's own clients with TLS, a login and access rules, and messages that nobody signed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from quotaplane.transport.kafka_options import jaas_config
from quotaplane.wire.signatures import SigningKeys
from tests.jvm.kafka_plugin import plugin_jar
from tests.servers.kafka_commands import run_kafka
from tests.servers.kafka_server import SASL_PASSWORD, KafkaServer
from tests.servers.page_commands import commands_of
from tests.servers.plugged_kafka import (
    ATTACHMENTS,
    BROKER,
    LIMITS,
    LOAD,
    Job,
    Load,
    Reports,
    plugged,
    plugin_properties,
)
from tests.unit.repo.pages import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

LIMIT: Final = 1_000_000.0
COLUMN: Final = "limit_publish_bytes_per_s"
SECRET: Final = "0123456789abcdef0123456789abcdef"
KEYS: Final = SigningKeys({"k1": SECRET}, sign_with="k1")
REPORTS: Final = f"quotaplane-reports.{BROKER}"


def page_properties() -> dict[str, str]:
    """The lines of server.properties in the page's section about security."""
    page = (ROOT / "docs/operate/kafka-plugin.md").read_text("utf-8")
    section = page.partition("## Security")[2].partition("\n## ")[0]
    lines = re.findall(r"^ {4}((?:quotaplane|config)\..*)$", section, re.MULTILINE)
    return dict(line.split("=", 1) for line in lines)


def page_rules() -> list[list[str]]:
    """The commands that give a broker its rights."""
    commands = commands_of("kafka.md", "A topic per broker")
    commands += commands_of("kafka.md", "Access rules")
    rules = [words for words in commands if f"User:{BROKER}" in words]
    assert [words[0] for words in rules] == ["kafka-acls.sh"] * 2
    return rules


def secured(folder: Path, **replaced: str) -> KafkaServer:
    """A server whose plugin logs in as the page says; not started."""
    rules = {"access_rules": True, "users": (BROKER,)}
    server = KafkaServer(folder, secure=True, extra_jars=[plugin_jar()], **rules)
    assert server.certificates is not None
    login = jaas_config("PLAIN", BROKER, replaced.get("password", SASL_PASSWORD))
    secrets = folder / "secrets.properties"
    secrets.write_text(f"jaas={login}\nkeys=k1:{SECRET}\n".replace("\\", "\\\\"))
    places = {
        "HOST:9093": server.bootstrap("SASL_SSL"),
        "/etc/kafka/ca.pem": replaced.get("authority", str(server.certificates.authority)),
        "/etc/kafka/secrets.properties": str(secrets),
    }
    lines = {"quotaplane.reports.topic": "quotaplane-reports.{broker}", **page_properties()}
    for place, here in places.items():
        assert any(place in text for text in lines.values())
        lines = {name: text.replace(place, here) for name, text in lines.items()}
    server.more_properties({**plugin_properties(), **lines})
    return server


class Rights:
    """The rights of the plugin's principal."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server

    def give(self) -> None:
        """Those of the page."""
        for words in page_rules():
            run_kafka(self._server, words)

    def change(self, how: str, operation: str, topic: str) -> None:
        line = f"kafka-acls.sh --bootstrap-server HOST:9092 {how} --allow-principal User:{BROKER}"
        run_kafka(self._server, shlex.split(f"{line} --operation {operation} --topic {topic}"))

    def take(self, operation: str, topic: str) -> None:
        self.change("--remove --force", operation, topic)

    def give_back(self, operation: str, topic: str) -> None:
        self.change("--add", operation, topic)


class Follow:
    """A job whose limits are followed, or not, by what reports say."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self.job = Job(server, KEYS)
        self.job.create_topics()
        server.create_topic(REPORTS)
        self.reports = Reports(server, REPORTS)

    def says(self, line: str, times: int = 1) -> None:
        """Wait until the broker has logged it so often."""
        wait_until(lambda: self._server.said().count(line) >= times, 30, said=self._server.said)

    def limit(self, limits: Mapping[str, float], **more: Any) -> None:
        self.job.limit({group: {"publish_bytes": rate} for group, rate in limits.items()}, **more)

    def wait_for(self, group: str, limit: float) -> None:
        self.reports.wait_for(COLUMN, group, limit)


def test_the_rights_of_the_page_suffice_and_none_may_lack(tmp_path: Path) -> None:
    with secured(tmp_path) as server:
        rights, follow = Rights(server), Follow(server)
        # Nothing keeps the broker from serving, and the log names what is missing.
        follow.says(f"{LIMITS}: the right Describe is missing")
        load = Load(server.bootstrap_servers, "limited", 1e6)
        assert load.rate_over(2) == pytest.approx(1e6, rel=0.2)
        load.end()
        rights.give()
        follow.job.attach({"client=limited": "acme"})
        follow.limit({"acme": LIMIT})
        follow.wait_for("acme", LIMIT)
        assert "excluded.principals is empty" not in server.said()
        before = server.said().count("the right Read is missing")

        # Without limits leases end, and attachments are read on.
        follow.limit({"acme": LIMIT}, lease_s=8, safe=0.5)
        follow.wait_for("acme", LIMIT)
        rights.take("Read", LIMITS)
        follow.says(f"{LIMITS}: the right Read is missing")
        follow.limit({"acme": 3 * LIMIT, "later": LIMIT})
        follow.job.attach({"client=later": "later"})
        follow.wait_for("acme", LIMIT / 2)
        wait_until(lambda: follow.reports.read() and named(follow.reports, "later"), 20)
        assert follow.reports.last(COLUMN)["acme"] == LIMIT / 2
        rights.give_back("Read", LIMITS)
        follow.wait_for("acme", 3 * LIMIT)
        follow.wait_for("later", LIMIT)

        # Without attachments clients stay in their groups, whose limits are read on.
        rights.take("Read", ATTACHMENTS)
        follow.says(f"{ATTACHMENTS}: the right Read is missing")
        follow.job.attach({"client=last": "last"})
        follow.limit({"acme": LIMIT, "last": LIMIT})
        follow.wait_for("acme", LIMIT)
        assert not named(follow.reports, "last")
        rights.give_back("Read", ATTACHMENTS)
        follow.wait_for("last", LIMIT)

        # Without reports limits are obeyed.
        rights.take("Write", REPORTS)
        follow.says(f"quotaplane's reports are not sent: {REPORTS}: the right Write is missing")
        follow.limit({"acme": 2 * LIMIT})
        load = Load(server.bootstrap_servers, "limited")
        load.rate_over(3)
        assert load.rate_over(4) == pytest.approx(2 * LIMIT, rel=0.2)
        load.end()
        rights.give_back("Write", REPORTS)
        follow.wait_for("acme", 2 * LIMIT)
        # One line for each of the three, however often it was refused.
        assert server.said().count("the right Read is missing") == before + 2
        assert server.said().count("reports are not sent") == 1
        assert SECRET not in server.said()


def named(reports: Reports, group: str) -> bool:
    return any(group in report.groups for report in reports.all)


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_wrong_login_is_said_and_the_broker_serves(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "other").mkdir()
    other = secured(tmp_path / "other")
    assert other.certificates is not None
    values = {"password": "wrong-password", "authority": str(other.certificates.authority)}
    said = {"password": "Authentication failed", "authority": "SSL handshake failed"}
    (tmp_path / "kafka").mkdir()
    with secured(tmp_path / "kafka", **{wrong: values[wrong]}) as server:
        Job(server, KEYS).create_topics()
        wait_until(lambda: said[wrong] in server.said(), 30, said=server.said)
        load = Load(server.bootstrap_servers, "limited", 1e6)
        assert load.rate_over(2) == pytest.approx(1e6, rel=0.2)
        load.end()
        lines = [line for line in server.said().splitlines() if "topics can't be followed" in line]
        assert 1 <= len(lines) <= 2
        assert "wrong-password" not in server.said()


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A server whose plugin verifies signatures."""
    with plugged(tmp_path_factory.mktemp("signed"), signing_keys=f"k1:{SECRET}") as server:
        yield server


def test_attachments_without_a_valid_signature_change_nothing(signed: KafkaServer) -> None:
    job, reports = Job(signed, KEYS), Reports(signed)
    job.create_topics()
    job.attach({"client=limited": "acme"})
    job.limit({group: {"publish_bytes": LIMIT} for group in ("acme", "forged", "marker")})
    reports.wait_for(COLUMN, "acme", LIMIT)
    older = job.attach({"client=limited": "acme", "client=x": "forged"})
    job.attach({"client=limited": "acme", "client=x": "acme"})

    other_key = SigningKeys({"k1": "another-secret-of-32-characters--"}, sign_with="k1")
    for forger in (Job(signed), Job(signed, other_key)):
        forger.attach({"client=limited": "forged"}, epoch=99)
        forger.close()
    job.publish(ATTACHMENTS, "0", b"nothing")
    for value in older:
        job.publish(ATTACHMENTS, "0", value)
    job.attach({"client=marker": "marker"})

    reports.wait_for(COLUMN, "marker", LIMIT)
    assert "forged" not in reports.last(COLUMN)
    assert f"quotaplane refuses a message on {ATTACHMENTS}: not signed" in signed.said()
    load = Load(signed.bootstrap_servers, "limited")
    load.rate_over(1)
    load.end()
    reports.wait_for_amount("publish_bytes_per_s", "acme", load.sent)
    assert (LOAD, "forged") not in reports.last("publish_bytes_per_s").items()
