"""Commands that answer at once do not wait for imports that they do not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quotaplane.settings import History
from tests.unit.query.audit_cases import change, given, used, write

RUN = (
    "import sys\n"
    "from quotaplane.cli.main import main\n"
    "code = main()\n"
    "slow = {'pandas', 'pyspark', 'py4j', 'fastapi', 'pyarrow.dataset'} & sys.modules.keys()\n"
    "sys.exit(f'imported: {slow}' if slow else code)\n"
)


@pytest.mark.parametrize(
    "command", ["status", "limits", "brokers", "why g", "groups list", "audit changes"]
)
def test_a_command_that_answers_at_once_imports_little(history: History, command: str) -> None:
    change(history, 0, "ann", "g", 50.0)
    write(history, {1: given(("b", "g", 50.0)), 2: used(2, ("b", "g", 20.0))})
    options = ["--since", "2026-01-01"] if command.startswith("audit") else []
    answer = subprocess.run(
        [sys.executable, "-c", RUN, *command.split(), *options, "--history", history.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout
