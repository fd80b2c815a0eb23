"""Check what a driver in cluster mode will read, before it is sent, and write what it lacks there.

Usage: cluster_check.py SETTINGS SECRETS SCRIPT OPTION... The file SECRETS (if it is not empty) gets
the variables that the settings use, as JSON.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from quotaplane.console.command_output import exit_code_of
from quotaplane.console.terminal import write_line
from quotaplane.errors import ConfigError
from quotaplane.settings import DeltaTransport, as_written, load_settings


def check_settings(settings_file: str) -> dict[str, str]:
    """Check all that can be checked on this machine; returns the variables that are used.

    Raises:
        ConfigError: a key is wrong, or names a folder that each machine has for itself.
    """
    settings = load_settings(settings_file)
    written, variables = as_written(settings_file)
    places = {"history.path": settings.history.path, "checkpoint": settings.checkpoint}
    if isinstance(settings.transport, DeltaTransport):
        places["transport.path"] = settings.transport.path
    for key, place in places.items():
        # Settings make a path of file://, so the words of the file are looked at.
        words = reduce(lambda part, name: part.get(name, {}), key.split("."), written)
        if "://" not in str(words or place):
            raise ConfigError(
                f"{settings_file}: {key}: {place!r} is another folder on each machine, and the "
                "driver may run on any: name a store (hdfs://..., s3a://...), or with file:// a "
                "folder that all machines share"
            )
    return variables


def check_options(script: str, options: Sequence[str]) -> None:
    """End as the job would if its options are wrong; scripts of others check their own."""
    parser = runpy.run_path(script).get("parser")
    if parser is not None:
        parser().parse_args(options)


def main(settings_file: str, secrets_file: str, script: str, *options: str) -> None:
    """Check all; write the variables' values for no other user to read."""
    check_options(script, options)
    variables = check_settings(settings_file)
    if secrets_file:
        Path(secrets_file).touch(mode=0o600)
        Path(secrets_file).write_text(json.dumps(variables), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_code_of(lambda: main(*sys.argv[1:]), write_line))
