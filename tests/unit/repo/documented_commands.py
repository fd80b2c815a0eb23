"""The commands in pages: found in their blocks, run as a reader would, their output compared.

A block of code is indented by four spaces. A line in it is a command if it begins with the name of
one of our programs, ``cp``, ``echo`` or ``pulsar-admin``, or with ``$``; then the lines after it,
up to the next ``$``, are its output, in which ``...`` stands for anything. A comment ``# exit code
N`` says how the command ends.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

from quotaplane.settings import load_settings
from tests.histories import make_history
from tests.unit.repo.cli_reference import JOBS, parsers
from tests.unit.repo.pages import MARK, ROOT

DAY_ONE: Final = ROOT / "docs/start/day-one.md"
FROM_TOPIC_RATES: Final = ROOT / "docs/start/from-topic-rates.md"
PAGES: Final = (
    ROOT / "README.md",
    ROOT / "docs/reference/cli.md",
    DAY_ONE,
    FROM_TOPIC_RATES,
    *sorted((ROOT / "examples").rglob("*.md")),
)

_BLOCK: Final = re.compile(r"(?:^|(?<=\n\n))(?:    .*\n|\n(?=    ))+", re.MULTILINE)
_OURS: Final = ("quotaplane ", ".venv/bin/quotaplane ", "./spark-submit.sh ")
_PROGRAMS: Final = (*_OURS, "python ", "cp ", "echo ", "pulsar-admin ")
_SPARK: Final = ("run", "demo", "reshard", "up")
_UP: Final = "quotaplane up "
_SERVERS: Final = ("conf/kafka.yaml", "conf/pulsar.yaml", "conf/balance.yaml")
_LASTS: Final = ("quotaplane serve", "agent.py", " &", "pulsar-admin ")


class Command(NamedTuple):
    """A command in a page."""

    page: Path
    text: str
    output: str | None
    """Output of the command; None: the page does not say."""
    code: int
    beside_job: bool = False
    """It is for a job that the page has started before."""

    @property
    def words(self) -> list[str]:
        """Ours, without the name of the program; ``./spark-submit.sh JOB`` is ``run JOB``."""
        words = shlex.split(self.text, comments=True)
        program = words.pop(0)
        if program.endswith("spark-submit.sh") and words[0] in JOBS:
            words.insert(0, "run")
        return words

    @property
    def is_ours(self) -> bool:
        """It is `quotaplane` or the launcher."""
        return self.text.startswith(_OURS)

    @property
    def starts_spark(self) -> bool:
        """It starts a JVM."""
        starts = (*_SPARK, "--setup")
        setup = self.words[:1] == ["setup"] and self.words[1:2] != ["pulsar"]
        return self.is_ours and (
            setup or self.words[0] in starts or self.text.startswith("./spark")
        )

    @property
    def needs_more(self) -> bool:
        """It needs a job, a server or a cluster, or does not end by itself."""
        return self.beside_job or any(word in self.text for word in (*_SERVERS, *_LASTS))


def commands_in(page: Path) -> list[Command]:
    """The commands of a page, in its order."""
    found: list[Command] = []
    # What is behind MARK names no files.
    for block in _BLOCK.findall(page.read_text("utf-8").partition(MARK)[0]):
        lines = [line[4:] for line in re.sub(r"\\\n +", "", block).splitlines()]
        while lines:
            line = lines.pop(0)
            output: list[str] | None = None
            if line.startswith("$ "):
                line, output = line[2:], []
                while lines and not lines[0].startswith("$ "):
                    output.append(lines.pop(0))
            elif not line.startswith(_PROGRAMS):
                continue
            code = re.search(r"# exit code (\d+)", line)
            text = None if output is None else "\n".join(output)
            beside_job = page == DAY_ONE and any(c.text.startswith(_UP) for c in found)
            found.append(Command(page, line, text, int(code[1]) if code else 0, beside_job))
    return found


class Sandbox:
    """A folder like the repository's in which a reader tries things."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("conf", "examples"):
            shutil.copytree(ROOT / name, folder / name)
        shutil.copytree(ROOT / "examples" / "groups" / "quotas", folder / "groups")
        (folder / "data").mkdir()
        self._program("quotaplane", f'exec {sys.executable} -m quotaplane "$@"')
        self._program("python", f'exec {sys.executable} "$@"')
        self._program("git", "echo 0a1b2c3")
        history = load_settings(folder / "conf" / "local.yaml").history
        make_history(history.model_copy(update={"path": str(folder / history.path)}))

    @property
    def place(self) -> dict[str, Any]:
        """Arguments of ``subprocess``: the folder, and an environment with the programs."""
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return {
            "cwd": self.folder,
            "env": {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "pipelines")},
        }

    def _program(self, name: str, script: str) -> None:
        for place in ("bin", ".venv/bin"):
            file = self.folder / place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)

    def run(self, command: Command) -> None:
        """Run a command and compare.

        Raises:
            AssertionError: it ends or prints otherwise than the page says.
        """
        done = subprocess.run(
            ["bash", "-c", command.text], **self.place, capture_output=True, text=True, timeout=600
        )
        said = f"{command.page}: {command.text}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == command.code, said
        if command.output is not None:
            assert matches(done.stdout, command.output), said


def matches(printed: str, expected: str) -> bool:
    r"""Whether an output is as expected, where ``...`` stands for anything.

    >>> matches("a\nb  1\nc\n", "...\nb ...1")
    False
    >>> matches("a\nb  1\nc\n", "a\nb ...\nc")
    True
    """
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def check_options(words: list[str]) -> None:
    """Parse a command without running it.

    Raises:
        ConfigError: an option is unknown or missing.
    """
    words = list(takewhile(lambda word: word != "|", words))
    for name, parser in sorted(parsers(), key=lambda pair: -len(pair[0])):
        if words[: len(name.split())] == name.split():
            parser.parse_args([word for word in words[len(name.split()) :] if word != "&"])
            return
    assert words[0] == "--setup" or words == ["--help"], words
