"""Commands read the history of an earlier release, whose tables get the columns that are new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.history.store import ensure_tables
from tests.releases import QUOTA, RELEASES, unpack


@pytest.mark.parametrize("version", RELEASES)
def test_commands_read_what_a_release_left(
    tmp_path: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    history = unpack(version, tmp_path).history
    ensure_tables(history)
    assert main(["groups", "list", "--json", "--history", history.path]) == 0
    (group,) = json.loads(capsys.readouterr().out)
    assert (group["group"], group["publish_messages_per_s"]) == ("g", QUOTA)
    assert main(["audit", "exceeded", "--since", "2026-01-01", "--history", history.path]) == 0
    assert main(["doctor", "--history", history.path]) == 0
