"""Options of groups: what follows from a declaration, and what a new one costs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.errors import InputError
from quotaplane.groups.flaws import row_flaws
from quotaplane.groups.names import flawed_names, name_flaw
from quotaplane.groups.option_kinds import RateOption
from quotaplane.groups.policy_options import ARRAYS, BY_COLUMN, OPTIONS
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import MODES, Mode
from quotaplane.quota.groups import plain_groups
from quotaplane.wire.shard_inputs import GROUPS
from tests.unit.repo.pages import ROOT

PAGE = ROOT / "docs/reference/history.md"


def table() -> str:
    """The options as the page shows them."""
    lines = ["| column | values (default) | meaning |", "|---|---|---|"]
    for option in OPTIONS:
        name = f"{option.name}_..." if isinstance(option, RateOption) else option.name
        lines.append(f"| `{name}` | {option.allowed} ({option.default_text}) | {option.help} |")
    return "\n".join(lines) + "\n"


def test_the_page_has_the_same_table() -> None:
    assert table() in PAGE.read_text("utf-8")


def test_codes_of_modes_are_places_among_the_words() -> None:
    """The codes are in the states of checkpoints, and mean the same there as in ``Mode``."""
    assert [Mode[word.upper()] for word in MODES] == list(range(len(MODES)))
    assert ARRAYS["mode"].null_means == "hard"


def test_every_default_is_allowed_and_is_what_null_is_read_as() -> None:
    for column, option in BY_COLUMN.items():
        kind = option.column_type
        assert not list(option.flaws(column, pa.array([option.null_means, None], kind)))
    rows = pa.table({column: pa.nulls(3, o.column_type) for column, o in BY_COLUMN.items()})
    plain = plain_groups(np.arange(3), pa.array(list("abc")), np.empty((0, 3)))
    for name, option in ARRAYS.items():
        for given in (rows, rows.drop_columns(list(option.columns))):  # null, and absent
            read = option.read(given)
            assert np.array_equal(read, plain.options[name])
            assert read.dtype == plain.options[name].dtype == option.dtype


def test_columns_of_the_table_and_of_changes_are_those_of_the_options() -> None:
    for schema in (RESOURCE_GROUPS.schema, GROUPS):
        there = [name for name in schema.names if name in BY_COLUMN]
        assert there == list(BY_COLUMN)
        assert all(schema.field(name).type == BY_COLUMN[name].column_type for name in there)


NAMES = ["", "a", "a::b", "a::", "x" * 1024, "x" * 1025, "a\tb", "jürgen", "user=", "user=a"]
NAMES += ["..", ".", "a/..", "../a", "a/./b", "a..b/.c/...", "a::../b"]


def test_many_names_are_judged_as_single_ones() -> None:
    expected = [(i, name_flaw(n)) for i, n in enumerate(NAMES) if name_flaw(n) is not None]
    assert list(flawed_names(pa.array(NAMES))) == expected
    flawed = ["", "a::", "x" * 1025, "a\tb", "user=", "..", ".", "a/..", "../a", "a/./b"]
    assert [NAMES[i] for i, _ in expected] == flawed


def test_a_row_that_put_would_refuse_for_its_name_is_reported() -> None:
    rows = pa.table({"group": ["a", "a::", "user=a b", ""]})
    assert [(flaw.row, flaw.report) for flaw in row_flaws(rows)] == [
        (1, "has an empty part beside '::'"),
        (2, "applies to no request: user: 'a b' must be written a%20b"),
        (3, "must not be empty"),
    ]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_what_is_of_another_kind_is_one_line_that_names_the_field(option: object) -> None:
    with pytest.raises(InputError, match=r"^--it: must be [^\n]*$"):
        option.parse([1], "--it")  # type: ignore[attr-defined]


HELP = "seconds of the limit that may be saved up"
NEW = f"""
    NumberOption(name="burst_s", least=0.0, most=60.0, default=1.0, help="{HELP}"),
)
"""
"""Takes the place of the closing bracket of ``OPTIONS``."""

SCENARIO = """
import contextlib, io, json, sys
import pyarrow as pa
from quotaplane.cli.main import main
from quotaplane.groups.flaws import row_flaws
from quotaplane.history.ddl import render
from quotaplane.history.store import ensure_history
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import group_id
from quotaplane.quota.group_changes import change_groups
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.registry.table import list_groups
from quotaplane.settings import History
from quotaplane.wire.shard_inputs import pack_groups, unpack_groups

assert "  burst_s DOUBLE COMMENT 'seconds of the limit" in render(RESOURCE_GROUPS)
history = History(path=sys.argv[1])
ensure_history(history)
with contextlib.redirect_stdout(io.StringIO()) as out:
    assert main(["groups", "put", "g", "--burst-s", "7", "--history", history.path]) == 0
assert json.loads(out.getvalue())["burst_s"] == 7.0
assert main(["groups", "put", "g", "--burst-s", "61", "--history", history.path]) == 2
assert [flaw.row for flaw in row_flaws(pa.table({"burst_s": [1.0, -1.0]}))] == [1]
changes = list_groups(history)
for name, value in {"group_id": group_id("g"), "deleted": False, "version": 1}.items():
    changes = changes.append_column(name, pa.array([value]))
((_, packed),) = pack_groups(changes, 1)
groups = change_groups(ShardState(), unpack_groups([packed])).groups
assert groups.options["burst_s"].tolist() == [7.0]
again = load(dump(ShardState(groups=groups)))
assert again.groups.options["burst_s"].tolist() == [7.0]
print("done")
"""


def test_a_new_number_costs_its_declaration(tmp_path: Path) -> None:
    """One file is edited; tables, DDL, commands, checks and states have the new option."""
    package = tmp_path / "pipelines" / "quotaplane"
    shutil.copytree(ROOT / "pipelines" / "quotaplane", package)
    declared = package / "groups" / "policy_options.py"
    text = declared.read_text("utf-8")
    end = '\n)\n"""In the order of the table\'s columns."""'
    assert text.count(end) == 1
    declared.write_text(text.replace(end, NEW.rstrip("\n") + end[2:]), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SCENARIO, str(tmp_path / "history")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(package.parent), "PATH": ""},
    )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr
