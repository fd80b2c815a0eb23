"""The quota job on YARN with HDFS: client and cluster mode, and what is killed meanwhile."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from quotaplane.settings import load_settings
from tests.job import RunningJob, put_quotas, write_conf
from tests.servers.kafka_server import SASL_PASSWORD, VERSION, KafkaServer
from tests.servers.outages import WANTED_S, WANTED_WITH_STANDBY_S, Outages
from tests.servers.reporting_brokers import SECTIONS, ReportingBrokers
from tests.servers.yarn_cluster import HADOOP, YarnCluster
from tests.spark.fixtures import ROOT, launcher_environment
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

OUTAGE_S = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with YarnCluster(tmp_path_factory.mktemp("yarn"), launcher_environment()) as running:
        yield running


@pytest.fixture(autouse=True)
def environment(cluster: YarnCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables by which programs find the cluster, and the secret of the settings."""
    for name, value in {**cluster.environment, "KAFKA_PASSWORD": SASL_PASSWORD}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a launcher that is killed leaves secrets there
    # drivers on this machine use this checkout; nothing else of it is shipped but the package
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "pipelines"))


class Job(RunningJob):
    """The quota job on the cluster, with history and checkpoint on its HDFS, and its brokers."""

    def __init__(
        self, cluster: YarnCluster, kafka: KafkaServer, folder: Path, *options: str, mode: str
    ) -> None:
        self.cluster, self.mode = cluster, mode
        mark = uuid.uuid4().hex[:8]
        self.root = f"/{mode}-{mark}"
        login = kafka.login()
        login["security"] = {**login["security"], "password": "${KAFKA_PASSWORD}"}
        topics = {
            "report_topics": [kafka.create_topic(f"usage-{mark}", partitions=2)],
            "limits_topic": kafka.create_topic(f"limits-{mark}"),
            "starting": "earliest",  # brokers report before the job is ready
        }
        conf = write_conf(
            folder,
            {"kind": "kafka", **login, **topics},
            history={"path": f"{cluster.hdfs}{self.root}/history"},
            checkpoint=f"{cluster.hdfs}{self.root}/checkpoint",
            **SECTIONS,
        )
        settings = load_settings(conf)
        put_quotas(settings, **{"tenant/ns": 90.0})
        self.brokers = ReportingBrokers(settings, "tenant/ns", a=80.0, b=80.0, c=80.0)
        file = spark_options(folder, cluster.options)
        where = ("--master", "yarn", "--deploy-mode", mode, "--properties-file", str(file))
        self.command_line = (conf, *where, *options)
        super().__init__(*self.command_line)

    def __enter__(self) -> Job:
        self.brokers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.brokers.__exit__(None, None, None)

    def printed(self) -> list[str]:
        """The job's own lines, wherever its driver runs."""
        if self.mode == "client":
            return super().printed()
        return self.cluster.printed().splitlines()

    def wait_until_fair(self) -> None:
        """Wait until each of the three brokers has a third of 90."""
        self.wait_until(lambda: self.brokers.share(30.0), within_s=250)

    def survives(
        self,
        outages: Outages,
        what: str,
        harm: Callable[[], object],
        *,
        wanted_s: float = WANTED_S,
    ) -> None:
        """After ``harm`` limits are published again, and no report is lost or counted twice."""
        outage = self.brokers.through(harm, self.wait_until)
        part = f"YARN, {self.mode} mode, history and checkpoint on HDFS"
        versions = f"Hadoop {HADOOP}, Kafka {VERSION}"
        outages.note(part, what, outage, versions=versions, wanted_s=wanted_s)

    def assert_private(self) -> None:
        """Only the job's user can read the checkpoint; the job says that the history is open."""
        modes = self.cluster.modes(f"{self.root}/checkpoint")
        assert len(modes) > 20
        assert not {name: mode for name, mode in modes.items() if mode[4:] != "------"}
        (line,) = {line for line in self.printed() if "can read the history" in line}
        assert line.endswith(f"hdfs dfs -chmod 700 {self.settings.history.path}")


