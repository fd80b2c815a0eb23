"""Audits are found, their options read and their answers printed; what is wrong costs no JVM."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.audit import main
from quotaplane.errors import ConfigError, InputError
from quotaplane.history.audit import FOLDER, list_audits, load_audit, parse_since
from quotaplane.text_table import render

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def test_the_three_questions_of_an_operator_are_there() -> None:
    assert {audit.name: audit.question for audit in list_audits()} == {
        "exceeded": "Who exceeded its limit, and when?",
        "propagation": "How long until a quota change was in force everywhere?",
        "silent": "Which brokers went silent, and did they come back?",
    }


@pytest.mark.parametrize("audit", list_audits(), ids=lambda audit: audit.name)
def test_every_parameter_of_an_audit_is_declared(audit: object) -> None:
    audit = load_audit(audit.name)  # type: ignore[attr-defined]
    code = re.sub(r"--.*", "", audit.sql)
    assert set(re.findall(r":(\w+)", code)) == {"since", *audit.parameters}


def test_parameters_have_defaults_and_meanings() -> None:
    parameters = load_audit("exceeded").parameters
    assert {name: p.default for name, p in parameters.items()} == {"tolerance": 0.05, "settle_s": 5}
    assert parameters["tolerance"].meaning == "fraction of the limit by which usage may exceed it"


def test_an_unknown_audit_is_told_with_those_there_are() -> None:
    with pytest.raises(
        InputError, match=r"^there is no audit 'x'; there are exceeded, propagation, silent$"
    ):
        load_audit("x")
    with pytest.raises(InputError, match=r"^there is no audit '_limit_values'"):
        load_audit("_limit_values")
    with pytest.raises(InputError, match=r"^nowhere\.sql: can't be read"):
        load_audit("nowhere.sql")


def test_an_audit_of_your_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.sql"
    file.write_text("-- How many?\n-- :at_least = 2.5  fewer do not count\nSELECT :at_least\n")
    audit = load_audit(str(file))
    assert (audit.name, audit.question) == ("mine", "How many?")
    assert audit.parameters["at_least"].default == 2.5


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("30s", timedelta(seconds=30)),
        ("15m", timedelta(minutes=15)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("2026-03-01T11:00:00Z", timedelta(hours=1)),
        ("2026-03-01T13:00:00+02:00", timedelta(hours=1)),
        ("2026-03-01 11:00", timedelta(hours=1)),
        ("2026-03-01", timedelta(hours=12)),
    ],
)
def test_since_is_a_time_or_an_age(text: str, ago: timedelta) -> None:
    assert NOW - parse_since(text, NOW) == ago


@given(st.text() | st.from_regex(r"[0-9]{1,9}[a-z]?", fullmatch=True))
def test_any_since_is_understood_or_refused(text: str) -> None:
    try:
        parse_since(text, NOW)
    except InputError as error:
        assert str(error).startswith("--since: ")  # noqa: PT017


ROWS = [("a, b", 1.5, None, NOW, True), ('"', 100, 2, NOW, False)]
COLUMNS = ("group", "used", "n", "at", "ended")


def test_an_answer_as_json() -> None:
    assert json.loads(render(COLUMNS, ROWS, "json"))[0] == {
        "group": "a, b",
        "used": 1.5,
        "n": None,
        "at": "2026-03-01T12:00:00.000Z",
        "ended": True,
    }
    assert json.loads(render(COLUMNS, [], "json")) == []


def test_an_answer_as_csv() -> None:
    rows = list(csv.reader(io.StringIO(render(COLUMNS, ROWS, "csv"))))
    assert rows == [
        list(COLUMNS),
        ["a, b", "1.5", "", "2026-03-01T12:00:00.000Z", "True"],
        ['"', "100", "2", "2026-03-01T12:00:00.000Z", "False"],
    ]


def test_an_answer_as_a_table() -> None:
    assert render(COLUMNS, ROWS, "table").splitlines() == [
        "group  used  n  at                        ended",
        "-----  ----  -  ------------------------  -----",
        "a, b    1.5  -  2026-03-01T12:00:00.000Z  True",
        '"       100  2  2026-03-01T12:00:00.000Z  False',
        "(2 rows)",
    ]
    assert render(("a",), [], "table").splitlines() == ["a", "-", "(0 rows)"]


def test_list_prints_the_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "exceeded     Who exceeded its limit, and when?"
    assert len(lines) == len(list(FOLDER.glob("[!_]*.sql")))


@pytest.mark.parametrize(
    ("argv", "error", "problem"),
    [
        ([], ConfigError, "the following arguments are required: NAME"),
        (["nope", "--conf", "x.yaml"], InputError, "there is no audit 'nope'"),
        (["silent"], ConfigError, "audit needs either --conf FILE or --history PATH"),
        (["silent", "--conf", "c", "--history", "h"], ConfigError, "audit needs either"),
        (["silent", "--conf", "nowhere.yaml"], ConfigError, "nowhere.yaml: can't be read"),
        (["silent", "--history", "h", "--since", "soon"], InputError, "--since: 'soon' is neither"),
        (["silent", "--history", "h", "--format", "xml"], ConfigError, "--format: invalid choice"),
        (["silent", "--history", "h", "--tolerance", "1"], ConfigError, "--tolerance"),
        (["exceeded", "--history", "h", "--tolerance", "x"], ConfigError, "--tolerance: invalid"),
        (["exceeded", "--history", "h", "--settle-s", "-1"], ConfigError, "--settle-s: must be 0"),
        (["exceeded", "--history", "h", "--settle-s", "nan"], ConfigError, "--settle-s: must be 0"),
    ],
)
def test_wrong_options_are_one_line(argv: list[str], error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=re.escape(problem)) as refused:
        main(argv)
    assert "\n" not in str(refused.value)


def test_without_a_history_no_jvm_is_started(tmp_path: Path) -> None:
    problem = f"there is no history at {tmp_path}/nowhere (no table resource_groups)"
    with pytest.raises(ConfigError, match=re.escape(problem)):
        main(["silent", "--history", str(tmp_path / "nowhere")])
    assert not (tmp_path / "nowhere").exists()


def test_help_names_the_parameters_of_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["exceeded", "--help"])
    assert left.value.code == 0
    assert "seconds for which the previous limit still counts (5)" in " ".join(
        capsys.readouterr().out.split()
    )


def test_the_job_leaves_with_2_before_any_jvm() -> None:
    job = Path(__file__).parents[2] / "jobs" / "run_audit.py"
    paths = {"PYTHONPATH": str(job.parents[1] / "pipelines"), "PATH": "", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, str(job), "nope", "--history", "h"]
    answer = subprocess.run(command, env=paths, capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr == (
        "quotaplane: error: there is no audit 'nope'; there are exceeded, propagation, silent\n"
    )
