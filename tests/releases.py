"""Topics, history and checkpoint that a release's quota job leaves, kept for later releases.

    python -m tests.releases      # before a release: records this version in tests/data

``tests/spark/test_releases.py`` goes on with it.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final

from quotaplane import __version__
from quotaplane.settings import Settings, load_settings
from quotaplane.transport import open_broker_link
from tests.job import ROOT, RunningJob, history_table, put_quotas, report_of, write_conf

DATA: Final = ROOT / "tests" / "data"
RELEASES: Final = ("0.1.0",)
"""Recorded ones."""
QUOTA: Final = 90.0
BROKERS: Final = ("b1", "b2", "b3")
ROUNDS: Final = 4
_PARTS: Final = ("topics", "history", "checkpoint")
_WITH_A_PATH: Final = "checkpoint/state/0/_metadata/v2/0"
"""Spark's file that has the checkpoint's path, from which it was recorded."""
_RECORDED_IN: Final = "/recorded-in"


def archive_of(version: str) -> Path:
    """The archive of a release."""
    return DATA / f"release-{version}.tar.xz"


def send_reports(settings: Settings, sequence: int) -> None:
    """A report of each broker: it wants 80 of the quota of 90."""
    link = open_broker_link(settings.transport)
    now_ms = time.time_ns() // 1_000_000
    reports = [
        (broker, report_of(broker, 80.0, sequence=sequence, started_at_ms=1), now_ms)
        for broker in BROKERS
    ]
    link.send_reports(reports)
    link.close()


def unpack(version: str, folder: Path) -> Settings:
    """Put what a release left into a folder; its settings."""
    with tarfile.open(archive_of(version)) as archive:
        archive.extractall(folder, filter="data")
    replace_path(folder, _RECORDED_IN, str(folder))
    return load_settings(write_conf(folder))


def replace_path(folder: Path, old: str, new: str) -> None:
    """Let the checkpoint in a folder be one that was made elsewhere."""
    file = folder / _WITH_A_PATH
    file.write_text(file.read_text("utf-8").replace(old, new), "utf-8")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def without_reserves(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out the disk space that is kept for a full disk."""
    return None if "/.reserve-" in info.name else info


def record(folder: Path) -> None:
    """Run a job for some rounds, and pack what it leaves."""
    conf = write_conf(folder)
    settings = load_settings(conf)
    put_quotas(settings, g=QUOTA)
    with RunningJob(conf) as job:
        for sequence in range(1, 100):
            if job.rounds() >= ROUNDS:
                break
            send_reports(settings, sequence)
            time.sleep(2.0)
        job.stop()
    assert len(history_table(settings, "limits")) >= len(BROKERS)
    replace_path(folder, str(folder), _RECORDED_IN)
    DATA.mkdir(exist_ok=True)
    with tarfile.open(archive_of(__version__), "w:xz") as archive:
        for part in _PARTS:
            archive.add(folder / part, part, filter=without_reserves)


def main() -> int:
    """Record this version; prints the archive's size."""
    folder = Path(tempfile.mkdtemp(prefix="quotaplane-release-"))
    try:
        record(folder)
    finally:
        shutil.rmtree(folder)
    archive = archive_of(__version__)
    print(f"{archive}: {archive.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
