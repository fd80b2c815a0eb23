"""Inputs of 16 MB, made to cost as much as they can: a second and 256 MB each at most."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.bombs import BOMBS, MOST_CPU_S, MOST_MEMORY
from tests.unit.repo.pages import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures with Linux's /proc"),
]

NOISE = 1.3
"""The same bomb costs up to so many times as much beside other programs, whatever the scale."""


@pytest.mark.nightly
def test_no_bomb_costs_more_than_its_budget() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bombs", *BOMBS],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        check=True,
    )
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [each["bomb"] for each in found] == [*BOMBS]
    over = [
        each
        for each in found
        if "cpu_s" not in each
        or each["outcome"].startswith("not ours")
        or each["cpu_s"] > MOST_CPU_S * each["scale"] * NOISE
        or each["memory"] > MOST_MEMORY
    ]
    assert over == []
