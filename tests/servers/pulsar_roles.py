"""Runs ZooKeeper, bookies and brokers of the stock Pulsar distribution on loopback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.servers.jvm import SHORT_LIVED
from tests.servers.tools import LoggedProcess, fetched_once, ivy_retrieve, run

DISTRIBUTION: Final = Path(__file__).parents[2] / "deploy" / "pulsar-server.xml"
CLUSTER: Final = "quotaplane"
"""A cluster's name, in its own metadata."""
TRANSPORT: Final = "org.apache.pulsar.broker.resourcegroup.ResourceUsageTopicTransportManager"

_MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
_MAX_FRAME_BYTES: Final = _MAX_MESSAGE_BYTES + 1024 * 1024


def pulsar_home() -> Path:
    """The folder of the distribution; the first call on this machine fetches it (240 MB).

    Raises:
        RuntimeError: it could not be fetched; has the resolver's message.
    """

    def fetch(home: Path) -> None:
        scratch = home.parent
        # A temporary cache, as the user's own would keep the archive.
        cache = ["-cache", f"{scratch}/ivy"]
        ivy_retrieve(DISTRIBUTION, ["tar.gz"], f"{scratch}/fetched/[artifact].[ext]", *cache)
        (archive,) = (scratch / "fetched").iterdir()
        home.mkdir()
        unpack = ["tar", "-xzf", str(archive), "-C", str(home), "--strip-components=1"]
        run("unpacking Pulsar", unpack)

    return fetched_once("pulsar-server", DISTRIBUTION, fetch)


class Role(LoggedProcess):
    """A process: ``zookeeper``, ``bookie`` or ``broker``, as ``bin/pulsar`` names them."""

    def __init__(self, folder: Path, name: str, heap_mb: int, conf: Path, *options: str) -> None:
        conf_names = {"zookeeper": "ZK", "bookie": "BOOKKEEPER", "broker": "BROKER"}
        environment = _environment(folder, heap_mb)
        environment[f"PULSAR_{conf_names[name]}_CONF"] = str(conf)
        command = [str(pulsar_home() / "bin" / "pulsar"), name, *options]
        super().__init__(f"Pulsar's {name}", folder / f"{conf.stem}.log", command, env=environment)


def initialize_metadata(
    folder: Path, metadata: str, web_url: str, service_url: str, cluster: str = CLUSTER
) -> None:
    """Write the cluster's metadata: without it the usage transport keeps a broker from starting.

    Args:
        folder: Where logs may go.
        metadata: The store's URL: ``rocksdb://...`` or ``zk:...``.
        web_url: The REST API's URL, as others shall know it.
        service_url: The binary protocol's.
        cluster: Its name.
    """
    command = [str(pulsar_home() / "bin" / "pulsar"), "initialize-cluster-metadata"]
    command += ["--cluster", cluster, "--metadata-store", metadata]
    command += ["--configuration-metadata-store", metadata]
    command += ["--web-service-url", web_url, "--broker-service-url", service_url]
    run("writing Pulsar's metadata", command, _environment(folder, 256))


def broker_conf(metadata: str, broker_port: int, web_port: int) -> dict[str, str]:
    """Settings of a stock broker on loopback that differ from the shipped ``broker.conf``."""
    return {
        "clusterName": CLUSTER,
        "metadataStoreUrl": metadata,
        "configurationMetadataStoreUrl": metadata,
        "brokerServicePort": str(broker_port),
        "webServicePort": str(web_port),
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "managedLedgerDefaultEnsembleSize": "1",
        "managedLedgerDefaultWriteQuorum": "1",
        "managedLedgerDefaultAckQuorum": "1",
        "maxMessageSize": str(_MAX_MESSAGE_BYTES),
        # Keep the topics of a test until its end, and delete by retention soon.
        "brokerDeleteInactiveTopicsEnabled": "false",
        "retentionCheckIntervalInSeconds": "2",
    }


def usage_transport(report_interval_s: int, stats_interval_s: int) -> dict[str, str]:
    """Settings for PIP-82's usage reports, and for how often brokers update their statistics."""
    return {
        "resourceUsageTransportClassName": TRANSPORT,
        "resourceUsageTransportPublishIntervalInSecs": str(report_interval_s),
        "statsUpdateFrequencyInSecs": str(stats_interval_s),
    }


def bookie_conf(folder: Path, metadata: str, port: int) -> dict[str, str]:
    return {
        "metadataServiceUri": f"metadata-store:{metadata}",
        "bookiePort": str(port),
        "journalDirectory": str(folder / "journal"),
        "ledgerDirectories": str(folder / "ledgers"),
        "allowLoopback": "true",
        "listeningInterface": "lo",
        "advertisedAddress": "127.0.0.1",
        "journalSyncData": "false",
        # With 1 MB a 31 MB message was unreadable after 4 of 6 restarts; with this after 0 of 4.
        "journalPreAllocSizeMB": "64",
        "nettyMaxFrameSizeBytes": str(_MAX_FRAME_BYTES),
        "dbStorage_writeCacheMaxSizeMb": "128",
        "dbStorage_readAheadCacheMaxSizeMb": "64",
        # The default would stop the bookie on a disk that is merely well filled.
        "diskUsageThreshold": "0.99",
        "diskUsageWarnThreshold": "0.98",
    }


def write_conf(path: Path, values: Mapping[str, str], shipped: str | None = None) -> Path:
    """Write a settings file: these values, and the other lines of the ``shipped`` file, if given.

    Shipped lines of the same names are removed, as Pulsar takes the last of two and BookKeeper the
    first.
    """
    lines = (pulsar_home() / "conf" / shipped).read_text().splitlines() if shipped else []
    kept = [line for line in lines if line.partition("=")[0].strip() not in values]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in values.items())]))
    return path


def _environment(folder: Path, heap_mb: int) -> dict[str, str]:
    # Drop settings of another Pulsar from the environment.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_")}
    memory = f"-Xms64m -Xmx{heap_mb}m -XX:MaxDirectMemorySize={heap_mb}m"
    return env | {
        "PULSAR_MEM": memory,
        "BOOKIE_MEM": memory,
        # The shipped flags are for dedicated machines and touch all memory at once.
        "PULSAR_GC": SHORT_LIVED,
        "BOOKIE_GC": SHORT_LIVED,
        "PULSAR_GC_LOG": "-Xlog:disable",
        "BOOKIE_GC_LOG": "-Xlog:disable",
        "PULSAR_LOG_DIR": str(folder),
        "PULSAR_LOG_LEVEL": "warn",
    }
