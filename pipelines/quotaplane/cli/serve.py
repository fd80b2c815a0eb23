"""``quotaplane serve``: groups, attachments and their history over HTTP."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from quotaplane.cli.agent_process import stop_at_signal
from quotaplane.console.terminal import inform
from quotaplane.history.store import ensure_tables, require_history
from quotaplane.settings import Settings, load_settings

_EPILOG: Final = """\
The section `server` of the settings says where it listens, and who may do what
(docs/reference/rest.md). It prints a line when it is ready, and runs until SIGTERM or Ctrl-C, which
let requests under way finish; a second signal ends it at once.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("--conf", metavar="FILE", required=True, help="the jobs' settings")
    parser.add_argument(
        "--init", action="store_true", help="create the history's tables if there are none"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes.

    Raises:
        ConfigError: the settings are wrong, there is no history, or the address is in use.
        HistoryError: the history can't be reached.
    """
    settings = load_settings(args.conf)
    if args.init:
        ensure_tables(settings.history, say=inform)
    else:
        require_history(settings.history, "use --init to create it")
    asyncio.run(_serve(settings, str(Path(args.conf).absolute())))
    return 0


async def _serve(settings: Settings, conf: str) -> None:
    from quotaplane.server.listen import serve  # needs the extra server

    await serve(settings, conf, stop_at_signal())
