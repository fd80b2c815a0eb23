"""The reference of all commands at the end of docs/reference/cli.md, made from their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from quotaplane.cli.audit import configure as configure_audit
from quotaplane.cli.main import COMMANDS, PURPOSES, build_parser
from quotaplane.console.option_parser import OptionParser
from quotaplane.demo.run import parser as demo_parser
from tests.unit.repo.pages import ROOT, load_script

JOBS: Final = ("quota", "balance")
"""The jobs that only `quotaplane run` starts."""


_SHARED: Final = {
    "form": ("--table, --json, --csv", "[the form of the answer](#answers)"),
    "history": ("--conf FILE, --history PATH", "[which history](#which-history)"),
}
"""By where the parser stores them, options that have a section of the page."""


def _job_parser(job: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = load_script(ROOT / "jobs" / f"run_{job}.py").parser()
    return parser


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """All commands in the order of the help, and their parsers; actions are commands, too."""
    for names in PURPOSES.values():
        for name in names:
            if name == "demo":
                yield name, demo_parser()
            elif name == "reshard":
                yield name, _job_parser(name)
            elif name == "run":
                yield from ((f"run {job}", _job_parser(job)) for job in JOBS)
            elif name == "audit":
                parser = OptionParser(prog="quotaplane audit", description=COMMANDS[name][1])
                configure_audit(parser)
                yield name, parser
            else:
                yield from _with_actions(name)


def _with_actions(name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield from _leaves(name, _subparsers(build_parser(name))[name])


def _leaves(
    name: str, parser: argparse.ArgumentParser
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    actions = _subparsers(parser)
    if not actions or len(parser._actions) > 2:  # options of its own beside --help and the actions
        yield name, parser
    for action, subparser in actions.items():
        yield from _leaves(f"{name} {action}", subparser)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _usage(name: str, parser: argparse.ArgumentParser) -> str:
    required = {
        id(action) for group in parser._mutually_exclusive_groups for action in group._group_actions
    }
    words = [f"quotaplane {name}"]
    for group in parser._mutually_exclusive_groups:
        if group.required:
            words.append("(" + " | ".join(map(_written, group._group_actions)) + ")")
    for action in parser._actions:
        if action.option_strings and action.required and id(action) not in required:
            words.append(_written(action))
        elif not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            text = str(action.metavar or action.dest)
            words.append(
                {"?": f"[{text}]", "*": f"[{text} ...]", None: text}[action.nargs]  # type: ignore[index]
            )
    return " ".join(words)


def _written(action: argparse.Action) -> str:
    option = ", ".join(action.option_strings)
    if action.nargs == 0:
        return option
    values = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    return f"{option} {values}"


def _section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"    {_usage(name, parser)}\n"
    rows: dict[str, str] = {}
    for action in parser._actions:
        if not action.option_strings or isinstance(action, argparse._HelpAction):
            continue
        if action.dest == "conf" and any(a.dest == "history" for a in parser._actions):
            continue
        options, text = _SHARED.get(action.dest, (_written(action), action.help or ""))
        rows[options] = text.replace("%%", "%").replace("<", "&lt;")
    if rows:
        yield "| option | |\n|---|---|"
        for option, text in rows.items():
            cells = (cell.replace("|", "\\|") for cell in (f"`{option}`", text))
            yield "| " + " | ".join(cells).rstrip() + " |"
        yield ""


def reference() -> str:
    """The reference as the page has it."""
    lines = [line for name, parser in parsers() for line in _section(name, parser)]
    return "\n".join(lines)
