"""A table of quotas, and ways in which it can be broken."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.deltalog.checksums import CHECKSUMS
from quotaplane.deltalog.durable import checkpoint
from quotaplane.deltalog.log import list_log, parse_commit
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.table import put_groups
from quotaplane.settings import DeltaTransport, History
from tests.job import write_conf

LAST = 5
"""The newest commit of the table: it and each before it adds a file with a quota of ten times its
number."""
FAR = 10**15


def put(history: History, quota: float, group: str = "g", by: str = "ann") -> None:
    """A quota in every dimension."""
    put_groups(history, [group], np.full((1, len(RATE_COLUMNS)), quota), by)


class Doctor:
    """The command `quotaplane doctor` on a folder with a history, topics and a checkpoint."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.history = History(path=str(root / "history"))
        self.quotas, self.rounds = (root / "history" / n for n in ("resource_groups", "rounds"))
        self.transport = DeltaTransport(kind="delta", path=str(root / "topics"))
        self._capsys = capsys
        self.conf = write_conf(root, self.transport.model_dump())

    def __call__(self, *words: str) -> tuple[int, str]:
        code = main(["doctor", "--conf", str(self.conf), "--table", *words])
        out, err = self._capsys.readouterr()
        return code, out + err

    def contents(self) -> Counter[bytes]:
        """The contents of all files, wherever they are, but for locks and checksums."""
        files = [path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".lock"]
        files = [file for file in files if file.name != CHECKSUMS]
        return Counter(file.read_bytes() for file in files)


def commit(table: Path, version: int = LAST) -> Path:
    return list_log(table).commit(version)


def cut(file: Path, size: int = 0) -> None:
    file.write_bytes(file.read_bytes()[:size])


def added(table: Path, version: int = LAST) -> Path:
    return table / parse_commit(commit(table, version).read_bytes()).added[0].path


def checkpointed(table: Path) -> Path:
    DeltaTable(table).create_checkpoint()
    return list_log(table).checkpoint(DeltaTable(table).version())


def checkpoint_of(table: Path, version: int) -> None:
    opened = DeltaTable(table, version=version)
    checkpoint(opened, str(table))


def lose(table: Path, *versions: int) -> None:
    for version in versions:
        commit(table, version).unlink()


def first_line_only(table: Path) -> None:
    file = commit(table)
    file.write_text(file.read_text("utf-8").splitlines()[0], "utf-8")


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def renamed(table: Path, path: str) -> None:
    """The last commit adds its file from another place."""
    file = commit(table)
    text = file.read_text("utf-8")
    before = json.dumps(parse_commit(text.encode()).added[0].path)
    assert before in text
    file.write_text(text.replace(before, json.dumps(path)), "utf-8")


class Break(NamedTuple):
    """A way to break the table."""

    do: Callable[[Path], Any]
    """Gets its folder."""
    problem: str
    """{5} is the full number of a commit."""
    quota: float | None = 10.0 * (LAST - 1)
    """The quota after mending; None: it can't be mended."""
    checksums: bool = True
    """The table has some; the problem is found before they are compared."""

    @property
    def expected(self) -> str:
        """The problem with full numbers of commits."""
        return re.sub(r"\{(\d+)\}", lambda found: f"{int(found[1]):020d}", self.problem)


def damaged(do: Callable[[Path], Any], line: str = "") -> Break:
    return Break(do, f"{{5}}.json is cut off or damaged in line {line}")


def rows(value: str) -> Break:
    return damaged(lambda t: edited(commit(t), "add", stats=f'{{"numRecords": {value}}}'))


def fifo(file: Callable[[Path], Path], problem: str, quota: float = 40.0) -> Break:
    return Break(lambda t: in_place_of(file(t), os.mkfifo), f"{problem} is no regular file", quota)


def edited(file: Path, kind: str, **values: Any) -> None:
    """Change values of a commit's actions of one kind."""
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for line in lines:
        line.get(kind, {}).update(values)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def in_place_of(file: Path, what: Callable[[Path], Any]) -> None:
    file.unlink(missing_ok=True)
    what(file)


def endless(file: Path) -> None:
    file.symlink_to("/dev/zero")


def log_file(table: Path, name: str) -> Path:
    return table / "_delta_log" / name


