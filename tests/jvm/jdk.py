"""Runs the programs of the JDK that the launcher found."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.spark.fixtures import launcher_environment


def run_jdk(program: str, *words: str, asked: bytes = b"") -> bytes:
    """Output of ``java`` or ``javac``, which gets ``asked`` on stdin.

    Raises:
        RuntimeError: it failed, or there is only a JRE, which can't compile; with what it said.
    """
    home = Path(launcher_environment()["JAVA_HOME"])
    if not (home / "bin" / "javac").exists():
        raise RuntimeError(f"{home} is a JRE; tests of this kind need a JDK (see README.md)")
    done = subprocess.run([home / "bin" / program, *words], input=asked, capture_output=True)
    if done.returncode:
        said = (done.stdout[-6000:] + done.stderr[-3000:]).decode(errors="replace")
        raise RuntimeError(f"{program} {words[-1]} failed:\n{said}")
    return done.stdout