def spark_options(folder: Path, options: Mapping[str, str]) -> Path:
    """A file for ``--properties-file``."""
    file = folder / "spark.conf"
    file.touch(mode=0o600)
    file.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
    return file


def away(cluster: YarnCluster) -> None:
    """HDFS without its data node for a while."""
    cluster.command("stop-data")
    time.sleep(OUTAGE_S)
    cluster.command("start-data")


def test_client_mode(
    cluster: YarnCluster, kafka_server: KafkaServer, outages: Outages, tmp_path: Path
) -> None:
    with Job(cluster, kafka_server, tmp_path / "job", mode="client") as job:
        job.wait_until_fair()
        job.survives(outages, "an executor killed", cluster.containers(master=False)[0].kill)
        job.survives(
            outages, "the application master killed", cluster.containers(master=True)[0].kill
        )
        job.stop()


def test_cluster_mode(
    cluster: YarnCluster, kafka_server: KafkaServer, outages: Outages, tmp_path: Path
) -> None:
    with Job(cluster, kafka_server, tmp_path / "job", mode="cluster") as job:
        job.wait_until_fair()
        (driver,) = cluster.containers(master=True)
        assert_secret(job, driver.folder)
        job.assert_private()
        job.survives(outages, "the driver killed", driver.kill)
        (again,) = cluster.containers(master=True)
        job.survives(outages, "HDFS without its only data node for 20 s", lambda: away(cluster))
        assert cluster.containers(master=True) == [again], "it goes on in its process"
        cluster.application("-kill", driver.application)
        job.process.wait(60)
        assert "stopping: SIGTERM; waiting for the current round to end" in job.printed()[-1]


def test_a_second_application_stands_by(
    cluster: YarnCluster, kafka_server: KafkaServer, outages: Outages, tmp_path: Path
) -> None:
    with Job(cluster, kafka_server, tmp_path / "job", "--standby", mode="cluster") as job:
        job.wait_until_fair()
        (leader,) = cluster.containers(master=True)
        before = sum("standby: warm" in line for line in job.printed())
        with RunningJob(*job.command_line) as second:
            second.wait_until(
                lambda: sum("standby: warm" in line for line in job.printed()) > before
            )
            job.survives(
                *(outages, "the leader's driver killed, a second application stands by"),
                leader.kill,
                wanted_s=WANTED_WITH_STANDBY_S,
            )
            for master in cluster.containers(master=True):
                cluster.application("-kill", master.application)
            second.process.wait(60)
        job.process.wait(60)


def test_the_node_of_the_driver_is_lost(
    cluster: YarnCluster, kafka_server: KafkaServer, outages: Outages, tmp_path: Path
) -> None:
    """The last test, as the node stays away."""
    with Job(cluster, kafka_server, tmp_path / "job", mode="cluster") as job:
        job.wait_until_fair()
        (driver,) = cluster.containers(master=True)

        def lose() -> None:
            cluster.command(f"stop-node {driver.node}")
            wait_until(lambda: not driver.pids(), 60.0)

        job.survives(outages, "the driver's node lost", lose)
        cluster.application("-kill", driver.application)
        job.process.wait(60)


def assert_secret(job: Job, folder: Path) -> None:
    """The password is in a private file of the containers, and nowhere else."""
    secrets = folder / "quotaplane-secrets.json"
    assert SASL_PASSWORD.encode()[-8:] in secrets.read_bytes()
    assert secrets.stat().st_mode & 0o077 == 0
    staged = job.cluster.modes("/user")
    (staging,) = {
        mode
        for name, mode in staged.items()
        if "/.sparkStaging/application_" in name and name.count("/") == 4
    }
    assert staging == "drwx------"
    shown = [*folder.glob("*.sh"), *job.cluster.logs(f"{folder.name}/*")]
    assert len(shown) > 3
    assert not [file for file in shown if SASL_PASSWORD in file.read_text(errors="replace")]
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _shows(int(pid))]


def _shows(pid: int) -> bool:
    try:
        return SASL_PASSWORD.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False
