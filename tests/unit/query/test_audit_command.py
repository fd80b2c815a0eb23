"""``quotaplane audit``: finds audits, reads options, prints answers, and says what is wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from quotaplane.cli.audit import VIOLATIONS
from quotaplane.cli.audit import main as spark_main
from quotaplane.cli.main import main
from quotaplane.errors import ConfigError, InputError
from quotaplane.query.answer import Answer
from quotaplane.query.audit import FOLDER, Audit, list_audits, load_audit, parse_audit
from quotaplane.query.sql_text import parameters_in
from quotaplane.settings import History
from tests.unit.cli.refusals import refused
from tests.unit.history.history_cases import NOON_MS
from tests.unit.query.audit_cases import change, given, used, write
from tests.unit.repo.pages import ROOT

NOON = datetime.fromtimestamp(NOON_MS / 1000, tz=timezone.utc)
Output = pytest.CaptureFixture[str]


@pytest.fixture
def made(history: History) -> History:
    """A broker that exceeds its limit, and one that may."""
    write(
        history,
        {
            0: given(("b1", "g", 50.0)),
            1: given(("b2", "g", 50.0), enforced=False),
            10: used(9, ("b1", "g", 70.0), ("b2", "g", 60.0)),
        },
    )
    change(history, 0, "ann", "g", 100.0)
    return history


def run(history: History, *words: str) -> int:
    return main(["audit", *words, "--history", history.path])


@pytest.mark.parametrize("audit", list_audits(), ids=lambda audit: audit.name)
def test_an_audit_is_a_question_whose_parameters_are_declared_and_used(audit: Audit) -> None:
    assert audit.question.endswith("?")
    assert parameters_in(audit.sql) - {"since", "until"} == set(audit.parameters)


def test_parameters_have_defaults_and_meanings() -> None:
    parameters = load_audit("exceeded").parameters
    values = {name: parameter.default for name, parameter in parameters.items()}
    assert values == {"tolerance": 0.05, "settle_s": 5, "burst_s": 1.2}
    assert parameters["tolerance"].meaning == "fraction of the limit by which usage may exceed it"
    assert load_audit("exceeded").values({"settle_s": 7.0})["settle_s"] == 7
    with pytest.raises(InputError, match=r"^audit exceeded has no parameter x$"):
        load_audit("exceeded").values({"x": 1.0})


def test_an_audit_of_a_file_that_is_missing_is_refused() -> None:
    here = re.escape(str(Path("nowhere.sql").absolute()))
    with pytest.raises(InputError, match=rf"^{here}: can't be read: No such file"):
        load_audit("nowhere.sql")


def test_an_audit_of_your_own(made: History, tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "mine.sql"
    file.write_text(
        "-- How many?\n-- :at_least = 65  per second\n-- violations: rows where many\n"
        "SELECT broker, used_per_s >= :at_least AS many FROM usage_values\n"
        "WHERE dimension = 'publish_messages' ORDER BY broker\n"
    )
    assert run(made, str(file), "--csv") == VIOLATIONS
    printed = capsys.readouterr()
    assert printed.out == "broker,many\nb1,true\nb2,false\n"
    assert printed.err == "quotaplane: audit mine: 1 of 2 rows is a violation\n"
    assert run(made, str(file), "--at-least", "71") == 0
    with pytest.raises(SystemExit):
        spark_main([str(file), "--help"])
    assert "--at-least N per second (65)" in " ".join(capsys.readouterr().out.split())


def test_which_rows_are_violations() -> None:
    answer = Answer(("n", "bad"), [(1, True), (2, False), (3, None)])
    counts = {"": 0, "-- violations: every row\n": 3, "-- violations: rows where bad\n": 1}
    for comment, count in counts.items():
        assert parse_audit("x", f"-- Q?\n{comment}SELECT 1").violations(answer) == count
    with pytest.raises(InputError, match=r"the answer has no such column$"):
        parse_audit("x", "-- violations: rows where worse\nSELECT 1").violations(answer)
    with pytest.raises(InputError, match=r"^`violations: some` must be `every row` or"):
        parse_audit("x", "-- violations: some\nSELECT 1")


def test_exit_codes(made: History, capsys: Output) -> None:
    assert run(made, "exceeded", "--table") == VIOLATIONS
    printed = capsys.readouterr()
    assert printed.out.endswith("(2 rows)\n")
    assert printed.err == "quotaplane: audit exceeded: 1 of 2 rows is a violation\n"
    # the other broker is not limited
    assert run(made, "exceeded", "--tolerance", "0.5") == 0
    assert run(made, "exceeded", "--since", "2026-03-02") == 0
    assert run(made, "changes") == 0
    assert capsys.readouterr().err == ""


def test_list_prints_the_questions(capsys: Output) -> None:
    assert main(["audit", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "exceeded      * Which brokers used more than their limits, and when?" in lines
    assert "silent          Which brokers went silent, and did they come back?" in lines
    assert len(lines) == len(list(FOLDER.glob("*.sql")))


WRONG = [
    ([], "the following arguments are required: NAME"),
    (["nope", "--conf", "x.yaml"], "there is no audit 'nope'; there are changes, chargeback, "),
    (["silent"], "audit needs either --conf FILE or --history PATH"),
    (["silent", "--conf", "c", "--history", "h"], "audit needs either"),
    (["silent", "--conf", "nowhere.yaml"], "nowhere.yaml: can't be read"),
    (["silent", "--history", "h", "--since", "soon"], "--since: 'soon' is neither"),
    (["silent", "--history", "h", "--since", "1h", "--until", "2h"], "is before --since, 20"),
    (["silent", "--history", "h", "--json", "--csv"], "--csv: not allowed with argument --json"),
    (["silent", "--history", "h", "--tolerance", "1"], "--tolerance"),
    (["silent", "--hist", "h"], "--hist"),
    (["exceeded", "--history", "h", "--tolerance", "x"], "--tolerance: must be a number"),
    (["exceeded", "--history", "h", "--settle-s", "-1"], "--settle-s: must be 0"),
]


@pytest.mark.parametrize(("argv", "problem"), WRONG)
def test_wrong_options_are_one_line(argv: list[str], problem: str, capsys: Output) -> None:
    """Both commands refuse them, and before Spark starts."""
    assert problem in refused(capsys, "audit", *argv)
    with pytest.raises((ConfigError, InputError), match=re.escape(problem)):
        spark_main(argv)


def test_a_parameter_with_the_name_of_an_option_is_refused(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "mine.sql"
    file.write_text("-- Q?\n-- :csv = 1  wrong\nSELECT :csv")
    problem = f"audit {file}: a parameter can't be called csv"
    assert problem in refused(capsys, "audit", str(file), "--history", "h")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELEC 1", r'SQL: Parser Error: syntax error at or near "SELEC" \(line 1: SELEC 1\)'),
        ("-- violations: rows where x\nSELECT 1 AS y", r"its comment says .* no such column"),
    ],
)
def test_wrong_sql_is_one_line(
    made: History, tmp_path: Path, capsys: Output, sql: str, problem: str
) -> None:
    file = tmp_path / "mine.sql"
    file.write_text(sql)
    line = refused(capsys, "audit", str(file), "--history", made.path)
    assert re.fullmatch(rf"quotaplane: error: audit {file}: {problem}\n", line)


def test_help_names_the_parameters_of_the_audit(capsys: Output) -> None:
    assert main(["audit", "exceeded", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "seconds for which the previous limit still counts (5)" in text
    assert "Which brokers used more than their limits, and when?" in text
    assert f"{VIOLATIONS} the audit found violations" in text


def test_the_job_leaves_with_2_before_any_jvm() -> None:
    job = ROOT / "jobs" / "run_audit.py"
    paths = {"PYTHONPATH": str(job.parents[1] / "pipelines"), "PATH": "", "JAVA_HOME": "/nowhere"}
    command = [sys.executable, str(job), "nope", "--history", "h"]
    answer = subprocess.run(command, env=paths, capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.startswith(
        "quotaplane: error: there is no audit 'nope'; there are changes"
    )
