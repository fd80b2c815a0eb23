"""Commands without extras of the package: those that need none, and the line of the others."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

import pytest
import yaml

from quotaplane.cli.main import COMMANDS
from quotaplane.extras import EXTRAS
from tests.job import environment
from tests.unit.repo.pages import ROOT

TOPICS: Final = ("loads_topic", "plans_topic")
RUN: Final = """
import contextlib, importlib, io, json, sys
missing, commands = map(json.loads, sys.argv[1:])
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from quotaplane.cli.main import main
answers = []
for words in commands:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        answers.append([main(words), err])
import quotaplane.client.agent, quotaplane.client.receiver, quotaplane.client.reporter
print(json.dumps([[code, err.getvalue()] for code, err in answers]))
"""
"""Runs commands where packages are missing; prints exit codes and what is on stderr."""


def run_without(extras: list[str], commands: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and stderr of each command, in one process without the packages of the extras."""
    missing = [package for extra in extras for package in EXTRAS[extra]]
    words = [json.dumps(missing), json.dumps(commands)]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout)]


def test_every_package_of_an_extra_is_named_with_it() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    asked = {
        extra: re.findall(r"^([\w-]+)", text, re.MULTILINE)
        for extra, text in setup["options.extras_require"].items()
    }
    assert EXTRAS.keys() == asked.keys() - {"test"}
    base = re.findall(r"^([\w-]+)", setup["options"]["install_requires"], re.MULTILINE)
    distributions = packages_distributions()
    imported = {package for packages in EXTRAS.values() for package in packages}
    assert not {name for package in imported for name in distributions.get(package, ())} & {*base}
    for package in imported - {"py4j", "starlette", "cryptography", "opentelemetry"}:
        names = {name.replace("_", "-") for name in distributions[package]}
        assert names & {name for names in asked.values() for name in names}, package


def settings(folder: Path, name: str, **more: object) -> str:
    """A file of conf/ with a history of its own, and other sections."""
    conf = yaml.safe_load((ROOT / "conf" / name).read_text("utf-8"))
    file = folder / f"{'-'.join(more)}{name}"
    file.write_text(json.dumps({**conf, "history": {"path": str(folder / "history")}, **more}))
    return str(file)


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[list[str]]]:
    """By extra: the commands that need it."""
    of_kafka, of_pulsar = settings(tmp_path, "kafka.yaml"), settings(tmp_path, "pulsar.yaml")
    served = settings(tmp_path, "kafka.yaml", server={"anonymous": "viewer"})
    measured = settings(tmp_path, "pulsar.yaml", metrics={"enforcer_port": 19465})
    section = yaml.safe_load((ROOT / "conf/balance.yaml").read_text("utf-8"))["balance"]
    topics = {name: f"persistent://public/quotaplane/{section[name]}" for name in TOPICS}
    balanced = settings(tmp_path, "pulsar.yaml", balance={**section, **topics})
    return {
        "kafka": [["groups", "import", "kafka", "--conf", of_kafka]],
        "pulsar": [
            ["enforce", "pulsar", "--conf", of_pulsar],
            ["enforce", "pulsar", "--dry-run", "--conf", of_pulsar],
            ["setup", "pulsar", "--conf", of_pulsar],
            ["groups", "import", "pulsar", "--conf", of_pulsar],
            ["balance", "collect", "--conf", balanced],
            ["balance", "execute", "--conf", balanced],
        ],
        "admin": [["enforce", "pulsar", "--conf", measured]],
        "server": [["serve", "--init", "--conf", served]],
    }


@pytest.mark.parametrize("extra", ["kafka", "pulsar", "admin", "server"])
def test_a_missing_extra_is_one_line(extra: str, commands: dict[str, list[list[str]]]) -> None:
    for code, said in run_without([extra], commands[extra]):
        advice = rf"quotaplane: error: the package \w+ is missing: pip install '.*\[{extra}\]'\n"
        assert re.fullmatch(advice, said.splitlines(keepends=True)[-1])
        assert code == 2


@pytest.mark.nightly
def test_light_commands_and_the_client_library_need_no_extra(
    tmp_path: Path, commands: dict[str, list[list[str]]]
) -> None:
    history = ["--history", str(tmp_path / "history")]
    light = [
        ["groups", "put", "g", "--publish-messages-per-s", "5", "--init", *history],
        *([*words, *history] for words in (["groups", "list"], ["status"], ["limits"], ["doctor"])),
        *([*words, *history] for words in (["brokers"], ["audit", "exceeded"], ["maintain"])),
        ["allocate", "examples/allocate/idle_broker.json"],
        ["simulate", "examples/simulate/lossy.json"],
        ["throttle", "examples/throttle/burst.json"],
        ["balance", "examples/balance/hot_broker.json", "--shed", "AvgShedder"],
        *([name, "--help"] for name in COMMANDS if name not in ("run", "demo")),
    ]
    others = [words for of_extra in commands.values() for words in of_extra]
    answers = run_without(list(EXTRAS), [*light, *others])
    assert [code for code, _ in answers] == [0] * len(light) + [2] * len(others), answers
