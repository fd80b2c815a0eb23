"""``quotaplane groups export kafka``: commands for a shell, and what Kafka can't express."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.kafka_quotas.commands import shell_word
from quotaplane.registry.attachments import attach
from quotaplane.settings import History
from tests.histories import make_history


class Export:
    """Groups of a history, and their export for three brokers."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.history = History(path=str(folder / "history"))
        make_history(self.history)
        self._capsys = capsys

    def put(self, *words: str) -> None:
        assert main(["groups", "put", *words, "--history", self.history.path]) == 0

    def lines(self) -> list[str]:
        self._capsys.readouterr()
        words = ["groups", "export", "kafka", "--brokers", "3", "--history", self.history.path]
        assert main(words) == 0
        first, *lines = self._capsys.readouterr().out.splitlines()
        assert first == "# each quota divided by 3 brokers, controller mutations whole"
        return lines


@pytest.fixture
def export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Export:
    return Export(tmp_path, capsys)


def test_a_quota_is_divided_by_the_brokers_but_not_a_controllers(export: Export) -> None:
    export.put(
        *("--user", "CN=O'Hara", "--client", "app 1"),
        *("--publish-bytes-per-s", "3000", "--request-ms-per-s", "1000"),
        *("--controller-mutations-per-s", "0.5"),
    )
    (line,) = export.lines()
    assert shlex.split(line) == [
        *("kafka-configs.sh", "--bootstrap-server", "HOST:9092", "--alter"),
        *("--entity-type", "users", "--entity-name=CN=O'Hara"),
        *("--entity-type", "clients", "--entity-name=app 1", "--add-config"),
        "producer_byte_rate=1000,request_percentage=33.3333333333333,controller_mutation_rate=0.5",
    ]


def test_templates_are_defaults(export: Export) -> None:
    export.put("--user", "<default>", "--client", "x", "--dispatch-bytes-per-s", "30")
    (line,) = export.lines()
    assert "--entity-type users --entity-default --entity-type clients --entity-name=x" in line


def test_what_kafka_rounds_is_said(export: Export) -> None:
    export.put("user=a", "--publish-bytes-per-s", "1000", "--dispatch-bytes-per-s", "2")
    export.put("user=b", "--controller-mutations-per-s", "0")
    lines = export.lines()
    assert lines[0].endswith("all brokers together allow 999, not 1000")
    assert lines[1].endswith("all brokers together allow 3, not 2")
    assert lines[2].endswith("producer_byte_rate=333,consumer_byte_rate=1")
    assert lines[3].endswith("all brokers together allow 1e-06, not 0")


def test_what_kafka_cannot_express_has_one_line(export: Export) -> None:
    export.put("acme", "--publish-bytes-per-s", "9")
    export.put("acme::orders", "--publish-bytes-per-s", "9")
    export.put("team", "--publish-bytes-per-s", "9")
    attach(export.history, "tenant", "t1", "team", "ann")
    export.put("user=m", "--publish-messages-per-s", "9")
    export.put("user=n")
    export.put("user=s", "--publish-bytes-per-s", "9", "--mode", "soft")
    export.put("user=w", "--publish-bytes-per-s", "9", "--total-bytes-per-s", "5", "--weight", "2")
    what = "Kafka has no groups of users and clients"
    assert export.lines() == [
        f"# left out: acme: {what}",
        f"# left out: acme::orders: {what}, and no trees",
        f"# left out: team: {what}; attached: tenant t1",
        "# left out: user=m: Kafka has no such quotas: publish_messages 9",
        "# left out: user=n: it has no quota",
        "# left out: user=s: its mode is soft: brokers do not hold it to its quota",
        "# user=w: Kafka has no such quotas: total_bytes 5",
        "# user=w: Kafka has no such options: weight",
        "kafka-configs.sh --bootstrap-server HOST:9092 --alter --entity-type users "
        "--entity-name=w --add-config producer_byte_rate=3",
    ]


NAMES = [
    "a b",
    "O'Hara",
    '$(reboot)`x`"q\\',
    "-x",
    "jürgen",
    "esc\x1b[31m'\\",
    "a\nb\tc",
    "<default>",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_each_name_as_it_is(name: str) -> None:
    word = shell_word(name)
    assert word.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert done.stdout.decode() == name


def test_brokers_are_needed_and_go_with_kafka_only(
    export: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--history", export.history.path]
    assert main(["groups", "export", "kafka", *place]) == 2
    assert "--brokers N is needed" in capsys.readouterr().err
    assert main(["groups", "export", "kafka", "--brokers", "0", *place]) == 2
    assert "--brokers must be from 1" in capsys.readouterr().err
    assert main(["groups", "export", "--brokers", "3", *place]) == 2
    assert "--brokers goes with export kafka" in capsys.readouterr().err
