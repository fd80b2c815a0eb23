"""The plugin for Kafka brokers (deploy/kafka-plugin): compiled, tested and asked, without Maven."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tests.jvm.jdk import run_jdk
from tests.servers.jvm import SHORT_LIVED
from tests.servers.kafka_server import kafka_jars
from tests.servers.tools import fetched_once, ivy_retrieve, made_once
from tests.spark.fixtures import ROOT

PLUGIN: Final = ROOT / "deploy" / "kafka-plugin"
_SOURCES: Final = PLUGIN / "src"
_JUNIT: Final = ROOT / "deploy" / "junit-jars.xml"
_LIKE_MAVEN: Final = ("--release", "17", "-Xlint:all", "-Werror", "-proc:none")
"""Options of pom.xml."""


def plugin_jar() -> Path:
    """The plugin's jar, compiled against the server's jars once for each state of its sources.

    Raises:
        RuntimeError: it does not compile without warnings, or there is no compiler; has its output.
    """
    files = sorted(path for path in (_SOURCES / "main").rglob("*") if path.is_file())
    text = "\0".join(f"{path.relative_to(_SOURCES)}\0{path.read_text()}" for path in files)
    return made_once("kafka-plugin", text, _make_jar) / "quotaplane-kafka-plugin.jar"


def run_junit() -> str:
    """Run the plugin's own tests; returns JUnit's summary.

    Raises:
        RuntimeError: one failed, or they do not compile; has what JUnit or the compiler printed.
    """
    junit = fetched_once(
        "junit", _JUNIT, lambda to: ivy_retrieve(_JUNIT, ["jar"], f"{to}/[artifact].[ext]")
    )
    with tempfile.TemporaryDirectory() as classes:
        _compile(_SOURCES / "test" / "java", Path(classes), f"{plugin_jar()}:{junit}/*")
        classpath = f"{classes}:{plugin_jar()}:{junit}/*:{kafka_jars()}/*"
        launcher = ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]
        launcher += ["--details=summary", "--disable-ansi-colors", "--fail-if-no-tests"]
        options = [*SHORT_LIVED.split(), "-cp", classpath]
        return run_jdk("java", *options, *launcher, f"--scan-class-path={classes}").decode()


def ask_plugin(lines: Sequence[str]) -> list[str]:
    """Answers of the plugin's classes; KafkaPluginWire.java describes the lines.

    Raises:
        RuntimeError: the JVM failed, or there is no compiler beside it; with what it said.
    """
    source = str(Path(__file__).with_name("KafkaPluginWire.java"))
    asked = "".join(f"{line}\n" for line in lines).encode()
    return run_jdk("java", "-cp", str(plugin_jar()), source, asked=asked).decode().splitlines()


def assert_answers(lines: Sequence[str], expected: Sequence[str]) -> None:
    """The plugin's answers are these; shows the first that is not."""
    said = ask_plugin(lines)
    assert len(said) == len(expected)
    for line, answer, right in zip(lines, said, expected, strict=True):
        assert answer == right, line


def hexed(text: str) -> str:
    return text.encode().hex()


def bits(values: Iterable[float]) -> str:
    """The bits of doubles in hex, without zeros in front."""
    column = np.array([*values], np.float64).view(np.uint64)
    return ",".join(f"{bits:x}" for bits in column.tolist())


def _make_jar(folder: Path) -> None:
    folder.mkdir()
    with tempfile.TemporaryDirectory() as classes:
        _compile(_SOURCES / "main" / "java", Path(classes))
        made = [Path(classes), _SOURCES / "main" / "resources"]
        with zipfile.ZipFile(folder / "quotaplane-kafka-plugin.jar", "w") as jar:
            for root in made:
                for path in sorted(root.rglob("*")):
                    jar.write(path, path.relative_to(root))


def _compile(sources: Path, to: Path, more_classes: str = "") -> None:
    clients = [str(path) for name in ("kafka-clients", "slf4j-api") for path in _jars(name)]
    classpath = ":".join([*clients, more_classes] if more_classes else clients)
    files = sorted(str(path) for path in sources.rglob("*.java"))
    run_jdk("javac", *_LIKE_MAVEN, "-cp", classpath, "-d", str(to), *files)


def _jars(name: str) -> list[Path]:
    return sorted(kafka_jars().glob(f"{name}-*.jar"))
