"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(times: float, **more: Any) -> settings:
    """Settings with so many times the examples of the profile, at least one; ``more`` of its own.

    ``make quick``, ``make test`` and ``make soak`` have profiles of their own (tests/conftest.py).
    """
    return settings(max_examples=max(1, round(times * settings().max_examples)), **more)
