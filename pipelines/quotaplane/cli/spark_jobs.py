"""``quotaplane run JOB``, ``demo``, ``reshard``, ``setup``: start jobs through spark-submit.sh.

The launcher is in the repository, or where pip puts the files of a package that are no modules.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from quotaplane.errors import ConfigError

_REPOSITORY: Final = Path(__file__).parents[3]
_INSTALLED: Final = Path(sysconfig.get_path("data"), "share", "quotaplane")
_LAUNCHER: Final = "spark-submit.sh"
ROOT: Final = _REPOSITORY if (_REPOSITORY / _LAUNCHER).is_file() else _INSTALLED
"""The folder of the launcher, ``jobs/``, ``conf/`` and ``deploy/``."""


def job_names(root: Path = ROOT) -> list[str]:
    """The jobs that the launcher has; none without one."""
    return sorted(file.stem.removeprefix("run_") for file in (root / "jobs").glob("run_*.py"))


def launch_command(command: str, root: Path = ROOT) -> str:
    """The path of spark-submit.sh; ``command`` is the command that needs it, for errors.

    Raises:
        ConfigError: it is neither in a repository nor where pip installs it.
    """
    launcher = root / _LAUNCHER
    if not launcher.is_file():
        raise ConfigError(
            f"`{command}` needs {launcher}, which pip installs: install quotaplane in a virtual "
            "environment, or use a clone of the repository"
        )
    return str(launcher)


def start(command: str, words: Sequence[str]) -> NoReturn:
    """Replace this process by the job, for ``run``, ``demo`` and ``reshard``, or by the set-up.

    The process is replaced, so signals reach the job and the exit code is the job's.

    Raises:
        ConfigError: the launcher is missing or can't be started.
    """
    launcher = launch_command(f"quotaplane {command}")
    job = {"run": [], "setup": ["--setup"]}.get(command, [command])
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
