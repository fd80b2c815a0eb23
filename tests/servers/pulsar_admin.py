"""Runs ``pulsar-admin`` of the stock distribution, unchanged."""

from __future__ import annotations

import os
import subprocess

from tests.servers.pulsar_roles import pulsar_home

_JVM = {"PULSAR_MEM": "-Xmx128m", "PULSAR_EXTRA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def pulsar_admin(url: str, token: str, *words: str) -> str:
    """Run a command of a REST API with a token's rights; returns what it prints.

    Raises:
        RuntimeError: it failed; has what it printed.
    """
    plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    command = [pulsar_home() / "bin" / "pulsar-admin", "--admin-url", url]
    command += ["--auth-plugin", plugin, "--auth-params", f"token:{token}"]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=180, env={**os.environ, **_JVM}
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()
