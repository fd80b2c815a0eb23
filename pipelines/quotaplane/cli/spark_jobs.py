"""``quotaplane run JOB``, ``demo`` and ``reshard``: start Spark jobs through spark-submit.sh."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from quotaplane.errors import ConfigError

ROOT: Final = Path(__file__).parents[3]
"""The repository, if the package is used from one."""

_LAUNCHER: Final = "spark-submit.sh"


def job_names(root: Path = ROOT) -> list[str]:
    """The jobs of the repository; none if the package was installed without it."""
    return sorted(file.stem.removeprefix("run_") for file in (root / "jobs").glob("run_*.py"))


def launch_command(command: str, root: Path = ROOT) -> str:
    """The path of spark-submit.sh; ``command`` is the command that needs it, for errors.

    Raises:
        ConfigError: the package was installed without the repository.
    """
    launcher = root / _LAUNCHER
    if not launcher.is_file():
        raise ConfigError(
            f"`{command}` starts Spark with {_LAUNCHER} of quotaplane's repository, which is not "
            f"part of the package installed in {Path(__file__).parents[1]}: clone the repository "
            "and use its .venv/bin/quotaplane, or its ./spark-submit.sh"
        )
    return str(launcher)


def start(command: str, words: Sequence[str]) -> NoReturn:
    """Replace this process by the job, for ``quotaplane run``, ``demo`` and ``reshard``.

    The process is replaced, so signals reach the job and the exit code is the job's.

    Raises:
        ConfigError: the launcher is missing or can't be started.
    """
    launcher = launch_command(f"quotaplane {command}")
    job = [] if command == "run" else [command]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # a stream may be closed
            stream.flush()
    # Python ignores these signals, and a new program would inherit that.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(launcher, [launcher, *job, *(words or ([] if job else ["--help"]))])
    except OSError as error:
        raise ConfigError(f"{launcher} can't be started: {error.strerror}") from None
