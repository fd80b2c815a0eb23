"""Import packages that extend quotaplane; each declares its parts in one ``Extension``.

quotaplane imports no such package itself. It loads those in ``PACKAGES`` by name, and only the
needed part of each; without the package its commands and settings do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

PACKAGES: Final = ("quotabalance",)
"""Each has a module ``extension`` with its ``EXTENSION``."""


class Extension(NamedTuple):
    """The parts of a package, as names ``module:attribute`` for ``load``."""

    commands: Mapping[str, tuple[str, str]]
    """Subcommands: module and help line, as in ``cli.main.COMMANDS``."""
    purpose: str
    """The heading of these subcommands in ``--help``."""
    long_running: frozenset[str]
    """Subcommands whose stderr is a log."""
    settings: str
    """A subclass of ``settings.Settings`` with further sections."""
    tables: str
    """Tables of the history, of type ``history.table_parts.Table``, in a tuple."""
    metrics: Mapping[str, str]
    """By the name of a job: its metrics, of type ``metrics.declaration.Metric``, in a tuple."""
    conditions: str
    """Possible conditions of its programs, of type ``agents.conditions.Condition``, in a tuple."""
    routes: str
    """The server's further routes, a FastAPI ``APIRouter``."""


@cache
def extensions() -> tuple[Extension, ...]:
    """The extensions that are installed."""
    found = []
    for package in PACKAGES:
        try:
            found.append(load(f"{package}.extension:EXTENSION"))
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
    return tuple(found)


def load(name: str) -> Any:
    """An attribute of a module.

    >>> load("math:pi")
    3.141592653589793
    """
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
