"""The files that deploy/ship.py sends to other machines are enough for what runs there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from quotaplane.streams.daemon import PRELOADED
from tests.unit.repo.pages import ROOT, load_script

IMPORTED = """
import importlib, json, sys
folders, modules = json.load(sys.stdin)
sys.path += folders
for name in modules:
    importlib.import_module(name)
print(json.dumps(sorted(sys.modules)))
"""

EXECUTORS = (
    *PRELOADED,
    *("quotabalance.job.program", "quotaplane.streams.sources"),
    *("quotaplane.pulsar.source", "quotaplane.pulsar.live_reader", "quotaplane.pulsar.replay"),
    *("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.plan_data_source_read"),
    "pyspark.testing.utils",  # by the stateful operator, when it first keeps state
)
"""Modules with what executors run; a job with few groups needs no others."""

WRITERS = ("quotaplane.history.data_files",)
"""The same of tasks that write the history."""

DRIVERS = (
    *("quotaplane.streams.quota.job", "quotabalance.job.job", "quotaplane.streams.script"),
    *("quotaplane.transport.kafka", "quotaplane.transport.pulsar", "quotaplane.transport.delta"),
    *("quotaplane.metrics.exposition", "pyspark.java_gateway"),
    *("lz4", "snappy", "zstandard", "crc32c"),  # kafka-python looks for them
)


@pytest.fixture(scope="module")
def ship() -> Any:
    return load_script(ROOT / "deploy" / "ship.py")


def imported(
    ship: Any, distributions: Iterable[Distribution], modules: Iterable[str], folder: Path
) -> set[str]:
    """All modules that Python has after it imported these, with only what is shipped."""
    for name, file in ship.files_of(distributions):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, folder / name)  # as if unpacked there
        except OSError:  # on another disk
            shutil.copy(file, folder / name)
    asked = json.dumps([[str(ROOT / "pipelines"), str(folder)], [*modules]])
    # with its standard library only
    command = [sys.executable, "-I", "-S", "-B", "-c", IMPORTED]
    done = subprocess.run(command, input=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.nightly
def test_executors_get_what_they_import(ship: Any, tmp_path: Path) -> None:
    shipped = ship.installed(ship.EXECUTORS).values()
    found = imported(ship, shipped, EXECUTORS, tmp_path / "all")
    assert {"numpy", "pandas", "pyarrow", "_pulsar"} <= found
    assert not {"deltalake", "kafka", "duckdb"} & found
    assert "deltalake" in imported(ship, shipped, WRITERS, tmp_path / "writers")


@pytest.mark.nightly
def test_drivers_get_what_they_import(ship: Any, tmp_path: Path) -> None:
    both = {**ship.installed(ship.EXECUTORS), **ship.installed(ship.DRIVERS)}
    assert {"deltalake", "kafka"} <= imported(ship, both.values(), DRIVERS, tmp_path)


def test_what_is_shipped_has_few_files(ship: Any) -> None:
    """A node manager may take 10 ms for each."""
    names = [name for name, _ in ship.files_of(ship.installed(ship.EXECUTORS).values())]
    assert len(names) < 1300
    assert not [name for name in names if "__pycache__" in name]
    tops = {Path(name).parts[0] for name in names}
    assert not {"duckdb", "fastapi", "plotly", "cryptography"} & tops
