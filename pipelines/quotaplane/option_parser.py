"""The parser of command-line options for all commands, jobs and benchmarks."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from quotaplane.errors import ConfigError


class OptionParser(argparse.ArgumentParser):
    """Accepts only full option names, and reports a wrong option in one line.

    argparse accepts ``--hist`` for ``--history``; a script with such an abbreviation would break,
    or change its meaning, when an option is added. Parsers of subcommands also have this class.

    >>> parser = OptionParser(prog="job")
    >>> _ = parser.add_argument("--history")
    >>> parser.parse_args(["--hist", "data"])
    Traceback (most recent call last):
        ...
    quotaplane.errors.ConfigError: unrecognized arguments: --hist data (see job --help)
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")
