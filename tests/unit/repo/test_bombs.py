"""Inputs of 16 MB, made to cost as much as they can: a second and 256 MB each at most."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.bombs import BOMBS, MOST_CPU_S, MOST_MEMORY
from tests.unit.repo.pages import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="measures with Linux's /proc"),
]

WERE_OVER = (
    *("long metric label", "escapes in a metric label", "metrics without labels"),
    *("statistics of short topics", "load report of lists", "empty lists", "gzip bomb"),
    *("settings of a megabyte", "nested lists in settings", "merges of merges"),
    *("aliases of aliases", "a time of many parts", "limits of empty names"),
    *("limits removed by empty names", "a quota of many digits", "reports of new names"),
)
"""Bombs that cost more than the budget once, and are cheap now; the others run each night."""


_NOISE = 1.3
"""The same bomb costs up to so many times as much beside other programs, whatever the scale."""


def measured(*names: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bombs", *names],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        check=True,
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


def check(*names: str) -> None:
    found = measured(*names)
    assert [each["bomb"] for each in found] == [*names]
    over = [
        each
        for each in found
        if "cpu_s" not in each
        or each["outcome"].startswith("not ours")
        or each["cpu_s"] > MOST_CPU_S * each["scale"] * _NOISE
        or each["memory"] > MOST_MEMORY
    ]
    assert over == []


@pytest.mark.nightly
def test_bombs_that_were_over_the_budget() -> None:
    check(*WERE_OVER)


@pytest.mark.nightly
def test_all_bombs() -> None:
    check(*BOMBS)
