"""The worker daemon's path cleaning; what it does to real workers is in tests/spark."""

from __future__ import annotations

import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from quotaplane.streams.daemon import PRELOADED, answering_at_once, preload, without_archives

JAR = "/opt/spark/jars/spark-core_2.13-4.0.5.jar"
VERSION = '__version__: str = "4.0.5"\n'


@pytest.fixture
def spark_zips(tmp_path: Path) -> list[str]:
    """``pyspark.zip`` and py4j's, as Spark puts them on the path."""
    pyspark, py4j = tmp_path / "pyspark.zip", tmp_path / "py4j-0.10.9.9-src.zip"
    with zipfile.ZipFile(pyspark, "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
        archive.writestr("pyspark/version.py", VERSION)
    with zipfile.ZipFile(py4j, "w") as archive:
        archive.writestr("py4j/__init__.py", "")
    return [str(pyspark), str(py4j)]


def site_packages(folder: Path, version: str, *packages: str) -> str:
    for package in packages:
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
        (folder / package / "version.py").write_text(version)
    return str(folder)


def test_what_is_in_a_folder_too_is_taken_from_there(tmp_path: Path, spark_zips: list[str]) -> None:
    site = site_packages(tmp_path / "site", VERSION, "pyspark", "py4j")
    path = ["", *spark_zips, JAR, "/app/quotaplane.zip", site]
    assert without_archives(path) == ["", "/app/quotaplane.zip", site]


def test_another_release_of_spark_is_not_mixed_in(tmp_path: Path, spark_zips: list[str]) -> None:
    site = site_packages(tmp_path / "site", VERSION.replace("5", "6"), "pyspark", "py4j")
    assert without_archives([*spark_zips, JAR, site]) == [*spark_zips, site]


@pytest.mark.parametrize("packages", [[], ["pyspark"], ["py4j"]])
def test_the_only_copy_stays(tmp_path: Path, spark_zips: list[str], packages: list[str]) -> None:
    site = site_packages(tmp_path / "site", VERSION, *packages)
    assert without_archives([*spark_zips, JAR, site]) == [*spark_zips, site]


def test_a_damaged_archive_stays(tmp_path: Path, spark_zips: list[str]) -> None:
    Path(spark_zips[0]).write_bytes(b"PK\x03\x04 and no more")
    site = site_packages(tmp_path / "site", VERSION, "pyspark", "py4j")
    assert without_archives([*spark_zips, site]) == [*spark_zips, site]


def test_everything_that_is_preloaded_exists() -> None:
    assert preload() == []
    assert preload(["json", "quotaplane.no_such_module"]) == ["quotaplane.no_such_module"]
    assert len(PRELOADED) > 3


def test_importing_the_daemon_imports_no_pyspark() -> None:
    """Else it would come from the archive that is still on the path then."""
    code = "import sys, quotaplane.streams.daemon; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert done.stdout == b"False\n"


def test_workers_do_not_look_for_garbage_in_what_is_imported() -> None:
    """PySpark lets them collect garbage after each task."""
    code = """
import gc, sys, types
from quotaplane.streams import daemon
manager = lambda: print(gc.get_freeze_count() > 50_000, len(gc.get_objects()) < 1_000)
sys.modules["pyspark.daemon"] = types.SimpleNamespace(manager=manager, worker=None)
daemon.main()
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert done.stdout == b"True True\n"


def test_a_tasks_packets_are_acknowledged_at_once_whatever_the_socket() -> None:
    def run(sock: socket.socket, authenticated: bool) -> int:
        at_once = [socket.TCP_NODELAY, *([socket.TCP_QUICKACK] if sys.platform == "linux" else [])]
        if sock.family == socket.AF_INET:
            assert all(sock.getsockopt(socket.IPPROTO_TCP, option) for option in at_once)
        return 7 if authenticated else 8

    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with client, accepted:
            assert answering_at_once(run)(accepted, True) == 7
    one, other = socket.socketpair()
    with one, other:
        assert answering_at_once(run)(one, False) == 8
