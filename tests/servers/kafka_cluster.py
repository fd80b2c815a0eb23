"""Several Kafka servers of one cluster; each is a broker and a controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from kafka import KafkaAdminClient

from tests.servers.kafka_server import VERSION, KafkaServer
from tests.servers.tools import free_ports

_FIRST_NODE: Final = 1


class KafkaCluster:
    """A cluster on loopback; as a context manager all of its servers run.

    Its quorum lives while more than half of the servers do. Replicated topics of Kafka's own have
    a replica on each server.
    """

    def __init__(
        self,
        folder: Path,
        *,
        servers: int = 3,
        heap_mb: int = 384,
        version: str = VERSION,
        extra_jars: Sequence[Path] = (),
        properties: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Not started yet.

        Args:
            folder: of its own.
            servers: their number.
            heap_mb: of each JVM.
            version: of all servers.
            extra_jars: in the class path of all servers.
            properties: of all servers, in addition; ``{bootstrap_servers}`` in a value stands for
                all servers.
            more: as for ``KafkaServer``.
        """
        ports = free_ports(2 * servers)
        pairs = list(zip(ports[:servers], ports[servers:], strict=True))
        nodes = range(_FIRST_NODE, _FIRST_NODE + servers)
        voters = ",".join(
            f"{node}@127.0.0.1:{controller}"
            for node, (_, controller) in zip(nodes, pairs, strict=True)
        )
        copies, addresses = str(servers), ",".join(f"127.0.0.1:{plain}" for plain, _ in pairs)
        more_lines = {
            name: value.replace("{bootstrap_servers}", addresses)
            for name, value in (properties or {}).items()
        }
        self.servers = [
            KafkaServer(
                folder / f"server-{node}",
                heap_mb=heap_mb,
                version=version,
                extra_jars=extra_jars,
                ports={"PLAINTEXT": plain, "CONTROLLER": controller},
                properties={
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "offsets.topic.replication.factor": copies,
                    "transaction.state.log.replication.factor": copies,
                    **more_lines,
                },
                **more,
            )
            for node, (plain, controller) in zip(nodes, pairs, strict=True)
        ]
        """In the order of their node ids, which begin at 1."""

    @property
    def bootstrap_servers(self) -> str:
        """All servers, separated by commas."""
        return ",".join(server.bootstrap_servers for server in self.servers)

    def __enter__(self) -> KafkaCluster:
        with ExitStack() as started:
            for server in self.servers:
                started.callback(server.stop)
                server.launch()
            # Together: one alone has no quorum, so it does not serve.
            for server in self.servers:
                server.wait_until_ready()
            self._running = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def create_topic(
        self,
        name: str,
        leaders: Sequence[int],
        *,
        copies: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, and return its name once all partitions have leaders.

        Args:
            name: of the topic.
            leaders: for each partition the node that leads it.
            copies: of each partition; the others are on the next nodes.
            configs: of the topic.
        """
        nodes = [_FIRST_NODE + place for place in range(len(self.servers))]
        replicas = {
            partition: [nodes[(leader - _FIRST_NODE + step) % len(nodes)] for step in range(copies)]
            for partition, leader in enumerate(leaders)
        }
        options: dict[str, Any] = {"assignments": replicas, "configs": dict(configs or {})}
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            admin.create_topics({name: options}, wait_for_metadata=True)
        finally:
            admin.close()
        return name
