"""Deployment: the systemd units, and the commands that pages of operation give."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
import yaml

from quotaplane.errors import ConfigError, DeposedError, FailedBatchError
from quotaplane.settings import parse_settings
from tests.unit.repo.documented_commands import check_options
from tests.unit.repo.pages import ROOT

UNITS: Final = ROOT / "deploy" / "systemd"
SERVICES: Final = sorted(UNITS.glob("*.service"))
COMMON: Final = UNITS / "quotaplane-.service.d" / "common.conf"
PROGRAM: Final = "/opt/quotaplane/.venv/bin/quotaplane"
PAGES: Final = [
    *sorted((ROOT / "docs/operate/runbook").glob("*.md")),
    *(ROOT / f"docs/operate/{name}.md" for name in ("deploy", "quotas", "run-the-job")),
    ROOT / "docs/reference/metrics.md",
]

Keys = dict[str, list[str]]


def keys_of(unit: Path) -> Keys:
    """The values of each key, as ``Section.Key``."""
    found: Keys = defaultdict(list)
    section = ""
    for line in unit.read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, f"{unit.name}: {line}"
            found[f"{section}.{key}"].append(value)
    return found


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_that_exists_and_heeds_its_exit_codes(unit: Path) -> None:
    keys = keys_of(unit)
    (command,) = keys["Service.ExecStart"]
    program, *words = shlex.split(command)
    assert program == PROGRAM
    check_options(words)
    if keys["Service.Type"] == ["oneshot"]:
        assert "Service.Restart" not in keys
        return
    assert keys["Service.Restart"] == ["on-failure"]
    assert keys["Unit.StartLimitIntervalSec"] == ["0"], "it is tried for as long as it takes"
    codes = {int(code) for code in keys["Service.RestartPreventExitStatus"][0].split()}
    of_jobs = {FailedBatchError.exit_code, DeposedError.exit_code} if words[0] == "run" else set()
    assert codes == {ConfigError.exit_code, *of_jobs}
    assert keys["Service.KillMode"] == ["mixed"], "the JVM must not get the signal"


def test_every_job_that_runs_for_long_has_a_unit() -> None:
    started = {" ".join(keys_of(unit)["Service.ExecStart"][0].split()[1:3]) for unit in SERVICES}
    jobs = {"run quota", "run balance"}
    assert started == {*jobs, "enforce pulsar", "serve --conf", "maintain --conf"}


def test_all_units_share_what_confines_them() -> None:
    keys = keys_of(COMMON)
    wanted = {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "CapabilityBoundingSet": "",
        "ReadWritePaths": "/var/lib/quotaplane",
        "User": "quotaplane",
        "EnvironmentFile": "-/etc/quotaplane/environment",
    }
    assert {key: keys[f"Service.{key}"] for key in wanted} == {k: [v] for k, v in wanted.items()}
    for unit in SERVICES:
        assert not {f"Service.{key}" for key in wanted} & keys_of(unit).keys(), unit.name


def test_the_timer_starts_the_maintenance() -> None:
    keys = keys_of(UNITS / "quotaplane-maintain.timer")
    assert keys["Timer.OnCalendar"] == ["hourly"]
    assert (UNITS / "quotaplane-maintain.service").is_file()


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """Where systemd is installed; what the other tests read is right everywhere."""
    analyze = shutil.which("systemd-analyze")
    shutil.copytree(UNITS, tmp_path / "units")
    for unit in (tmp_path / "units").glob("*.service"):
        text = unit.read_text("utf-8").replace(PROGRAM, "/bin/true")
        unit.write_text(text, encoding="utf-8")
        if analyze is not None:
            for check in (["verify"], ["security", "--offline=true", "--threshold=20"]):
                command = [analyze, *check, str(unit)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, (unit.name, done.stdout, done.stderr)
                assert check != ["verify"] or not done.stderr, done.stderr


def test_the_wrapper_is_a_shell_script() -> None:
    subprocess.run(["sh", "-n", str(UNITS / "quotaplane")], check=True)


# Commands on the pages


def blocks(page: Path) -> list[str]:
    """The lines of a page's code blocks, without their indentation."""
    lines = page.read_text("utf-8").splitlines()
    return [line.strip() for line in lines if re.match(r" {4,}\S", line)]


def commands(page: Path) -> list[str]:
    """The page's commands that run quotaplane."""
    found = []
    for line in blocks(page):
        line = re.sub(r"^sudo (--user quotaplane )?", "", line).split(" > ")[0]
        match = re.match(r"(?:\S*/bin/)?quotaplane (.*)", line)
        if match is not None and "=" not in line.split()[0]:
            found.append(match[1])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_on_the_page_are_right(page: Path) -> None:
    for command in commands(page):
        check_options(shlex.split(command))


def test_the_pages_have_such_commands() -> None:
    assert len([command for page in PAGES for command in commands(page)]) > 20
    with pytest.raises(ConfigError):
        check_options(["doctor", "--invented"])


def test_services_that_the_pages_name_exist() -> None:
    units = {unit.stem for unit in UNITS.iterdir()}
    for page in PAGES:
        for line in blocks(page):
            if "systemctl" in line or "journalctl" in line:
                named = re.findall(r"\bquotaplane-[a-z]+", line)
                assert {*named} <= units, line


def test_the_settings_on_the_deployment_page_are_settings() -> None:
    text = "\n".join(
        line[4:] if line.startswith("    ") else ""
        for line in (ROOT / "docs/operate/deploy.md").read_text("utf-8").splitlines()
    )
    start = text.index("history:\n")
    given = yaml.safe_load(text[start : text.index("KAFKA_PASSWORD")])
    parse_settings({"transport": {"kind": "delta", "path": "topics"}, **given})
