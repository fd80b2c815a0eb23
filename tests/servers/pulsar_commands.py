"""Runs ``pulsar-admin`` of the stock distribution, as written in docs/operate/pulsar.md."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers.pulsar_roles import pulsar_home
from tests.servers.pulsar_server import PulsarServer


def run_pulsar_admin(server: PulsarServer, folder: Path, words: Sequence[str]) -> str:
    """Run a command with the rights of the server's admin; returns what it prints.

    Raises:
        RuntimeError: it failed; has what it printed.
    """
    conf = folder / "client.conf"
    plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
    lines = {
        "webServiceUrl": server.admin_url,
        "brokerServiceUrl": server.service_url,
        "authPlugin": plugin,
        "authParams": f"token:{server.admin_token}",
    }
    conf.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    done = subprocess.run(
        [pulsar_home() / "bin" / words[0], *words[1:]],
        env={**os.environ, "PULSAR_CLIENT_CONF": str(conf), "PULSAR_MEM": "-Xmx128m"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}:\n{done.stdout}{done.stderr}")
    return done.stdout
