"""A stock Pulsar cluster on loopback: ZooKeeper, a bookie and some brokers, a process each.

Topics don't move by themselves: the load balancer places them, but does not shed or split bundles.
A dead broker is noticed when its ZooKeeper session ends. Three brokers take at most 4 GB.

    python -m tests.servers.pulsar_cluster     runs one until Ctrl-C (make pulsar-cluster)
"""

from __future__ import annotations

import signal
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from quotaplane.console.option_parser import OptionParser
from quotaplane.streams.script import run_job
from tests.servers.pulsar_rest import PulsarRest
from tests.servers.pulsar_roles import (
    Role,
    bookie_conf,
    broker_conf,
    initialize_metadata,
    usage_transport,
    write_conf,
)
from tests.servers.tools import free_ports

SESSION_TIMEOUT_S: Final = 10
"""How long a dead broker keeps its topics."""

MANAGERS: Final[Mapping[str, Mapping[str, str]]] = {
    "modular": {},
    "extensible": {
        "loadManagerClassName": (
            "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
        )
    },
}
"""Settings of the brokers for each load manager."""

_ZOOKEEPER_HEAP_MB, _BOOKIE_HEAP_MB, _BROKER_HEAP_MB = 256, 512, 640
_MOVES_WITHIN_S: Final = 60.0
_STARTS: Final = 3


class PulsarCluster:
    """The cluster; a context manager. Brokers are numbered from 0."""

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        report_interval_s: int = 5,
        stats_interval_s: int = 5,
        broker_settings: Mapping[str, str] | None = None,
        proxied: bool = False,
        own_hosts: bool = False,
    ) -> None:
        """Not started yet.

        Args:
            folder: of its own.
            brokers: their number.
            report_interval_s: of usage reports.
            stats_interval_s: of the brokers' statistics.
            broker_settings: more lines of broker.conf.
            proxied: each broker listens at one more port, whose clients are sent on to the
                addresses in ``proxy_ports``: where a broker's proxy must listen, and the broker.
            own_hosts: each broker has an address of its own, 127.0.0.2 and so on, as isolation
                policies name hosts.
        """
        zookeeper, bookie, *ports = free_ports(2 + 2 * brokers)
        self._folder = folder
        self._zookeeper_port = zookeeper
        self._metadata = f"zk:127.0.0.1:{zookeeper}"
        hosts = [f"127.0.0.{place + 2 if own_hosts else 1}" for place in range(brokers)]
        places = list(zip(hosts, ports[:brokers], ports[brokers:], strict=True))
        self.service_urls = [f"pulsar://{host}:{port}" for host, port, _ in places]
        self.admin_urls = [f"http://{host}:{port}" for host, _, port in places]
        conf = write_conf(folder / "zookeeper.conf", _zookeeper_conf(folder, zookeeper))
        self._zookeeper = Role(folder, "zookeeper", _ZOOKEEPER_HEAP_MB, conf)
        bookies = bookie_conf(folder, self._metadata, bookie)
        conf = write_conf(folder / "bookie.conf", bookies)
        self._bookie = Role(folder, "bookie", _BOOKIE_HEAP_MB, conf)
        self.proxy_ports: list[tuple[int, int]] = []
        self._brokers: list[Role] = []
        for place, (host, port, web_port) in enumerate(places):
            settings = broker_conf(self._metadata, port, web_port)
            settings |= {"bindAddress": host, "advertisedAddress": host}
            settings |= usage_transport(report_interval_s, stats_interval_s)
            settings |= {
                "loadBalancerSheddingEnabled": "false",
                "loadBalancerAutoBundleSplitEnabled": "false",
                "metadataStoreSessionTimeoutMillis": str(SESSION_TIMEOUT_S * 1000),
            }
            if proxied:
                listen, inner = free_ports(2)
                self.proxy_ports.append((listen, inner))
                settings |= _second_listener(port, listen, inner)
            settings |= broker_settings or {}
            conf = write_conf(folder / f"broker-{place}.conf", settings, "broker.conf")
            self._brokers.append(Role(folder, "broker", _BROKER_HEAP_MB, conf))
        self._rest = [PulsarRest(url) for url in self.admin_urls]
        self._bundles: set[str] = set()

    @property
    def service_url(self) -> str:
        """One URL of all brokers; clients try one after the other."""
        return "pulsar://" + ",".join(url.partition("://")[2] for url in self.service_urls)

    def rest(self, broker: int = 0) -> PulsarRest:
        return self._rest[broker]

    def start(self) -> None:
        """Start and wait until every broker serves.

        Raises:
            AssertionError: a part of it did not come up; the message ends with its log.
        """
        self._zookeeper.start()
        self._zookeeper.wait_until(self._zookeeper_serves)
        initialize_metadata(self._folder, self._metadata, self.admin_urls[0], self.service_urls[0])
        for role in (self._bookie, *self._brokers):
            role.start()
        for broker in range(len(self._brokers)):
            self._serve(broker)

    def stop(self) -> None:
        """Stop the brokers, all at once, and then the rest."""
        stops = [threading.Thread(target=role.stop) for role in self._brokers]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join()
        self._bookie.stop()
        self._zookeeper.stop()

    def kill_broker(self, broker: int) -> None:
        """Kill a broker; its topics move when its ZooKeeper session ends."""
        self._brokers[broker].kill()

    def stop_broker(self, broker: int) -> None:
        """Stop a broker cleanly; its topics move before it ends."""
        self._brokers[broker].stop()

    def pid(self, broker: int) -> int:
        """Process id of a broker; -1 = not running."""
        return self._brokers[broker].pid

    def start_broker(self, broker: int) -> None:
        """Start a broker again on its old ports, and wait until it serves."""
        self._brokers[broker].start()
        self._serve(broker)

    def _serve(self, broker: int) -> None:
        """Wait until a broker serves that was started.

        As a supervisor does, start it again if it ends: with the extensible manager it does so when
        the manager's own topic has no owner at that moment, or does not answer in time.
        """
        role, is_ready = self._brokers[broker], self._rest[broker].is_ready
        for left in reversed(range(_STARTS)):
            try:
                role.wait_until(is_ready)
                break
            except AssertionError:
                if not left:
                    raise
                role.start()

    def broker_of(self, topic: str) -> int | None:
        """The broker that owns the topic, or gets it by this lookup; None = none yet."""
        alive = next(place for place, role in enumerate(self._brokers) if role.pid > 0)
        url = self._rest[alive].owner(topic)
        return self.service_urls.index(url) if url in self.service_urls else None

    def move(self, topic: str, to_broker: int) -> None:
        """Unload the topic's bundle to a broker, and wait until the broker owns it.

        Raises:
            TimeoutError: the broker did not get it.
        """
        namespace = "/".join(topic.split("/")[2:4])
        address = self.admin_urls[to_broker].partition("://")[2]
        rest = self._rest[to_broker]
        unload = f"namespaces/{namespace}/{rest.bundle(topic)}/unload?destinationBroker={address}"
        deadline = time.monotonic() + _MOVES_WITHIN_S
        while (broker := self.broker_of(topic)) != to_broker:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} is at {broker}, not at {to_broker}")
            if broker is not None:
                # Repeated, as a lookup by another client may have placed it elsewhere meanwhile.
                rest.call("PUT", unload)
            time.sleep(0.1)

    def listed(self, broker: int) -> bool:
        """Whether the cluster's list of brokers has the broker, as another one shows it."""
        alive = next(place for place, role in enumerate(self._brokers) if role.pid > 0)
        address = self.admin_urls[broker].partition("://")[2]
        return address in self._rest[alive].call("GET", "brokers")

    def topic_on(self, broker: int, namespace: str) -> str:
        """Create a topic on a broker, in a bundle without other topics of this method.

        Raises:
            LookupError: ``namespace`` has no bundle left; create it with more bundles.
        """
        return self.topics_on(broker, namespace, 1)[0]

    def topics_on(self, broker: int, namespace: str, count: int) -> list[str]:
        """Create topics on a broker, in one bundle without other topics of this method.

        Raises:
            LookupError: ``namespace`` has no bundle left; create it with more bundles.
        """
        rest = self._rest[broker]
        own, topics = "", list[str]()
        for number in range(1000):
            topic = f"persistent://{namespace}/topic-{number}"
            bundle = f"{namespace}/{rest.bundle(topic)}"
            if bundle == own or (not own and bundle not in self._bundles):
                self._bundles.add(bundle)
                rest.create_topic(topic)
                if not own:
                    self.move(topic, broker)
                own = bundle
                topics.append(topic)
                if len(topics) == count:
                    return topics
        raise LookupError(f"{namespace} has no bundle without a topic that has room for {count}")

    def __enter__(self) -> PulsarCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _zookeeper_serves(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._zookeeper_port)) as s:
            s.sendall(b"ruok")
            return s.recv(4) == b"imok"
        return False


