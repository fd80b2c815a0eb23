"""``quotaplane doctor`` compares names and sizes on a store, here in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from quotaplane.cli import doctor_stores
from quotaplane.cli.doctor import checkpoint_findings
from quotaplane.cli.doctor_stores import fetch_checkpoint, stored_tables
from quotaplane.errors import ConfigError, HistoryError
from quotaplane.history.store import open_table, table_uri
from quotaplane.settings import History
from tests.job import put_quotas, settings_in


def problems(history: History) -> dict[str, list[tuple[str, str]]]:
    return {table.name: table.problems for table in stored_tables(history) if table.problems}


def test_each_file_of_a_table_is_there_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # which looks into the files of a local disk by itself
    monkeypatch.setattr(
        doctor_stores, "open_table", lambda history, name: DeltaTable(table_uri(history, name))
    )
    settings = settings_in(tmp_path)
    with pytest.raises(ConfigError, match="there is no history at"):
        list(stored_tables(settings.history))
    put_quotas(settings, g=90.0)
    assert problems(settings.history) == {}
    (uri,) = open_table(settings.history, "resource_groups").file_uris()
    file = Path(uri.removeprefix("file://"))
    size = file.stat().st_size
    file.write_bytes(b"cut")
    cut = [(file.name, f"has 3 bytes instead of {size}")]
    assert problems(settings.history) == {"resource_groups": cut}
    file.unlink()
    assert problems(settings.history) == {"resource_groups": [(file.name, "is missing")]}


def test_of_a_checkpoint_only_what_is_checked_is_copied(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    folder, copy = tmp_path / "checkpoint", tmp_path / "copy"
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
        for batch in range(12):
            (folder / log / str(batch)).write_text("v1\n{}")
    (folder / "state").mkdir()
    (folder / "state" / "1.delta").write_bytes(b"large")
    for name in ("quotaplane.json", "metadata"):
        (folder / name).write_text("{}")
    copy.mkdir()
    assert fetch_checkpoint(settings.history, str(folder), copy)
    copied = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    logs = {f"{log}/{batch}" for log in ("offsets", "commits") for batch in (10, 11)}
    assert copied == {"quotaplane.json", "metadata"} | logs
    assert checkpoint_findings(copy, []) == []


def test_a_folder_without_a_checkpoint_and_a_store_that_is_away(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "copy").mkdir()
    history = History(path=str(tmp_path))
    assert not fetch_checkpoint(history, str(tmp_path / "empty"), tmp_path / "copy")
    away = History(
        path="s3://b/h",
        storage_options={
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "max_retries": "0",
        },
    )
    with pytest.raises(HistoryError, match=r"^history at s3://b/h: "):
        list(stored_tables(away))
