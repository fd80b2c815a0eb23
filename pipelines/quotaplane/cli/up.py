"""``quotaplane up``: the quota job, the enforcer and the server of one settings file, together."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from quotaplane.agents.supervisor import USUAL, Ended, Part, Supervisor
from quotaplane.cli.spark_jobs import launch_command
from quotaplane.errors import (
    ConfigError,
    DeposedError,
    FailedBatchError,
    OutputError,
    QuotaplaneError,
)
from quotaplane.settings import PulsarTransport, Settings, load_settings

_FINAL: Final[dict[int, type[QuotaplaneError]]] = {
    error.exit_code: error for error in (ConfigError, FailedBatchError, DeposedError)
}
"""Exit codes after which a part is not restarted, as it would end in the same way."""

_EPILOG: Final = """\
Parts: quota (the quota job); enforce (the enforcer, with transport.kind pulsar and its admin_url);
serve (the server, with a section server). What a part prints has its name in front. A part that
ends is started again, after FIRST s, and after longer and longer while it ends soon, up to LONGEST
s. To restart one alone, send SIGTERM to its process, which its first line names. A part that ends
with one of the exit codes FINAL ends all.

Ctrl-C and SIGTERM end the parts in the reverse order. Each may take STOP s, and is then killed
(exit code 1). A second Ctrl-C kills all at once. This is for a first day, and for trying things: in
production let a supervisor such as systemd run each part (docs/operate/deploy.md).
"""
_NUMBERS: Final = {
    "FIRST": f"{USUAL.first_wait_s:g}",
    "LONGEST": f"{USUAL.longest_wait_s:g}",
    "FINAL": ", ".join(map(str, _FINAL)),
    "STOP": f"{USUAL.stop_within_s:g}",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = re.sub("|".join(_NUMBERS), lambda found: _NUMBERS[found[0]], _EPILOG)
    parser.add_argument("--conf", metavar="FILE", required=True, help="the settings of all parts")


def run(args: argparse.Namespace) -> int:
    """Run all parts until a signal comes.

    Raises:
        ConfigError: the settings are wrong, for a part as well; nothing was started, or all ended.
        FailedBatchError: a batch of the quota job failed too often.
    """
    settings = load_settings(args.conf)
    return asyncio.run(_supervise(list(parts(settings, args.conf))))


def parts(settings: Settings, conf: str) -> Iterator[Part]:
    """The parts of a settings file, in the order of their start.

    Raises:
        ConfigError: the launcher of the job is missing.
    """
    place = ("--conf", str(Path(conf).absolute()))
    command = (sys.executable, "-m", "quotaplane")
    yield Part("quota", (launch_command("quotaplane up"), "quota", *place))
    transport = settings.transport
    if isinstance(transport, PulsarTransport) and transport.admin_url is not None:
        yield Part("enforce", (*command, "enforce", "pulsar", *place))
    if settings.server is not None:
        # The job, which creates the tables, takes longer to start.
        yield Part("serve", (*command, "serve", "--init", *place))


async def _supervise(chosen: list[Part]) -> int:
    stop, kill = _signals()
    supervisor = Supervisor(chosen, _FINAL, _write)
    final = await supervisor.run(stop, kill)
    if final is not None:
        raise _error_of(final)
    return 1 if supervisor.killed else 0


def _error_of(final: Ended) -> QuotaplaneError:
    line = final.last_line.removeprefix("quotaplane: error: ")
    return _FINAL[final.code](f"{final.part}: {line or f'ended with exit code {final.code}'}")


def _signals() -> tuple[asyncio.Event, asyncio.Event]:
    """Events that a first and a second SIGTERM or Ctrl-C set."""
    stop, kill = asyncio.Event(), asyncio.Event()

    def stopping() -> None:
        (kill if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping)
    return stop, kill


def _write(stream: IO[str], line: str) -> None:
    """Write a part's line; if that fails, the parts continue, and the exit code shows it."""
    with contextlib.suppress(OutputError, OSError):
        stream.write(line)
        stream.flush()
