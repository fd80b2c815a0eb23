"""Tables are read in a way that bears a process which ends right after it."""

from __future__ import annotations

import ast
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.short_reads import aborted
from quotaplane.deltalog.read import read_changes, read_rows
from quotaplane.history.store import open_table
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.deltalog.broken_cases import put
from tests.unit.history.history_cases import NOON_MS, limits, rounds
from tests.unit.repo.pages import ROOT

UNSAFE = {"to_pyarrow_dataset", "to_pyarrow_table", "to_pandas"}


@pytest.fixture
def written(tmp_path: Path) -> History:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    with HistoryWriter(history, "x") as writer:
        for seq in range(20):
            tables = {"limits": limits([("b", "g", 5.0)]), "rounds": rounds()}
            writer.append_round(Round(4, seq, NOON_MS + seq), tables)
    return history


def test_rows_come_with_plain_strings(written: History) -> None:
    rows = read_rows(open_table(written, "limits"), ["broker", "seq"], "seq < 3")
    assert rows.schema.types == [pa.string(), pa.int64()]
    assert rows["broker"].to_pylist() == ["b"] * 3


def test_changes_come_from_one_version_to_another(written: History) -> None:
    for number in range(1, 5):
        put(written, float(number))
    table = open_table(written, "resource_groups")
    changes = read_changes(table, 2, 3, ["publish_messages_per_s", "_change_type"])
    after = changes.filter(pa.compute.equal(changes["_change_type"], "update_postimage"))
    assert sorted(after["publish_messages_per_s"].to_pylist()) == [2.0, 3.0]


def test_what_a_job_reads_as_it_starts_uses_no_threads_that_call_python(written: History) -> None:
    """They are pyarrow's: they abort a process that ends while they are at it (exit code 134)."""
    code = (
        "import sys\n"
        "from quotaplane.history.previous_run import read_earlier\n"
        "from quotaplane.registry.table import list_groups\n"
        "from quotaplane.settings import History\n"
        "history = History(path=sys.argv[1])\n"
        "read_earlier(history), list_groups(history)\n"
        "sys.exit('deltalake.fs' in sys.modules or 'pyarrow.dataset' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, written.path]).returncode == 0


@pytest.mark.slow
@pytest.mark.nightly
def test_short_processes_do_not_abort(written: History) -> None:
    """A few; ``python -m benchmarks.short_reads`` starts as many as one likes."""
    with ThreadPoolExecutor(2) as pool:
        assert not any(pool.map(aborted, [written.path] * 6))


def test_nothing_reads_tables_in_the_way_that_aborts() -> None:
    for file in (ROOT / "pipelines").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in UNSAFE:
                # Arrow's own tables have a to_pandas, too: nothing here needs it.
                raise AssertionError(f"{file}:{node.lineno}: {node.attr}")
