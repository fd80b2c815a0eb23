"""An object store on loopback that speaks S3: S3Proxy, which keeps objects as files.

Its jar is fetched from Maven once (53 MB, kept in the user's cache). It starts in about 5 s. With
conditional puts, as Amazon has them.

    with S3Proxy(Path("/some/empty/folder")) as store:
        History(path=store.place("history"), storage_options=store.options())
"""

from __future__ import annotations

import http.client
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.servers.tools import LoggedProcess, fetched_once, free_ports, ivy_retrieve, java

JARS: Final = Path(__file__).parents[2] / "deploy" / "s3-server-jars.xml"
VERSION: Final = re.findall(r'name="s3proxy" rev="(\S+?)"', JARS.read_text())[0]
KEY: Final = "quotaplane"
SECRET: Final = "a secret of tests"
BUCKET: Final = "bucket"
_CONF: Final = """\
s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}/objects
"""


class S3Proxy(LoggedProcess):
    """One server. ``stop`` and ``start`` again keep its objects and its port."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._conf = folder / "s3proxy.conf"
        self.objects = folder / "objects" / BUCKET
        """The folder of the bucket's objects, as files."""
        self.objects.mkdir(parents=True, exist_ok=True)
        self._conf.write_text(
            _CONF.format(port=self.port, key=KEY, secret=SECRET, folder=folder), "utf-8"
        )
        command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += ["-jar", str(s3_jar()), "--properties", str(self._conf)]
        super().__init__("S3Proxy", folder / "s3proxy.log", command)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        super().start()
        self.wait_until(self._answers)

    def _answers(self) -> bool:
        with suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            try:
                connection.request("GET", "/")
                return connection.getresponse().status > 0
            finally:
                connection.close()
        return False

    @staticmethod
    def place(name: str, scheme: str = "s3") -> str:
        """The URI of a folder."""
        return f"{scheme}://{BUCKET}/{name}"

    def options(self, port: int | None = None, **more: str) -> dict[str, str]:
        """``history.storage_options``; ``port``: of a proxy before it."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            **more,
        }


def s3_jar() -> Path:
    def fetch(folder: Path) -> None:
        ivy_retrieve(JARS, ["jar"], f"{folder}/[artifact].[ext]")

    return fetched_once("s3-server", JARS, fetch) / "s3proxy.jar"
