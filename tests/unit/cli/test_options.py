"""Options have one name each: no command, job or benchmark takes a part of it."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Iterator, Sequence

import pytest

from quotaplane.cli import audit
from quotaplane.cli.main import COMMANDS, build_parser, main
from quotaplane.console.option_parser import OptionParser
from quotaplane.demo import run as demo
from quotaplane.errors import ConfigError
from quotaplane.streams.script import conf_parser
from tests.unit.repo.pages import ROOT

FOLDERS = ("pipelines", "jobs", "benchmarks", "deploy", "tests/servers")


def _with_subparsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _with_subparsers(subparser)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_subcommand_takes_abbreviations(command: str) -> None:
    parsers = list(_with_subparsers(build_parser(command)))
    assert len(parsers) > len(COMMANDS)
    for parser in parsers:
        assert not parser.allow_abbrev, parser.prog
        assert isinstance(parser, OptionParser), parser.prog


def test_every_parser_in_the_code_is_the_one_that_takes_no_abbreviations() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    own = ROOT / "pipelines" / "quotaplane" / "option_parser.py"
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and file != own:
                assert not ast.unparse(node.func).endswith("ArgumentParser"), file


@pytest.mark.parametrize(
    ("job", "argv"),
    [
        (audit.main, ["exceeded", "--hist", "data/history"]),
        (conf_parser("quota", None).parse_args, ["--con", "conf/local.yaml"]),
        (demo.main, ["--sec", "5"]),
    ],
)
def test_a_job_refuses_an_abbreviation(
    job: Callable[[Sequence[str]], object], argv: list[str]
) -> None:
    with pytest.raises(ConfigError, match=r"(unrecognized arguments: --|is required|are required)"):
        job(argv)


@pytest.mark.parametrize(
    "argv",
    [
        ["groups", "list", "--hist", "data/history"],
        ["maintain", "--hist", "data/history"],
        ["maintain", "--history", "data/history", "--keep", "3"],
    ],
)
def test_the_light_command_refuses_an_abbreviation_in_one_line(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
