"""The lists of slow and nightly tests name what there is."""

from __future__ import annotations

import pytest

from tests.order import NIGHTLY, SLOW
from tests.unit.repo.pages import ROOT


@pytest.mark.parametrize("begin", [*SLOW, *NIGHTLY])
def test_whatever_is_listed_is_there(begin: str) -> None:
    file, _, name = begin.partition("::")
    assert (ROOT / file).exists()
    assert not name or f"def {name}" in (ROOT / file).read_text(encoding="utf-8")
