"""Spark's log file: where it is, how large it gets, which of its lines are printed."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.console.terminal import log_to_stderr
from quotaplane.errors import ConfigError
from quotaplane.streams.spark_log import SparkLog, log_places, open_log


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "spark.log"


def all_of(path: Path) -> list[Path]:
    return sorted(path.parent.iterdir())


def test_the_log_is_beside_the_checkpoint_or_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUOTAPLANE_LOG_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.chdir(tmp_path)

    def places(job: str, checkpoint: str) -> list[str]:
        return [str(path) for path in log_places(job, checkpoint)]

    assert places("quota", "data/checkpoint/") == [
        f"{tmp_path}/data/checkpoint-logs/quota-spark.log",
        "/cache/quotaplane/logs/data_checkpoint_/quota-spark.log",
    ]
    assert places("quota", "file:///data/c")[0] == "/data/c-logs/quota-spark.log"
    assert places("balance", "s3a://bucket/a b") == [
        "/cache/quotaplane/logs/s3a_bucket_a_b/balance-spark.log"
    ]
    monkeypatch.setenv("QUOTAPLANE_LOG_DIR", "/var/log/quotaplane")
    assert places("quota", "s3a://bucket") == ["/var/log/quotaplane/quota-spark.log"]


def test_a_place_that_cannot_be_written_is_left_for_the_cache_unless_it_was_asked_for(
    tmp_path: Path, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.delenv("QUOTAPLANE_LOG_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/cache")
    log = open_log("quota", f"{tmp_path}/file/checkpoint", Conditions(warned.append))
    assert Path(log.place).is_relative_to(tmp_path / "cache")
    monkeypatch.setenv("QUOTAPLANE_LOG_DIR", f"{tmp_path}/file")
    with pytest.raises(ConfigError, match=r"spark.log: Spark's log can't be written: .*LOG_DIR"):
        open_log("quota", f"{tmp_path}/checkpoint", Conditions(warned.append))


def test_the_log_is_of_bounded_size(path: Path, warned: list[str]) -> None:
    log = SparkLog(path, Conditions(warned.append), max_bytes=1000, kept=2)
    for number in range(500):
        log.write(b"%03d%s\n" % (number, b"x" * 90))
    log.write(b"y" * 5000)
    assert [file.name for file in all_of(path)] == ["spark.log", "spark.log.1", "spark.log.2"]
    assert max(file.stat().st_size for file in all_of(path)) <= 1000
    assert path.read_bytes() == b"y" * 1000
    assert all_of(path)[1].read_bytes().startswith(b"490")  # the newest of what was before
    assert warned == []


def test_a_log_is_gone_on_with(path: Path, warned: list[str]) -> None:
    SparkLog(path, Conditions(warned.append), max_bytes=10).write(b"one\n")
    log = SparkLog(path, Conditions(warned.append), max_bytes=10)
    log.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"
    log.write(b"three\n")
    assert path.read_bytes() == b"three\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_a_full_disk_stops_nothing_and_is_told_once(path: Path, warned: list[str]) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    log = SparkLog(path, Conditions(warned.append))
    for _ in range(3):
        log.write(b"x")
    (line,) = warned
    assert line.startswith(f"log of Spark: {path} can't be written: No space left on device")


def test_what_is_printed_goes_to_the_log_and_our_warnings_are_told(
    path: Path, warned: list[str]
) -> None:
    log = SparkLog(path, Conditions(warned.append))
    thread_end = log.collect()
    printed = [
        b"WARN one\nquotaplane: warn",
        b"ing: topic 'a' is gone\n  quotaplane: warning: no\n",
    ]
    for data in printed:
        os.write(thread_end, data)
    os.write(thread_end, b"the last words")
    os.close(thread_end)
    log.wait_for_end()
    assert path.read_bytes() == b"".join(printed) + b"the last words"
    assert warned == ["topic 'a' is gone"]
    assert log.last_line() == "the last words"


def test_python_libraries_log_to_the_file_and_our_modules_warn(
    path: Path, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    monkeypatch.setattr(logging, "captureWarnings", lambda on: None)
    log = SparkLog(path, Conditions(warned.append))
    log.take_python_logs()
    logging.getLogger("py4j").error("Exception while sending command.")
    logging.getLogger("py4j").info("no news")
    logging.getLogger("kafka").warning("%d is no text", "x")
    logging.getLogger("quotaplane.pulsar").warning("topic %s is silent", "a")
    text = path.read_text()
    assert "ERROR py4j: Exception while sending command." in text
    assert "no news" not in text
    assert warned == ["topic a is silent"]


def test_what_python_prints_can_go_to_the_log(path: Path, warned: list[str]) -> None:
    log = SparkLog(path, Conditions(warned.append))
    print("Traceback \udcff", file=log.as_text())
    assert path.read_text() == "Traceback ?\n"


def test_a_worker_warns_in_the_form_that_is_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("quotaplane")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", False)  # pytest has handlers of its own
    for _ in range(2):
        log_to_stderr()
    logging.getLogger("quotaplane.pulsar.reader").warning("topic %r is gone", "a")
    assert capfd.readouterr().err == "quotaplane: warning: topic 'a' is gone\n"


def test_in_cluster_mode_the_log_is_on_stderr_and_needs_no_folder(
    tmp_path: Path,
    warned: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, f"{tmp_path}/file")  # nothing can be made there, even by root
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    log = open_log("quota", "hdfs://h/checkpoint", Conditions(warned.append))
    log.write(b"Spark says\n")
    assert capfd.readouterr().err == "Spark says\n"
    assert log.place == "in this output"
    assert log.last_line() == ""
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
