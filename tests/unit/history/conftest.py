"""Histories for these tests."""

from __future__ import annotations

import pytest

from quotaplane.settings import History
from tests.histories import make_history


@pytest.fixture
def tables(history: History) -> None:
    """The empty tables of the history."""
    make_history(history)
