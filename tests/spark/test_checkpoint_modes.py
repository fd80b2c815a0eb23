"""A checkpoint has what the brokers reported: the umask says who may read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quotaplane.files import VARIABLE
from tests.job import RunningJob, put_quotas, write_conf
from tests.unit.repo.test_file_modes import modes

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(("umask", "rights"), [("077", {0}), ("027", {0o040, 0o050})])
def test_the_files_of_a_checkpoint_follow_the_umask(
    tmp_path: Path, umask: str, rights: set[int]
) -> None:
    conf = write_conf(tmp_path, {"kind": "delta", "path": str(tmp_path / "topics")})
    with RunningJob(conf, variables={**os.environ, VARIABLE: umask}) as job:
        put_quotas(job.settings, g=100.0)
        checkpoint = Path(job.settings.checkpoint)
        job.wait_until(lambda: len(list(checkpoint.glob("commits/[0-9]*"))) > 1)
    assert modes(checkpoint) <= rights
