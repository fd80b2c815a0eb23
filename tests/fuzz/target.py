"""Definition of a fuzz target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from quotaplane.errors import QuotaplaneError


@dataclass(frozen=True)
class Target:
    """One entry of the product for inputs from outside."""

    make: Callable[[Random], bytes]
    """An input; the same ``Random`` makes the same."""
    run: Callable[[bytes], object]
    """Gives the input to the product, and checks what comes out."""
    refusals: tuple[type[Exception], ...] = (QuotaplaneError,)
    """Exceptions that the product may raise."""