def _second_listener(port: int, proxy_port: int, inner_port: int) -> dict[str, str]:
    """A listener whose lookups lead to a proxy."""
    listeners = f"internal:pulsar://127.0.0.1:{port},proxied:pulsar://127.0.0.1:{proxy_port}"
    return {
        "advertisedAddress": "",
        "advertisedListeners": listeners,
        "internalListenerName": "internal",
        "bindAddresses": f"proxied:pulsar://127.0.0.1:{inner_port}",
    }


def _zookeeper_conf(folder: Path, port: int) -> dict[str, str]:
    return {
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "dataDir": str(folder / "zookeeper"),
        "admin.enableServer": "false",
        "tickTime": "2000",
        "maxClientCnxns": "0",
        "forceSync": "no",
    }


_NEXT = """\
Ready; Ctrl-C stops it. Then, for example:

  a group for a namespace:
    curl -X PUT {admin}/admin/v2/resourcegroups/rg -H 'Content-Type: application/json' \\
      -d '{{"publishRateInMsgs": 120, "publishRateInBytes": -1,
           "dispatchRateInMsgs": -1, "dispatchRateInBytes": -1}}'
    curl -X POST {admin}/admin/v2/namespaces/public/default/resourcegroup/rg
  control of it: set service_url and admin_url in conf/pulsar.yaml, then
    quotaplane setup pulsar --conf conf/pulsar.yaml --apply
    ./spark-submit.sh quota --conf conf/pulsar.yaml
    quotaplane enforce pulsar --conf conf/pulsar.yaml
"""


def main(argv: Sequence[str]) -> None:
    """Run a cluster in the foreground."""
    parser = OptionParser(prog="make pulsar-cluster", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--report-interval-s", type=int, default=5)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C
    with tempfile.TemporaryDirectory(prefix="pulsar-cluster-") as folder:
        cluster = PulsarCluster(
            Path(folder), brokers=args.brokers, report_interval_s=args.report_interval_s
        )
        print("starting; the first time Pulsar is fetched (240 MB)", flush=True)
        with suppress(KeyboardInterrupt), cluster:
            for service, admin in zip(cluster.service_urls, cluster.admin_urls, strict=True):
                print(f"service_url {service}  admin_url {admin}")
            print(f"\n{_NEXT.format(admin=cluster.admin_urls[0])}", flush=True)
            threading.Event().wait()


if __name__ == "__main__":
    run_job(main)
