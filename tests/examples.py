"""How many examples a test is tried with in CI, and how many in the soak."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings


def examples(times: float, **more: Any) -> settings:
    """Settings with so many times the examples of the profile, at least one; ``more`` of its own.

    ``make quick``, ``make test`` and ``make soak`` have profiles of their own (tests/conftest.py).
    """
    return settings(max_examples=max(1, round(times * settings().max_examples)), **more)


def in_soak(*values: Any) -> list[Any]:
    """Values of a parameter that only ``make soak`` tries."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]
