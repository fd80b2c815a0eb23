"""The parser of command-line options that every command, job and benchmark uses."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from quotaplane.errors import ConfigError


class OptionParser(argparse.ArgumentParser):
    """Takes options by their full names only, and tells a wrong one in one line.

    argparse by itself takes ``--hist`` for ``--history``: a script that relies on that changes its
    meaning, or breaks, when an option is added. Parsers of subcommands are of this class, too.

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
