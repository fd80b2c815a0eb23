"""docs/reference/cli.md is right on answers and exit codes; all commands keep its rules."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

import pytest

from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import QuotaplaneError
from tests.unit.cli.refusals import refused
from tests.unit.repo.cli_reference import parsers
from tests.unit.repo.pages import ROOT, documented_codes, section

ALL = dict(parsers())
FORMS = {"--table", "--json", "--csv"}


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("name", ALL)
def test_every_answer_is_on_the_page(name: str) -> None:
    answers = section("cli", "Answers")
    named = {
        command
        for line in answers.splitlines()
        if line.startswith("| `") and not line.startswith("| `--")
        for command in re.findall(r"`([^`]+)`", line.split("|")[1])
    }
    assert named & {name, name.removesuffix(" pulsar")}, name


@pytest.mark.parametrize("name", ALL)
def test_options_have_one_name_everywhere(name: str) -> None:
    parser = ALL[name]
    assert isinstance(parser, OptionParser)
    assert not parser.allow_abbrev
    options = options_of(parser)
    short = {option for option in options if not option.startswith("--")} - {"-h"}
    assert short <= ({"-f"} if name == "groups apply" else set())
    assert not options & {"--format", "--output-format", "--config", "--path", "--reason"}
    if "--history" in options:
        assert "--conf" in options
    # Either of the forms means that the answer has forms: then all of them but CSV, perhaps.
    if options & FORMS:
        assert options >= {"--table", "--json"}
    changes = name.split()[-1] in ("put", "apply", "delete", "restore")
    assert (options >= {"--by", "--why", "--dry-run"}) == changes


def test_every_parser_in_the_code_is_the_one_that_takes_no_abbreviations() -> None:
    folders = ("pipelines", "jobs", "benchmarks", "deploy", "tests/servers")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                assert not ast.unparse(node.func).endswith("ArgumentParser"), file


def test_every_error_has_a_code_on_the_page() -> None:
    def kinds(kind: type[QuotaplaneError]) -> set[int]:
        return {kind.exit_code}.union(*map(kinds, kind.__subclasses__()))

    assert kinds(QuotaplaneError) <= documented_codes()


READING = [
    *(["groups", action] for action in ("get g", "list", "export", "history", "resolve")),
    *(["groups", action] for action in ("put g", "delete g", "restore --from-history")),
    *(["groups", action] for action in ("attach g --user a", "detach --user a", "attachments")),
    ["groups", "apply -f g.yaml --prune"],
    *([word] for word in ("status", "limits", "brokers", "maintain", "doctor")),
    *(["why", "g"], ["audit", "exceeded"], ["replay", "--from 1h"]),
    *(["balance", "replay"], ["balance", "what-if"]),
]


@pytest.mark.parametrize("place", ["--history", "--conf"])
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_wrong_place_is_told_with_its_path_and_nothing_is_created(
    words: list[str],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text("group: g\n")
    Path("conf.yaml").write_text(
        "{transport: {kind: delta, path: data/topics}, history: {path: data/history}, "
        "checkpoint: data/checkpoint, server: {anonymous: viewer}}"
    )
    where = {"--history": "data/history", "--conf": "conf.yaml"}[place]
    line = refused(capsys, *" ".join(words).split(), place, where)
    assert f"{tmp_path}/data/history" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conf.yaml", "g.yaml"]
