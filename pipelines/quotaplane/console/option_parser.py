"""The parser of command-line options for all commands, jobs and benchmarks."""

from __future__ import annotations

import argparse
import math
import re
import sys
from typing import Any, Final, NoReturn

from quotaplane.errors import ConfigError
from quotaplane.parsing.decimals import parse_decimal

_MOST_WHOLE: Final = 2**53 - 1
"""A float does not have all whole numbers beyond it."""


_HALF: Final = re.compile("[\ud800-\udfff]")
"""How Python has bytes of the command line that it could not decode."""


class OptionParser(argparse.ArgumentParser):
    """Accepts only full option names, once each, and reports a wrong option in one line.

    argparse accepts ``--hist`` for ``--history``; a script with such an abbreviation would break,
    or change its meaning, when an option is added. If an option is given twice, argparse takes the
    last value; probably several values were meant, or the first was overlooked. Parsers of
    subcommands also have this class.

    >>> parser = OptionParser(prog="job")
    >>> _ = parser.add_argument("--history")
    >>> parser.parse_args(["--hist", "data"])
    Traceback (most recent call last):
        ...
    quotaplane.errors.ConfigError: unrecognized arguments: --hist data (see job --help)
    >>> parser.parse_args(["--history", "a", "--history", "b"])
    Traceback (most recent call last):
        ...
    quotaplane.errors.ConfigError: argument --history: is given twice (see job --help)
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        settings = {"formatter_class": argparse.RawDescriptionHelpFormatter, **settings}
        super().__init__(*args, **{**settings, "allow_abbrev": False})
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)

    def error(self, message: str) -> NoReturn:
        message = message.replace("ignored explicit argument", "takes no value, not")
        raise ConfigError(f"{message} (see {self.prog} --help)")


class _StoreOnce(argparse.Action):
    """Stores the value of an option or of a positional argument: a text that is not empty.

    In a shell ``-f "$FOLDER"`` is empty if the variable is not set. Bytes that the locale's
    encoding does not have are no text, and no table has them.
    """

    _stored_in: argparse.Namespace | None = None

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if option_string is not None and self._stored_in is namespace:
            raise argparse.ArgumentError(self, "is given twice")
        for value in values if isinstance(values, list) else [values]:
            if value == "":
                raise argparse.ArgumentError(self, "must not be empty")
            if isinstance(value, str) and _HALF.search(value):
                encoding = sys.getfilesystemencoding()
                raise argparse.ArgumentError(self, f"{value!r} is no text in {encoding}")
        self._stored_in = namespace
        setattr(namespace, self.dest, values)


def number(text: str) -> float:
    """The number that an option gives, in the one spelling that all programs read alike.

    >>> number("1e3")
    1000.0
    """
    value = parse_decimal(text)
    if math.isnan(value):
        raise argparse.ArgumentTypeError(f"must be a number, not {text!r}")
    return value


def whole_number(text: str) -> int:
    """The whole number that an option gives.

    >>> whole_number("-7")
    -7
    """
    value = parse_decimal(text)
    if not value.is_integer() or abs(value) > _MOST_WHOLE:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(value)
