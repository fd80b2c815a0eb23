"""A table of quotas whose bytes, or whose commits, a test damages; and what doctor says of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.deltalog.durable import checkpoint
from quotaplane.deltalog.read import live_paths
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.deltalog.broken_cases import put
from tests.unit.history.history_cases import NOON_MS, limits, rounds

Capture = pytest.CaptureFixture[str]
DAMAGED: Final = "has damaged bytes: their checksum is "
BASE, NEWEST = 4, 7
"""Versions: of the checkpoint, and the last one."""


def make_changes(folder: Path) -> Path:
    """Seven changes of quotas, with a checkpoint of the log after the fourth; two rounds."""
    history = History(path=str(folder))
    make_history(history)
    table = Path(history.path) / "resource_groups"
    for number in range(1, NEWEST + 1):
        put(history, 10.0 * number, f"g{number}")
        if number == BASE:
            checkpoint(DeltaTable(table), str(table))
    with HistoryWriter(history, "x") as writer:
        for seq in range(2):
            writer.append("limits", limits([("b", "g", 5.0)]), Round(1, seq, NOON_MS))
            writer.append("rounds", rounds(), Round(1, seq, NOON_MS))
    return Path(history.path)


def flips(file: Path, times: int) -> Iterator[int]:
    """The file with one other bit, again and again, and in the end as it was."""
    good, draw = file.read_bytes(), random.Random(1)
    for _ in range(times):
        damaged = bytearray(good)
        damaged[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
        yield file.write_bytes(damaged)
    file.write_bytes(good)


def flip(file: Path) -> None:
    """Another bit in the middle of a file."""
    next(flips(file, 1))


def live_file(table: Path) -> Path:
    return table / live_paths(DeltaTable(table))[0]


def doctor(history: History, capsys: Capture, *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["doctor", "--history", history.path, "--json", *words])
    out = capsys.readouterr().out
    return code, json.loads(out[out.index("{") :])
