"""Damaged recordings: one line with the table and the round, exit code 4."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quotabalance.job.job import BalanceSpec
from quotaplane.arrow import pack
from quotaplane.cli.main import main
from quotaplane.history.writer import HistoryWriter
from quotaplane.settings import History
from tests.closed_loop.conftest import settings_with
from tests.closed_loop.recorded_loop import RecordedLoop
from tests.unit.balance import test_balance_record as balance
from tests.unit.sim.recorded_history import edit

PERIOD = ("--from", "2023-11-14T22:13:20Z", "--to", "2023-11-14T22:14:20Z")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 seconds of two brokers that want 80 each of a quota of 100, and rounds of the balancer."""
    folder = tmp_path_factory.mktemp("recorded")
    history = History(path=str(folder / "history"))
    wants = {"orders": {"a": [(0, 80.0)], "b": [(0, 80.0)]}}
    quotas = {"orders": {"publish_messages": 100.0}}
    RecordedLoop(history, wants, quotas, settings=settings_with()).run(12)
    with HistoryWriter(history, "balance", BalanceSpec.tables, BalanceSpec.last_table) as writer:
        balance.Recording().run(writer, 3)
    return folder / "history"


@pytest.fixture
def history(recorded: Path, tmp_path: Path) -> History:
    return History(path=str(shutil.copytree(recorded, tmp_path / "history")))


def flipped(payload: bytes) -> bytes:
    value, source = bytearray(payload), random.Random(len(payload))
    for _ in range(20):
        value[source.randrange(len(value))] ^= 1 << source.randrange(8)
    return bytes(value)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "junk": lambda _: b"junk",
    "nothing": lambda _: b"",
    "cut off": lambda payload: payload[: len(payload) // 2],
    "flipped": flipped,
    "another table": lambda _: pack(pa.table({"a": [1]})),
    "deep": lambda _: b"[" * 200_000,
    "another JSON": lambda _: b'{"settings": {"shards": "many"}}',
}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("of", ["settings", "state", "reports", "groups"])
def test_a_damaged_recording_is_one_line(
    history: History, capsys: pytest.CaptureFixture[str], of: str, kind: str
) -> None:
    def damage(row: dict[str, Any]) -> None:
        if row["kind"] == of:
            row["payload"] = DAMAGES[kind](row["payload"])

    edit(history, "recording", damage)
    code = main(["replay", *PERIOD, "--history", history.path])
    out, err = capsys.readouterr()
    if code in (0, 1):  # it can be decoded: differences are what a replay looks for
        assert kind in ("nothing", "flipped")
        return
    assert code == 4, err
    assert (out, err.count("\n")) == ("", 1)
    assert "history table recording: epoch 1, round " in err


@pytest.mark.parametrize("text", ["", "{}", "[" * 200_000, "[]"])
def test_a_damaged_record_of_the_balancer_is_one_line(
    history: History, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    edit(history, "balance_rounds", lambda row: row.update(settings=text))
    assert main(["balance", "replay", "--history", history.path]) == 4
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "history table balance_rounds: epoch 7, round " in err
