"""The lock files: exact versions and hashes of everything that the launcher installs."""

from __future__ import annotations

import hashlib
import re
import subprocess
import xml.etree.ElementTree as ET
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.markers import Marker

from tests.unit.repo.pages import ROOT

DEPLOY = ROOT / "deploy"
SPARKS: Final = sorted(DEPLOY.glob("spark-*"))
LOCKS: Final = [*sorted(DEPLOY.glob("lock*.txt")), *(spark / "lock.txt" for spark in SPARKS)]
PYTHONS: Final = ("3.10", "3.11", "3.12", "3.13")
PLATFORMS: Final = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))

_ENTRY: Final = re.compile(r"([a-z0-9][a-z0-9.-]*)==([\w.+!]+)(?: ; ([^\\]+?))?(?: \\)?")


def entries(file: Path) -> dict[tuple[str, str, str], list[str]]:
    """The hashes of each (name, version, marker)."""
    found: dict[tuple[str, str, str], list[str]] = {}
    hashes: list[str] = []
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(" "):
            hashes.append(line.strip(" \\"))
            continue
        match = _ENTRY.fullmatch(line)
        assert match, line
        hashes = found[match[1], match[2], match[3] or ""] = []
    return found


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_every_package_has_hashes_and_one_version_per_python(file: Path) -> None:
    seen = set()
    for (name, version, marker), hashes in entries(file).items():
        assert hashes, f"{name}=={version}"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
        for python in PYTHONS:
            for system, machine in PLATFORMS:
                where = {
                    "python_version": python,
                    "python_full_version": f"{python}.0",
                    "sys_platform": system,
                    "platform_machine": machine,
                }
                if not marker or Marker(marker).evaluate(where):
                    assert (name, python, system, machine) not in seen, name
                    seen.add((name, python, system, machine))
    assert seen
    assert "://" not in re.sub(r"^#.*$", "", file.read_text("utf-8"), flags=re.MULTILINE)


def test_there_is_a_lock_for_what_the_launcher_can_be_asked_for() -> None:
    assert {file.stem for file in LOCKS} == {"lock", "lock-build", "lock-test", "lock-tracing"}
    common = {name for name, _, _ in entries(DEPLOY / "lock.txt")}
    for spark in SPARKS:
        versions = {name: version for name, version, _ in entries(spark / "lock.txt")}
        assert versions.keys() == {"pyspark", "py4j", "delta-spark"}
        assert f"spark-{versions['pyspark']}".startswith(f"{spark.name}.")
        assert not versions.keys() & common
    names = {name for name, _, _ in entries(DEPLOY / "lock.txt")}
    assert names >= {"pandas", "kafka-python", "pulsar-client", "fastapi", "plotly"}
    assert "pytest" in {name for name, _, _ in entries(DEPLOY / "lock-test.txt")}
    assert "opentelemetry-sdk" in {name for name, _, _ in entries(DEPLOY / "lock-tracing.txt")}


def test_the_environment_has_what_the_lock_says() -> None:
    locks = [DEPLOY / "lock.txt", *(spark / "lock.txt" for spark in SPARKS)]
    pins = {(name, version) for lock in locks for name, version, _ in entries(lock)}
    for name in ("pyspark", "delta-spark", "deltalake", "pyarrow", "numpy", "pandas", "protobuf"):
        assert (name, distribution(name).version) in pins


@pytest.mark.parametrize("xml", sorted(DEPLOY.glob("spark-*/*jars.xml")), ids=str)
def test_every_jar_has_a_hash(xml: Path) -> None:
    wanted = {f"{jar.get('name')}-{jar.get('rev')}.jar" for jar in ET.parse(xml).iter("dependency")}
    lines = [line.split() for line in xml.with_suffix(".sha256").read_text("utf-8").splitlines()]
    assert {name for _, name in lines} == wanted
    assert len(lines) == len(wanted)
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest, _ in lines)


def shell(code: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run bash with the functions of deploy/environment.sh, as the launcher of ``root`` would."""
    start = f"set -euo pipefail; die() {{ echo \"$*\" >&2; exit 2; }}; ROOT='{root}' SPARK=4.0; "
    return subprocess.run(
        ["bash", "-c", f"{start} VENV=none CACHE=none; . '{DEPLOY}/environment.sh'; {code}"],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_changed_missing_or_additional_jar_is_noticed(tmp_path: Path) -> None:
    jars = tmp_path / "the jars"
    jars.mkdir()
    spark = tmp_path / "deploy" / "spark-4.0"
    spark.mkdir(parents=True)
    lines = []
    for name in ("a.jar", "b.jar"):
        (jars / name).write_text(name)
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    (spark / "jars.sha256").write_text("".join(lines))
    check = f"check_jars '{jars}' kafka"
    assert shell(check, tmp_path).returncode == 0
    (jars / "c.jar").write_text("more")
    assert shell(check, tmp_path).returncode == 1
    (jars / "c.jar").unlink()
    (jars / "b.jar").write_text("b.jaR")
    assert shell(check, tmp_path).returncode == 1
    (jars / "b.jar").unlink()
    assert shell(check, tmp_path).returncode == 1


def test_the_jars_of_an_extra_are_there_only_if_it_is_asked_for() -> None:
    folders = [
        shell(f"jar_sets '{extras}'; jars_folder '{extras}'", ROOT).stdout.split()
        for extras in ("", "kafka,test", "kafka,s3")
    ]
    plain, with_test, with_s3 = folders
    assert plain == with_test
    assert plain[:-1] == ["jars"]
    assert with_s3[:-1] == ["jars", "s3-jars"]
    assert with_s3[-1] != plain[-1]


def test_only_what_has_a_lock_is_installed() -> None:
    given = shell("lock_files kafka,test,server,tracing", ROOT)
    assert given.returncode == 0
    files = [line for line in given.stdout.splitlines() if line != "-r"]
    names = ("lock.txt", "spark-4.0/lock.txt", "lock-test.txt", "lock-tracing.txt")
    assert files == [str(DEPLOY / name) for name in names]
    for unknown in ("colour", "build", "../lock"):
        assert shell(f"lock_files kafka,{unknown}", ROOT).returncode == 1
