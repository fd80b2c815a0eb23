"""The process from which Spark forks its Python workers (``spark.python.daemon.module``).

Stock PySpark puts spark-core's jar, ``pyspark.zip`` and py4j's zip on each worker's ``sys.path``
and calls ``importlib.invalidate_caches()`` before each task. Python (3.10 to 3.12) then reads the
directory of each archive again, once per package ever imported from it: 0.1 to 0.25 s per task.
This module takes the archives off the path, imports PySpark from pip's folder instead, and imports
the libraries that every task needs once, before the fork.
"""

from __future__ import annotations

import gc
import importlib
import socket
import sys
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

PRELOADED: Final = (
    "numpy",
    "pandas",
    "pyarrow",
    "quotaplane.streams.operator",
    "quotaplane.streams.quota.program",
    "quotaplane.wire.reports",
)
"""Imported before the fork, so that no worker spends time on it."""


def without_archives(path: Sequence[str]) -> list[str]:
    """``sys.path`` without jars, and without zips whose content is also in a folder of the path.

    Jars contain no Python. A zip with PySpark or py4j is removed only if a folder of ``path`` has
    exactly the same PySpark: on a cluster Spark may be another patch release than the environment
    that was shipped, and then the JVM needs its own Python side. All other zips stay
    (``--py-files``).

    >>> without_archives(["/opt/spark/jars/spark-core_2.13-4.0.5.jar", "/app/quotaplane.zip"])
    ['/app/quotaplane.zip']
    """
    without_jars = [entry for entry in path if not entry.endswith(".jar")]
    zips = [entry for entry in without_jars if Path(entry).name == "pyspark.zip"]
    bare = [entry for entry in without_jars if not _is_spark_zip(entry)]
    if not zips or PathFinder.find_spec("py4j", bare) is None:
        return without_jars
    spec = PathFinder.find_spec("pyspark", bare)
    if spec is None or spec.origin is None:
        return without_jars
    in_folder = Path(spec.origin).with_name("version.py")
    try:
        with zipfile.ZipFile(zips[0]) as archive:
            same = archive.read("pyspark/version.py") == in_folder.read_bytes()
    except (OSError, KeyError, zipfile.BadZipFile):
        return without_jars
    return bare if same else without_jars


def _is_spark_zip(entry: str) -> bool:
    name = Path(entry).name
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


def preload(modules: Sequence[str] = PRELOADED) -> list[str]:
    """Import ``modules``; returns the names of those that are missing.

    A missing module is no error here: the task that needs it fails with a message to the driver.
    """
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def main() -> None:
    """Clean the path, import, then do what ``python -m pyspark.daemon`` does."""
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()
    preload()
    pyspark_daemon: Any = importlib.import_module("pyspark.daemon")
    pyspark_daemon.worker = answering_at_once(pyspark_daemon.worker)
    # Importers of archives that stay on the path were created by the imports above.
    for entry in [key for key in sys.path_importer_cache if ".zip" in key or ".jar" in key]:
        del sys.path_importer_cache[entry]
    # A worker collects garbage after each task, which took 0.05 s to look at all that is imported.
    gc.collect()
    gc.freeze()
    pyspark_daemon.manager()


def answering_at_once(
    run: Callable[[socket.socket, bool], int],
) -> Callable[[socket.socket, bool], int]:
    """PySpark's function that runs a worker's next task, without waiting for the network.

    A task's input comes in several small packets. The JVM holds each back until the one before is
    acknowledged, which Linux puts off by up to 40 ms, in case that there is an answer.
    """

    def run_task(sock: socket.socket, authenticated: bool) -> int:
        if sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):  # Linux; it holds until the next answer
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return run(sock, authenticated)

    return run_task


if __name__ == "__main__":
    main()
