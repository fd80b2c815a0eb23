"""The wheel and the sdist: their metadata, and that both bring all that jobs are started with."""

from __future__ import annotations

import configparser
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest
from packaging.metadata import Metadata

from quotaplane import __version__
from tests.unit.repo.pages import ROOT
from tests.wheel import build, copy_repository, listed_files

SHARE: Final = "share/quotaplane"


def data_files() -> set[str]:
    """The files that pip puts into share/quotaplane, as they are named there and here."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    found = set()
    for folder, patterns in setup["options.data_files"].items():
        for pattern in patterns.split():
            files = [path.relative_to(ROOT) for path in ROOT.glob(pattern)]
            assert files, pattern
            assert all(f"{SHARE}/{file.parent}".removesuffix("/.") == folder for file in files)
            found |= {str(file) for file in files}
    return found


def test_what_the_launcher_uses_is_in_the_wheel() -> None:
    scripts = [ROOT / "spark-submit.sh", ROOT / "deploy" / "environment.sh"]
    text = "".join(file.read_text("utf-8") for file in scripts).replace("$SPARK", "4.2")
    used = set(re.findall(r"\$ROOT/([a-z][\w./-]*\w)", text)) - {"setup.cfg", "pipelines"}
    assert used >= {"deploy/environment.sh", "deploy/lock.txt", "conf/spark-defaults.conf"}
    brought = data_files()
    folders = {str(parent) for file in brought for parent in Path(file).parents}
    optional = {"conf/spark-env.sh"}
    assert used - {"deploy/lock", "deploy/lock-", "jobs/run_"} - optional <= brought | folders
    jobs = {str(file.relative_to(ROOT)) for file in (ROOT / "jobs").glob("*.py")}
    assert jobs <= brought


def test_the_version_is_the_changelogs() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.findall(r"^## \[(\d[\w.]*)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)[0]
    assert newest == __version__


@pytest.mark.nightly
def test_sdist_and_repository_make_the_same_wheel(tmp_path: Path) -> None:
    copy_repository(tmp_path / "repository")
    with tarfile.open(build("sdist", tmp_path / "repository", tmp_path)) as archive:
        archive.extractall(tmp_path, filter="data")
    wheel = build("wheel", tmp_path / f"quotaplane-{__version__}", tmp_path)
    assert wheel.name == f"quotaplane-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    data = f"quotaplane-{__version__}.data/data/{SHARE}/"
    brought = {name.removeprefix(data) for name in contents if name.startswith(data)}
    assert brought == data_files()
    assert modes[f"{data}spark-submit.sh"] & 0o111
    packages = {name.removeprefix("pipelines/") for name in listed_files("pipelines")}
    modules = {name for name in contents if name.startswith(("quotaplane/", "quotabalance/"))}
    assert modules == packages
    for name in modules:
        assert contents[name] == (ROOT / "pipelines" / name).read_bytes()
    for name in brought:
        assert contents[data + name] == (ROOT / name).read_bytes()
    described = contents[f"quotaplane-{__version__}.dist-info/METADATA"]
    metadata = Metadata.from_email(described)  # raises what PyPI would refuse
    assert (metadata.name, str(metadata.version)) == ("quotaplane", __version__)
    assert metadata.description_content_type == "text/markdown"
    assert {"pyspark", "pandas"} <= {r.name for r in metadata.requires_dist or () if r.marker}