BREAKS = {
    "the last commit is empty": Break(lambda t: cut(commit(t)), "{5}.json is empty"),
    "the last commit is cut off": damaged(lambda t: cut(commit(t), 100), "1"),
    "the last commit is cut off behind a line": Break(
        first_line_only, "{5}.json is cut off: it names fewer files than it says"
    ),
    "the last commit leads out of the folder": Break(
        lambda t: renamed(t, "date=1/%2e%2e/%2E%2E/x.parquet"),
        "{5}.json names 'date=1/../../x.parquet', which is outside the table's folder",
    ),
    "an earlier commit is empty": Break(lambda t: cut(commit(t, 3)), "{3}.json is empty", 20),
    "an earlier commit is missing": Break(
        lambda t: commit(t, 3).unlink(), "{3}.json is missing", 20
    ),
    "the first commit is empty": Break(lambda t: cut(commit(t, 0)), "{0}.json is empty", None),
    "the last data file is empty": Break(
        lambda t: cut(added(t)), "which _delta_log/{5}.json adds, has 0 bytes, the log says"
    ),
    "the last data file is missing": Break(
        lambda t: added(t).unlink(), "which _delta_log/{5}.json adds, is missing"
    ),
    "the last data file is zeros": Break(
        lambda t: zeros(added(t)),
        "which _delta_log/{5}.json adds, does not end as a Parquet file does",
    ),
    "the checkpoint is empty": Break(
        lambda t: cut(checkpointed(t)), "{5}.checkpoint.parquet is empty", 50
    ),
    "the checkpoint is cut off": Break(
        lambda t: cut(checkpointed(t), 500),
        "{5}.checkpoint.parquet does not end as a Parquet file does",
        50,
    ),
    "the checkpoint is missing": Break(
        lambda t: checkpointed(t).unlink(),
        "{5}.checkpoint.parquet, which _delta_log/_last_checkpoint names, is missing",
        50,
    ),
    # commits beside a checkpoint, which checksums and the note of it still name
    "the last commit is missing": Break(lambda t: commit(t).unlink(), "{5}.json is missing"),
    "all commits after the checkpoint are missing": Break(
        lambda t: (checkpoint_of(t, 3), lose(t, 4), lose(t, 5)), "{4}.json is missing", 30
    ),
    "the commit of the newest checkpoint is missing": Break(
        lambda t: (checkpoint_of(t, 5), lose(t, 5)), "{5}.json is missing", 50
    ),
    "all is missing but the checkpoint": Break(
        lambda t: (checkpoint_of(t, 5), lose(t, *range(6))), ".json is missing", 50
    ),
}
STRANGE = {
    "all is missing but the checkpoint, also checksums": Break(
        lambda t: (checkpointed(t), lose(t, *range(6))), ".json is missing", 50
    ),
    "deep JSON": damaged(lambda t: commit(t).write_text("[" * 200_000), "1"),
    "deep statistics": damaged(lambda t: edited(commit(t), "add", stats="[" * 200_000)),
    "1e30 rows": rows("1e30"),
    "more rows than 64 bits": rows(str(2**70)),
    "fewer rows than none": rows("-1"),
    "a size of 1e30": damaged(lambda t: edited(commit(t), "add", size=1e30)),
    "counts that are text": Break(
        lambda t: edited(commit(t), "commitInfo", operationMetrics="many"),
        "{5}.json is damaged: operationMetrics",
    ),
    "a FIFO for the last commit": fifo(commit, "{5}.json"),
    "a FIFO for an earlier commit": fifo(lambda t: commit(t, 2), "{2}.json", 10),
    "a FIFO for the checkpoint": fifo(checkpointed, "{5}.checkpoint.parquet", 50),
    "a FIFO for the note of the checkpoint": fifo(
        lambda t: log_file(t, "_last_checkpoint"), "_last_checkpoint", 50
    ),
    "a FIFO that readers of other programs would open": fifo(
        lambda t: log_file(t, f"{LAST:020}.crc"), "{5}.crc", 50
    ),
    "a FIFO for the data": fifo(added, ""),
    "zeros for the last commit": Break(
        lambda t: in_place_of(commit(t), endless), "{5}.json is no regular file"
    ),
    "zeros for the note of the checkpoint": Break(
        lambda t: in_place_of(log_file(t, "_last_checkpoint"), endless),
        "_last_checkpoint is no regular file",
        50,
    ),
    "a far commit": Break(
        lambda t: shutil.copy(commit(t), log_file(t, f"{FAR:020}.json")),
        f"{FAR:020}.json is {FAR - LAST} versions after the one before",
        50,
    ),
    "a commit of 20 nines": Break(
        lambda t: shutil.copy(commit(t), log_file(t, f"{'9' * 20}.json")), f"{'9' * 20}.json is", 50
    ),
    "a far checkpoint": Break(
        lambda t: shutil.copy(checkpointed(t), log_file(t, f"{FAR:020}.checkpoint.parquet")),
        f"{FAR:020}.checkpoint.parquet is {FAR - LAST} versions after the one before",
        50,
    ),
}
"""Damage that no power loss leaves; without checksums, which would show it, too."""
BREAKS |= {name: each._replace(checksums=False) for name, each in STRANGE.items()}


def harmless(table: Path) -> None:
    """Leave files that a power loss may leave, and that readers can bear."""
    checkpointed(table)
    hint = table / "_delta_log" / "_last_checkpoint"
    cut(hint)
    (table / "part-00000-of-a-writer-that-was-killed.parquet").touch()
    (table / "_delta_log" / f"{LAST + 1:020d}.json.tmp").touch()
