"""Disks that fail while something reads or writes: nothing is taken for broken, all works again."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.deltalog.durable import checkpoint
from quotaplane.deltalog.log import LAST_CHECKPOINT, LOG
from quotaplane.errors import HistoryError
from quotaplane.history.store import nobody_writing
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.table import list_groups, put_groups
from quotaplane.settings import History
from tests.histories import make_history


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    for quota in (10.0, 20.0):
        put_groups(history, ["g"], np.full((1, len(RATE_COLUMNS)), quota), "ann")
    return history


def _fail(monkeypatch: pytest.MonkeyPatch, ending: str, number: int) -> None:
    """Let files whose names end so be unreadable."""
    for owner in (Path, os):
        _fail_of(monkeypatch, owner, ending, number)


def _fail_of(monkeypatch: pytest.MonkeyPatch, owner: Any, ending: str, number: int) -> None:
    open_path = owner.open

    def opened(path: Any, *args: Any, **how: Any) -> Any:
        if str(path).endswith(ending):
            raise OSError(number, os.strerror(number), str(path))
        return open_path(path, *args, **how)

    monkeypatch.setattr(owner, "open", opened)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("ending", ["zstd.parquet", "000001.json"])
def test_a_file_that_the_disk_does_not_let_it_read_stays(
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    number: int,
) -> None:
    """--mend took such a file out of its table; an error that passes lost a quota for good."""
    command = ["doctor", "--mend", "--table", "--history", history.path]
    with monkeypatch.context() as patch:
        _fail(patch, ending, number)
        assert main(command) == 10
    said = capsys.readouterr().out
    assert f"can't be read: {os.strerror(number)}" in said
    assert "can't be mended before it can be read" in said
    assert main(command) == 0
    assert list_groups(history)["publish_messages_per_s"].to_pylist() == [20.0]


def test_it_does_not_mend_where_it_can_not_know_whether_something_writes(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, ".writers.lock", errno.EMFILE)
    with pytest.raises(HistoryError, match="Too many open files"), nobody_writing(history):
        pass


def test_a_kill_between_a_checkpoint_and_its_name_stops_no_later_checkpoint(
    history: History,
) -> None:
    uri = f"{history.path}/resource_groups"
    table = DeltaTable(uri)
    checkpoint(table, uri)
    name = Path(uri, LOG, LAST_CHECKPOINT)
    name.unlink()
    checkpoint(table, uri)
    put_groups(history, ["g"], np.full((1, len(RATE_COLUMNS)), 30.0), "ann")
    table.update_incremental()
    checkpoint(table, uri)
    assert json.loads(name.read_bytes())["version"] == table.version()
