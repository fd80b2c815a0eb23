"""``quotaplane groups import kafka``, from files."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from quotaplane.cli.main import main
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import get_group, list_groups
from quotaplane.settings import History
from quotaplane.sim.demand_schedule import Change
from tests.histories import make_history
from tests.unit.sim.recorded_history import Recording

DESCRIBED = """\
Quota configs for user-principal 'alice' are producer_byte_rate=1000.0, request_percentage=12.5, \
controller_mutation_rate=5.0
Quota configs for the default user-principal are producer_byte_rate=100.0
Quota configs for client-id 'app 1' are consumer_byte_rate=10.0
Quota configs for user-principal 'free' are producer_byte_rate=9.223372036854776E18
"""


class Command:
    """Runs ``quotaplane groups`` on a history of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.history = History(path=str(folder / "history"))
        make_history(self.history)
        self._file, self._capsys, self.err = folder / "described.txt", capsys, ""
        self.text = DESCRIBED

    def run(self, *words: str, code: int = 0) -> str:
        found = main(["groups", *words, "--history", self.history.path])
        out, self.err = self._capsys.readouterr()
        assert found == code, self.err
        return out

    def imported(self, *options: str, code: int = 0, form: str = "--json") -> str:
        self._file.write_text(self.text)
        words = ("import", "kafka", "--file", str(self._file), "--brokers", "3", form)
        return self.run(*words, *options, code=code)

    def proposals(self, *options: str) -> dict[str, dict[str, Any]]:
        """By entity, as a text."""
        return {
            " ".join(f"{kind}={name}" for kind, name in one["entity"].items()): one
            for one in json.loads(self.imported(*options))
        }


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def states(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: one["state"] for name, one in found.items()}


def given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def test_without_apply_it_shows_what_numbers_mean_and_writes_nothing(command: Command) -> None:
    found = command.proposals()
    assert states(found) == {
        "user=alice": "proposed",
        "user=None": "stays a default",
        "client-id=app 1": "proposed",
        "user=free": "no quota",
    }
    alice = found["user=alice"]
    assert (alice["group"], alice["brokers"]) == ("user=alice", 3)
    assert alice["kafka"]["request_percentage"] == 12.5
    assert given(alice["rates"]) == {
        "publish_bytes_per_s": 1000,
        "request_ms_per_s": 125,
        "controller_mutations_per_s": 5,
    }
    shared = {
        "publish_bytes_per_s": 3000,
        "request_ms_per_s": 375,
        "controller_mutations_per_s": 5,  # counted by one controller
    }
    assert given(alice["cluster"]) == given(alice["quotas"]) == shared
    assert given(alice["used"]) == {}
    assert given(found["user=None"]["cluster"]) == {"publish_bytes_per_s": 300}
    assert given(found["user=None"]["quotas"]) == {}
    assert found["user=None"]["group"] is None
    assert len(list_groups(command.history)) == 0


def test_apply_is_one_change_and_a_second_run_changes_nothing(command: Command) -> None:
    found = command.proposals("--apply", "--by", "ann", "--why", "one quota")
    assert [name for name, state in states(found).items() if state == "made now"] == [
        "client-id=app 1",
        "user=alice",
    ]
    changes = group_changes(command.history)
    assert {(one["by"], one["why"], one["version"]) for one in changes} == {
        ("ann", "one quota", changes[0]["version"])
    }
    row = get_group(command.history, "user=alice")
    assert (row["publish_bytes_per_s"], row["request_ms_per_s"]) == (3000, 375)
    assert row["controller_mutations_per_s"] == 5
    assert row["dispatch_bytes_per_s"] is None
    assert states(command.proposals("--apply"))["user=alice"] == "there already"
    assert group_changes(command.history) == changes

    (back,) = found["user=alice"]["go_back"]
    assert main(shlex.split(back)[1:]) == 0
    assert list_groups(command.history)["group"].to_pylist() == ["client=app%201"]


def test_a_factor_in_place_of_the_brokers(command: Command) -> None:
    alice = command.proposals("--factor", "1.5")["user=alice"]
    assert alice["cluster"]["publish_bytes_per_s"] == 3000
    assert given(alice["quotas"]) == {
        "publish_bytes_per_s": 1500,
        "request_ms_per_s": 187.5,
        "controller_mutations_per_s": 5,
    }


def test_a_group_with_other_quotas_is_left_alone_and_one_without_any_gets_them(
    command: Command,
) -> None:
    command.run("put", "user=alice", "--publish-messages-per-s", "7")
    command.run("put", "--client", "app 1", "--weight", "2")
    found = command.proposals("--apply")
    assert (found["user=alice"]["state"], found["client-id=app 1"]["state"]) == (
        "name taken",
        "made now",
    )
    assert "has other quotas (publish_messages 7)" in found["user=alice"]["notes"][0]
    assert get_group(command.history, "user=alice")["publish_bytes_per_s"] is None
    row = get_group(command.history, "client=app%201")
    assert (row["dispatch_bytes_per_s"], row["weight"]) == (30, 2)

    (back,) = found["client-id=app 1"]["go_back"]
    assert main(shlex.split(back)[1:]) == 0
    row = get_group(command.history, "client=app%201")
    assert (row["dispatch_bytes_per_s"], row["weight"]) == (None, 2)


