"""Bugs that are planted into the real code, to prove that the simulation finds such bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch


class Planted(NamedTuple):
    """A planted bug."""

    breaks: str
    plant: Callable[[], Any]
    """Returns the context in which the bug is there."""


PLANTED: Final[dict[str, Planted]] = {}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """A context in which the bug is there."""
    with PLANTED[name].plant():
        yield
