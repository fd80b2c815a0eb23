"""How many examples a test is tried with in CI, and how many by ``make nightly``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings


def examples(times: float, **more: Any) -> settings:
    """Settings with so many times the examples of the profile, at least one; ``more`` of its own.

    ``make quick``, ``make test`` and ``make nightly`` have their own profiles (tests/conftest.py).
    """
    return settings(max_examples=max(1, round(times * settings().max_examples)), **more)


def in_nightly(*values: Any) -> list[Any]:
    """Values of a parameter that only ``make nightly`` tries."""
    return [pytest.param(value, marks=pytest.mark.nightly) for value in values]
