"""A job on a machine of a Hadoop cluster, where Hadoop's default file system is another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.settings import load_settings
from quotaplane.transport import open_broker_link
from tests.job import RunningJob, put_quotas, report_of, write_conf

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

CORE_SITE = """<configuration><property>
<name>fs.defaultFS</name><value>hdfs://127.0.0.1:9</value>
</property></configuration>
"""


@pytest.mark.parametrize("name", ["job", "my job"])
def test_plain_paths_are_of_this_machine(tmp_path: Path, name: str) -> None:
    """Nothing answers at the default file system, so each path that is resolved by it fails."""
    hadoop, disk = tmp_path / "hadoop", tmp_path / "a disk"
    hadoop.mkdir()
    (hadoop / "core-site.xml").write_text(CORE_SITE, "utf-8")
    disk.mkdir()
    (tmp_path / "link").symlink_to(disk)
    conf = write_conf(tmp_path / "link" / name)
    settings = load_settings(conf)
    put_quotas(settings, g=90.0)
    link = open_broker_link(settings.transport, limits_from="earliest")
    link.send_reports([("b1", report_of("b1", 80.0), 1)])
    with RunningJob(conf, variables={"HADOOP_CONF_DIR": str(hadoop)}) as job:
        job.wait_until(lambda: link.poll_limits().messages or job.rounds())
        job.stop()
    assert (disk / name / "checkpoint" / "offsets" / "0").is_file()
