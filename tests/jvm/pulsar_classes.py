"""Asks programs in ``pulsar/``, which answer with Pulsar's own classes, in JVMs of their own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.jvm.jdk import run_jdk
from tests.servers.pulsar_roles import pulsar_home

SOURCES: Final = Path(__file__).with_name("pulsar")
_OPTIONS: Final = (
    *("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dlog4j2.configurationFile=" + SOURCES.joinpath("silent.properties").as_uri(),
)

Json = dict[str, Any]


FAST: Final = ("-XX:TieredStopAtLevel=4", "-Xmx3g")
"""Options for measurements: all of the compiler, and room for large cases."""


def ask_pulsar(program: str, cases: Iterable[Json], options: Iterable[str] = ()) -> list[Any]:
    """Answers to all cases by one JVM; the program's file says what is asked.

    Raises:
        RuntimeError: the JVM failed, or there is no compiler beside it; with what it said.
    """
    asked = "".join(f"{json.dumps(case)}\n" for case in cases).encode()
    classpath = f"{_compiled()}:{pulsar_home()}/lib/*"
    answers = run_jdk("java", *_OPTIONS, *options, "-cp", classpath, program, asked=asked)
    return [json.loads(line) for line in answers.decode().splitlines()]


@cache
def _compiled() -> Path:
    folder = tempfile.mkdtemp(prefix="pulsar-classes-")
    sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
    run_jdk("javac", "-nowarn", "-d", folder, "-cp", f"{pulsar_home()}/lib/*", *sources)
    return Path(folder)
