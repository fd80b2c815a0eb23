"""Tables that tests break, each in a copy of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import DeltaTransport, History
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message
from tests.unit.deltalog.broken_cases import LAST, Doctor, put
from tests.unit.history.history_cases import NOON_MS, rounds


@pytest.fixture(scope="session")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five changes of a quota (10, 20, ... 50), five rounds, and topics with five messages each."""
    root = tmp_path_factory.mktemp("begun")
    history = History(path=str(root / "history"))
    for number in range(1, LAST + 1):
        put(history, 10.0 * number)
    with HistoryWriter(history, "x") as writer:
        for seq in range(LAST):
            writer.append("rounds", rounds(), Round(1, seq, NOON_MS))
    transport = DeltaTransport(kind="delta", path=str(root / "topics"))
    link, topics = open_broker_link(transport), open_transport(transport)
    for number in range(LAST):
        link.send_reports([("b", b"%d" % number, 1)])
        topics.publish([Message("b", b"%d" % number)])
    return root


@pytest.fixture
def doctor(begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(Path(shutil.copytree(begun, tmp_path / "root")), capsys)
