"""Pulsar's own TransferShedder, placements and splits, in a JVM of their own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.servers.pulsar_roles import pulsar_home
from tests.spark.fixtures import launcher_environment

SOURCES: Final = Path(__file__).with_name("placement")
_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    "-Dlog4j2.configurationFile=" + SOURCES.joinpath("silent.properties").as_uri(),
)

Json = dict[str, Any]


def ask_pulsar(cases: Sequence[Json]) -> list[Any]:
    """Answer all cases, one after the other, in one JVM; PulsarPlacement.java says what is asked.

    Raises:
        RuntimeError: the JVM failed, or there is no compiler beside it; with what it said.
    """
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    classpath = f"{_compiled()}:{pulsar_home()}/lib/*"
    answers = _run("java", *_OPTIONS, "-cp", classpath, "PulsarPlacement", asked=lines)
    return [json.loads(line) for line in answers.splitlines()]


@cache
def _compiled() -> Path:
    folder = tempfile.mkdtemp(prefix="pulsar-placement-")
    sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
    _run("javac", "-nowarn", "-d", folder, "-cp", f"{pulsar_home()}/lib/*", *sources)
    return Path(folder)


def _run(program: str, *arguments: str, asked: str = "") -> str:
    path = Path(launcher_environment()["JAVA_HOME"]) / "bin" / program
    if not path.exists():
        raise RuntimeError(f"{path} is missing: these tests need a JDK")
    done = subprocess.run([path, *arguments], input=asked, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program} {arguments[-1]} failed:\n{done.stderr}")
    return done.stdout
