"""Many processes that change groups in a history on an object store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.settings import load_settings
from tests.job import environment
from tests.servers.s3_proxy import S3Proxy
from tests.servers.stores import conf_on, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

WRITER = """
import sys
from quotaplane.cli.main import main
codes = [main(["groups", "put", f"{sys.argv[1]}-{n}", "--conf", sys.argv[2]]) for n in range(100)]
sys.exit(sum(code != 0 for code in codes))
"""


def test_none_of_400_changes_by_four_writers_is_refused(store: S3Proxy, tmp_path: Path) -> None:
    conf = conf_on(store, tmp_path)
    assert main(["groups", "put", "first", "--init", "--conf", str(conf)]) == 0
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, f"w{number}", str(conf)],
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        for number in range(4)
    ]
    assert [writer.wait(1200) for writer in writers] == [0, 0, 0, 0]
    assert len(rows_of(load_settings(conf).history, "resource_groups", "resource_group")) == 401
