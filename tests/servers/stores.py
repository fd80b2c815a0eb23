"""A job's history and checkpoint on an object store: settings, Spark's connector, rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from quotaplane.cli.main import main
from quotaplane.deltalog.read import read_rows
from quotaplane.history.store import open_table
from quotaplane.settings import History
from tests.job import ROOT, write_conf
from tests.servers.s3_proxy import S3Proxy
from tests.servers.tools import fetched_once, ivy_retrieve

CONNECTOR: Final = ROOT / "deploy/spark-4.0/s3-jars.xml"


def conf_on(
    store: S3Proxy,
    folder: Path,
    port: int | None = None,
    *,
    keys: dict[str, str] | None = None,
    **more: Any,
) -> Path:
    """Settings of a job that has only its topics in the local folder.

    Args:
        store: has history and checkpoint, in a folder with the local one's name.
        folder: the local one.
        port: of a proxy before the store; None: the store's own.
        keys: other storage options.
        more: other sections of the settings.
    """
    history = {
        "path": store.place(f"{folder.name}/history"),
        "storage_options": {**store.options(port), **(keys or {})},
    }
    checkpoint = store.place(f"{folder.name}/checkpoint")
    return write_conf(folder, history=history, checkpoint=checkpoint, **more)


def ran(capsys: pytest.CaptureFixture[str], conf: Path, *words: str, code: int = 0) -> str:
    """Run a command, which must end with the code; its output."""
    assert main([*words, "--conf", str(conf)]) == code
    return "".join(capsys.readouterr())


def connector_jars() -> str:
    """Spark's jars for S3, for ``--jars``; fetched once."""

    def fetch(folder: Path) -> None:
        ivy_retrieve(CONNECTOR, ["jar"], f"{folder}/[artifact]-[revision].[ext]")

    return ",".join(map(str, fetched_once("s3-connector", CONNECTOR, fetch).glob("*.jar")))


def rows_of(history: History, table: str, *columns: str) -> list[dict[str, Any]]:
    """Rows of a table of the history, wherever that is."""
    rows: list[dict[str, Any]] = read_rows(open_table(history, table), columns).to_pylist()
    return rows
