"""Disks that fail while something reads or writes: nothing is taken for broken, all works again."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.deltalog.durable import checkpoint
from quotaplane.deltalog.log import LAST_CHECKPOINT, LOG
from quotaplane.errors import HistoryError
from quotaplane.history.store import nobody_writing
from quotaplane.registry.table import list_groups
from tests.unit.deltalog.broken_cases import Doctor, put


def _fail(monkeypatch: pytest.MonkeyPatch, ending: str, number: int) -> None:
    """Let files whose names end so be unreadable."""
    for owner in (Path, os):

        def opened(path: Any, *args: Any, real: Any = owner.open, **how: Any) -> Any:
            if str(path).endswith(ending):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, *args, **how)

        monkeypatch.setattr(owner, "open", opened)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES])
@pytest.mark.parametrize("ending", ["zstd.parquet", "000001.json"])
def test_a_file_that_the_disk_does_not_let_it_read_stays(
    doctor: Doctor,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    number: int,
) -> None:
    """--mend took such a file out of its table; an error that passes lost a quota for good."""
    command = ["doctor", "--mend", "--table", "--history", doctor.history.path]
    with monkeypatch.context() as patch:
        _fail(patch, ending, number)
        assert main(command) == 10
    said = capsys.readouterr().out
    assert f"can't be read: {os.strerror(number)}" in said
    assert "can't be mended before it can be read" in said
    assert main(command) == 0
    assert list_groups(doctor.history)["publish_messages_per_s"].to_pylist() == [50.0]


def test_it_does_not_mend_where_it_can_not_know_whether_something_writes(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, ".writers.lock", errno.EMFILE)
    with pytest.raises(HistoryError, match="Too many open files"), nobody_writing(doctor.history):
        pass


def test_a_kill_between_a_checkpoint_and_its_name_stops_no_later_checkpoint(doctor: Doctor) -> None:
    uri = f"{doctor.history.path}/resource_groups"
    table = DeltaTable(uri)
    checkpoint(table, uri)
    name = Path(uri, LOG, LAST_CHECKPOINT)
    name.unlink()
    checkpoint(table, uri)
    put(doctor.history, 60.0)
    table.update_incremental()
    checkpoint(table, uri)
    assert json.loads(name.read_bytes())["version"] == table.version()
