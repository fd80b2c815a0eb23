"""Podman with images and containers of its own, for root.

    with Podman(tmp_path) as podman:
        podman.make_image()
        podman("run", "--rm", IMAGE, "--version")

The images are kept in the user's cache. Debian's base is made by debootstrap: no registry is asked.
It needs Debian's packages podman, buildah, runc, catatonit and debootstrap.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import yaml

from tests.servers.tools import made_once

ROOT: Final = Path(__file__).parents[2]
IMAGE: Final = "localhost/quotaplane:test"
BASE: Final = "localhost/debian:bookworm-slim"
AUTHORITIES: Final = "/usr/local/share/ca-certificates"
"""Certificates of this host's own authorities, such as a proxy's."""

_MOST: Final = 20_000
"""Podman gives up part of its own right to processes before it starts a container."""


def missing() -> str:
    """Programs and rights that podman needs here and lacks; empty: none."""
    programs = ("podman", "buildah", "runc", "debootstrap")
    lacks = [name for name in programs if shutil.which(name) is None]
    return " ".join(lacks) or ("" if os.geteuid() == 0 else "root")


class Podman:
    """``podman(...)`` runs a command and returns what it printed.

    Args:
        folder: of what does not stay.
    """

    def __init__(self, folder: Path) -> None:
        kept = made_once("podman", "images", lambda folder: folder.mkdir())
        # podman would raise these, which not every root may
        ours = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
        most = {name: resource.getrlimit(of)[1] % (1 << 63) for name, of in ours.items()}  # -1: any
        limits = ["{0}={1}:{1}".format(name, min(value, _MOST)) for name, value in most.items()]
        lines = ["[containers]", f"default_ulimits = {json.dumps(limits)}", "pids_limit = 0"]
        self._conf = folder / "containers.conf"
        self._conf.write_text("\n".join(lines) + "\n")
        self._command = [
            *("podman", "--root", str(kept / "root"), "--runroot", str(kept / "run")),
            *("--tmpdir", str(kept / "tmp"), "--runtime", "runc"),
            *("--events-backend=file", "--cgroup-manager=cgroupfs"),
        ]

    def __enter__(self) -> Podman:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove_pods()
        self("secret", "rm", "--all")

    def remove_pods(self) -> None:
        """Remove all pods, containers and volumes."""
        self("pod", "rm", "--all", "--force", "--time", "0")
        self("rm", "--all", "--force", "--time", "0")
        self("volume", "prune", "--force")

    def __call__(self, *words: str, stdin: str = "", errors: int = subprocess.PIPE) -> str:
        """Run a command of podman; ``errors`` is where its standard error goes.

        Raises:
            RuntimeError: it failed; has what it printed.
        """
        done = subprocess.run(
            [*self._command, *words],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "CONTAINERS_CONF": str(self._conf)},
        )
        if done.returncode != 0:
            printed = (done.stdout + (done.stderr or ""))[-4000:]
            raise RuntimeError(f"podman {' '.join(words)} ended with {done.returncode}:\n{printed}")
        return done.stdout

    def make_image(self) -> None:
        """Build ``IMAGE`` from this repository; steps whose files did not change are kept."""
        self._make_base()
        self(
            *("build", "--layers", "--network", "host", "--isolation", "oci", "--quiet"),
            *("--volume", f"{AUTHORITIES}:{AUTHORITIES}:ro"),
            *("--env", "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"),
            *("--build-arg", f"BASE={BASE}", "--file", str(ROOT / "deploy/Containerfile")),
            *("--tag", IMAGE, str(ROOT)),
        )

    def _make_base(self) -> None:
        if self("images", "--quiet", BASE):
            return
        folder = self._conf.parent / "base"
        make = ["debootstrap", "--variant=minbase", "bookworm", str(folder)]
        subprocess.run(make, check=True, capture_output=True)
        for left_out in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
            shutil.rmtree(folder / left_out)
        packed = self._conf.parent / "base.tar"
        subprocess.run(
            ["tar", "--create", "--file", packed, "--directory", folder, "."], check=True
        )
        # an image imported has no PATH, which runc needs for its programs
        self("import", "--change", "ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin", str(packed), BASE)
        shutil.rmtree(folder)
        packed.unlink()

    def put_secret(self, name: str, **values: str) -> None:
        """A Secret for variables of pods; podman 4.3 can't read one from the same file."""
        data = {key: b64encode(value.encode()).decode() for key, value in values.items()}
        self("secret", "create", name, "-", stdin=json.dumps(data))

    def play(self, documents: list[dict[str, Any]]) -> None:
        """Make pods and what they need, with this host's network."""
        self("kube", "play", "--network", "host", "-", stdin=yaml.safe_dump_all(documents))

    def said(self, container: str) -> str:
        """All that a container has printed."""
        return self("logs", container, errors=subprocess.STDOUT)

    def state(self, container: str, field: str) -> str:
        """A field of ``podman inspect``."""
        return self("inspect", container, "--format", f"{{{{.{field}}}}}").strip()


def as_pod(document: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """A pod of a StatefulSet or Deployment, as podman can play it.

    Podman has no use for names of ports and runs probes with curl in the container; the pods of one
    host's network need no ports.
    """
    template = document["spec"]["template"]
    spec = {**template["spec"], "restartPolicy": "Always"}
    left_out = ("ports", "startupProbe", "livenessProbe", "readinessProbe")
    (container,) = spec["containers"]
    kept = {key: value for key, value in container.items() if key not in left_out}
    name = f"{document['metadata']['name']}-{number}"
    metadata = {**template["metadata"], "name": name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "containers": [kept]},
    }