def test_the_use_of_a_group_that_was_made_to_see_it_is_shown(command: Command) -> None:
    changes = [
        Change(0, broker, "user=alice", {"publish_bytes": rate})
        for broker, rate in (("a", 80.0), ("b", 30.0))
    ]
    wants = {"user=alice": {"a": [(0, 0.0)], "b": [(0, 0.0)]}}
    recording = Recording(command.history, wants, shards=1, loop={"changes": changes})
    recording.put("user=alice", {}).run(21).write()
    alice = command.proposals("--apply")["user=alice"]
    assert alice["state"] == "made now"
    assert alice["used"]["publish_bytes_per_s"] == pytest.approx(110)
    assert alice["used"]["request_ms_per_s"] is None


def test_the_table_and_what_comes_next(command: Command) -> None:
    out = command.imported(form="--table")
    (line,) = (line for line in out.splitlines() if " request_ms " in line)
    assert line.split() == ["user=alice", "request_ms", "125", "3", "375", "375", "-"]
    assert "nothing was changed; --apply makes these groups" in out
    assert "defaults stay per-broker defaults" in out
    assert "go back" not in out
    out = command.imported("--apply", form="--table")
    assert f"quotaplane groups delete user=alice --history {command.history.path}" in out
    rows = list(csv.DictReader(io.StringIO(command.imported(form="--csv"))))
    assert {row["note"].split(";")[0] for row in rows if row["entity"].startswith("client=a")} == {
        "there already"
    }


def test_names_that_no_group_can_have_are_said(command: Command) -> None:
    long = "x" * 1020
    command.text = (
        f"Quota configs for user-principal '{long}' are producer_byte_rate=1.0\n"
        "Quota configs for client-id 'x.taken-over' are producer_byte_rate=1.0\n"
        "Quota configs for client-id 'x\x1b[2J' are producer_byte_rate=1.0, new_rate=2.0\n"
    )
    found = command.proposals("--apply")
    assert (
        found[f"user={long}"]["state"] == found["client-id=x.taken-over"]["state"] == "name taken"
    )
    assert "longer than 1024 characters" in found[f"user={long}"]["notes"][0]
    odd = found["client-id=x\x1b[2J"]
    assert (odd["state"], odd["group"]) == ("made now", "client=x%1B%5B2J")
    assert odd["notes"] == ["new_rate: quotaplane knows no such quota"]
    assert "\x1b" not in command.imported() + command.imported(form="--table")


def test_several_files_and_stdin(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "users.yaml"
    other.write_text(
        "{apiVersion: kafka.strimzi.io/v1, kind: KafkaUser, metadata: {name: bob}, "
        "spec: {authentication: {type: tls}, quotas: {producerByteRate: 5}}}"
    )
    stdin = io.BytesIO(b"Quota configs for client-id 'in' are producer_byte_rate=2.0\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
    found = command.proposals("--file", str(other), "--file", "-")
    assert {"user=CN=bob", "client-id=in", "user=alice"} <= found.keys()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no quotas"),
        ("kind: KafkaTopic\n", "has no quotas"),
        (DESCRIBED + "tail", "line 5"),
        ("\x00", "not YAML"),
    ],
)
def test_a_wrong_file_changes_nothing(command: Command, text: str, why: str) -> None:
    command.text = text
    command.imported("--apply", code=2)
    assert why in command.err
    assert command.err.count("\n") == 1
    assert len(list_groups(command.history)) == 0


def test_a_huge_file_is_not_read_to_its_end(command: Command, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # of holes
    command.imported("--file", str(huge), code=2)
    assert "larger than 64 MB" in command.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--factor", "0"], "--factor must be a number above 0"),
        (["--factor", "1e19"], "--factor must be a number above 0"),
    ],
)
def test_wrong_options_are_refused(command: Command, options: list[str], why: str) -> None:
    command.imported(*options, code=2)
    assert why in command.err


def test_what_is_needed_is_said(command: Command, tmp_path: Path) -> None:
    command.run("import", "kafka", code=2)
    assert "needs settings with transport.kind: kafka, or --file" in command.err
    described = tmp_path / "d"
    described.write_text(DESCRIBED)
    command.run("import", "kafka", "--file", str(described), code=2)
    assert "--brokers N is needed" in command.err


def test_a_cluster_that_does_not_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "conf.yaml"
    conf.write_text(
        "{transport: {kind: kafka, bootstrap_servers: '127.0.0.1:1', report_topics: [r], "
        f"limits_topic: l, timeout_s: 1}}, history: {{path: {tmp_path}/h}}, "
        f"checkpoint: {tmp_path}/c}}"
    )
    assert main(["groups", "import", "kafka", "--conf", str(conf)]) == 3
    assert "Kafka at 127.0.0.1:1: can't be reached" in capsys.readouterr().err
