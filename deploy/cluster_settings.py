"""Check a settings file that a driver in cluster mode will read, and write what it lacks there.

Usage: cluster_settings.py SETTINGS [FILE]. FILE gets the variables that the settings use, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from quotaplane.console.command_output import exit_code_of
from quotaplane.console.terminal import write_line
from quotaplane.errors import ConfigError
from quotaplane.settings import DeltaTransport, load_settings, variables_of


def check(settings_file: str) -> None:
    """Check all that can be checked on this machine.

    Raises:
        ConfigError: a key is wrong, or names a folder that each machine has for itself.
    """
    settings = load_settings(settings_file)
    places = {"history.path": settings.history.path, "checkpoint": settings.checkpoint}
    if isinstance(settings.transport, DeltaTransport):
        places["transport.path"] = settings.transport.path
    for key, place in places.items():
        if "://" not in place:
            raise ConfigError(
                f"{settings_file}: {key}: {place!r} is another folder on each machine, and the "
                "driver may run on any: name a store (hdfs://..., s3a://...), or with file:// a "
                "folder that all machines share"
            )


def main(settings_file: str, secrets_file: str | None = None) -> None:
    """Check the settings; write the variables' values for no other user to read."""
    check(settings_file)
    if secrets_file is not None:
        Path(secrets_file).touch(mode=0o600)
        Path(secrets_file).write_text(json.dumps(variables_of(settings_file)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: main(*sys.argv[1:]), write_line))
