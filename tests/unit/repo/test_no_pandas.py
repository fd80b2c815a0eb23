"""Commands that answer at once do not wait for imports that they do not need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quotaplane.settings import History
from tests.unit.query.audit_cases import change, given, used, write

RUN = (
    "import sys\n"
    "from quotaplane.cli.main import main\n"
    "slow = {*sys.argv.pop(1).split()}\n"
    "code = main()\n"
    "slow &= sys.modules.keys()\n"
    "sys.exit(f'imported: {slow}' if slow else code)\n"
)
SLOW = "pandas pyspark py4j fastapi pyarrow.dataset"
OF_TABLES = f"{SLOW} pyarrow deltalake yaml rich plotly quotaplane.cli.groups"


def run(slow: str, *words: str) -> None:
    command = [sys.executable, "-c", RUN, slow, *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout


@pytest.mark.parametrize(
    "command",
    ["status", "limits", "brokers", "why g", "groups list", "groups get g", "audit changes"],
)
def test_a_command_that_answers_at_once_imports_little(history: History, command: str) -> None:
    change(history, 0, "ann", "g", 50.0)
    write(history, {1: given(("b", "g", 50.0)), 2: used(2, ("b", "g", 20.0))})
    options = ["--since", "2026-01-01"] if command.startswith("audit") else []
    run(SLOW, *command.split(), *options, "--history", history.path)


@pytest.mark.parametrize(
    ("command", "case", "more"),
    [
        ("allocate", {"brokers": {"b": {"usage": 1}}}, "quotaplane.cli.simulate"),
        ("throttle", {"requests": [{"t": 0, "units": 1}]}, "quotaplane.laws"),
    ],
)
def test_a_command_without_a_history_imports_less(
    tmp_path: Path, command: str, case: dict[str, object], more: str
) -> None:
    (tmp_path / "case.json").write_text(json.dumps(case))
    run(f"{OF_TABLES} {more}", command, str(tmp_path / "case.json"))


def test_a_process_that_only_plans_the_query_imports_no_pandas() -> None:
    """Spark starts it for the first batch after each start of a job, which waits for it."""
    code = (
        "import sys, pyspark.sql.streaming.transform_with_state_driver_worker\n"
        "import quotaplane.streams.operator, quotaplane.streams.quota.program\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
