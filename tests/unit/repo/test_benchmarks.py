"""Every benchmark can be imported: few of them run in tests, and helpers that they use change."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from tests.job import environment
from tests.unit.repo.pages import ROOT

IMPORTS: Final = """
import importlib, sys
sys.path[:0] = [".", "benchmarks", "deploy"]  # as for a script there
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_every_benchmark_and_script_of_set_up_can_be_imported() -> None:
    files = sorted(ROOT.glob("benchmarks/**/*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    names += [file.stem for file in sorted(ROOT.glob("deploy/*.py"))]
    command = [sys.executable, "-c", IMPORTS, *names]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    assert (done.returncode, len(names) > 50) == (0, True), done.stderr
