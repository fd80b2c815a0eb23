"""The executor on stock clusters of three brokers while others unload, look up and restart."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import httpx
import pulsar
import pytest

from quotabalance.agent.bundle_mover import ATTEMPTS
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.record import outcomes
from tests.servers.balance_rig import Rig, quick_cluster
from tests.servers.pulsar_clients import quiet_client
from tests.servers.pulsar_cluster import MANAGERS, PulsarCluster
from tests.servers.pulsar_rest import PulsarRest
from tests.waiting import meanwhile, wait_until

pytestmark = pytest.mark.nightly

BUNDLES = 8


@pytest.fixture(scope="module", params=MANAGERS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("interference")
    with quick_cluster(folder, request.param, brokers=3) as cluster:
        yield Rig(cluster, folder)


class Traffic:
    """Producers and consumers of some topics, that know whether all arrives."""

    def __init__(self, cluster: PulsarCluster, topics: list[str]) -> None:
        self._cluster, self._topics = cluster, topics
        self._client = quiet_client(cluster.service_url)
        self._acknowledged: set[bytes] = set()
        self._received: set[bytes] = set()
        for topic in topics:
            self._client.subscribe(topic, "all", message_listener=self._receive)
        self._producers = [
            self._client.create_producer(topic, send_timeout_millis=0) for topic in topics
        ]

    def _receive(self, consumer: Any, message: Any) -> None:
        self._received.add(message.data())
        consumer.acknowledge(message)

    def _send(self, producer: Any, payload: bytes) -> None:
        def sent(result: Any, _: Any) -> None:
            if result == pulsar.Result.Ok:
                self._acknowledged.add(payload)

        producer.send_async(payload, sent)

    def run(self, over: threading.Event) -> None:
        """Send until then."""
        numbers = itertools.count()
        while not over.wait(0.05):
            for producer in self._producers:
                self._send(producer, b"%d" % next(numbers))

    def wait_for_all(self) -> None:
        """Wait until each topic takes messages, and all that was acknowledged is received; more of
        it than the first moments' came.
        """
        # With producers of its own: pulsar-client's flush() never ended once after a storm, though
        # the brokers had nothing left to do.
        fresh = quiet_client(self._cluster.service_url)
        for topic in self._topics:
            self._acknowledged.add(payload := topic.encode())
            fresh.create_producer(topic).send(payload)
        fresh.close()
        assert len(self._acknowledged) > 10 * len(self._producers)
        wait_until(lambda: self._acknowledged <= self._received)
        self._client.close()


def drained(rig: Rig, bundles: list[str]) -> str:
    """Propose a plan that takes the bundles off the first broker; returns its hash."""
    rates: dict[str, float] = {}

    def measured() -> bool:
        assert rig.run("collect", "--once") == 0
        load = rig.loads()[rig.brokers[0]]
        rates.update(zip(load.bundles, load.rates[:, :2].sum(axis=1).tolist(), strict=True))
        return all(rates.get(bundle, 0.0) > 0 for bundle in bundles)

    wait_until(measured, every_s=1.0)
    moves = [
        Move(bundle, rig.brokers[0], rig.brokers[1 + place % 2], rates[bundle], "Drain", "")
        for place, bundle in enumerate(bundles)
    ]
    return rig.propose(Decisions(moves))


def take_off(rig: Rig, bundles: list[str]) -> tuple[str, int]:
    """Plan and execute until a plan is not refused as the rates of a second differ too much;
    returns the plan and the exit code.
    """
    while True:
        plan = drained(rig, bundles)
        code = rig.run("execute", "--plan", plan, "--why", "interference")
        if code != 8 or "traffic has changed" not in rig.actions()[-1]["message"]:
            return plan, code


def last_rows(rig: Rig, plan: str, bundles: list[str]) -> dict[str, dict[str, Any]]:
    """The last row of each bundle in the record; all rows are as the executor promises."""
    rows = [row for row in rig.actions() if row["plan_hash"] == plan and row["action"] == "move"]
    assert {row["bundle"] for row in rows} == set(bundles)
    for row in rows:
        there = row["outcome"] in (outcomes.DONE, outcomes.ALREADY)
        assert (row["owner"] == row["target"]) == there, row
        assert there or row["message"], row
        assert row["attempts"] <= ATTEMPTS
    return {row["bundle"]: row for row in rows}


def each_has_one_owner(rig: Rig, bundles: list[str]) -> bool:
    lists = [rig.owned(place) for place in range(len(rig.brokers))]
    return all(sum(bundle in owned for owned in lists) == 1 for bundle in bundles)


def sheds(rest: PulsarRest) -> bool:
    runtime = rest.call("GET", "brokers/configuration/runtime")
    return bool(runtime["loadBalancerSheddingEnabled"] == "true")


def first_has_moved(rig: Rig, bundles: list[str], over: threading.Event) -> bool:
    """Wait until a bundle is at the second broker; False: it is over before."""
    while not over.wait(0.02):
        if rig.owned(1).intersection(bundles):
            return True
    return False


def again_and_again(ask: Callable[[], object], every_s: float) -> Callable[[threading.Event], None]:
    def run(over: threading.Event) -> None:
        while not over.wait(every_s):
            with suppress(RuntimeError, httpx.HTTPError):
                ask()

    return run


def test_a_storm_of_unloads(rig: Rig) -> None:
    bundles, topics = rig.place("public/storm", BUNDLES)
    namespace = bundles[0].rpartition("/")[0]
    other = PulsarRest(rig.cluster.admin_urls[2])
    storm = again_and_again(lambda: other.call("PUT", f"namespaces/{namespace}/unload"), 0.2)

    def once_it_moves(over: threading.Event) -> None:
        if first_has_moved(rig, bundles, over):
            storm(over)

    traffic = Traffic(rig.cluster, topics)
    with meanwhile(traffic.run):
        with meanwhile(once_it_moves):
            plan, code = take_off(rig, bundles)
        wait_until(lambda: each_has_one_owner(rig, bundles))
    traffic.wait_for_all()
    rows = last_rows(rig, plan, bundles)
    there = {row["outcome"] for row in rows.values()} <= {outcomes.DONE, outcomes.ALREADY}
    assert code == (0 if there else 1)


def test_lookups_by_another_broker(rig: Rig) -> None:
    bundles, topics = rig.place("public/looked-up", BUNDLES)
    clients = [PulsarRest(rig.cluster.admin_urls[2]) for _ in range(3)]

    def look_up(client: PulsarRest) -> Callable[[], object]:
        turns = itertools.cycle(topics)
        return lambda: client.owner(next(turns))

    traffic = Traffic(rig.cluster, topics)
    with meanwhile(traffic.run, *(again_and_again(look_up(client), 0.01) for client in clients)):
        plan, code = take_off(rig, bundles)
    traffic.wait_for_all()
    rows = last_rows(rig, plan, bundles)
    assert {rig.owner(bundle) for bundle in bundles} <= set(rig.brokers)
    # Nobody unloads now, so each bundle is where its row says, or was never touched.
    untouched = (outcomes.NOT_DONE, outcomes.REFUSED)
    assert {bundle: rig.owner(bundle) for bundle in bundles} == {
        bundle: rig.brokers[0] if row["outcome"] in untouched else row["owner"]
        for bundle, row in rows.items()
    }
    assert code in (0, 1)


def test_a_target_that_restarts_in_the_middle(rig: Rig) -> None:
    bundles, topics = rig.place("public/restart", BUNDLES)

    def restart(over: threading.Event) -> None:
        if first_has_moved(rig, bundles, over):
            rig.cluster.stop_broker(1)

    traffic = Traffic(rig.cluster, topics)
    with meanwhile(traffic.run):
        with meanwhile(restart):
            plan, code = take_off(rig, bundles)
        rig.cluster.stop_broker(1)  # if the plan ended too soon
        rig.cluster.start_broker(1)
        wait_until(lambda: each_has_one_owner(rig, bundles))
    traffic.wait_for_all()
    assert code in (0, 1)
    last_rows(rig, plan, bundles)


def test_the_brokers_own_balancing_is_said(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    rig.propose(
        Decisions([Move("public/own/0x00000000_0xffffffff", *rig.brokers[:2], 0.0, "Drain", "")])
    )
    switch = "brokers/configuration/loadBalancerSheddingEnabled"
    capsys.readouterr()
    assert rig.run("execute") == 0
    assert "own balancing" not in capsys.readouterr().err
    rig.cluster.rest().call("POST", f"{switch}/true")
    try:
        for place in range(3):
            wait_until(partial(sheds, rig.cluster.rest(place)))
        assert rig.run("execute") == 0
        said = capsys.readouterr().err
        assert said.count("own balancing:") == 1
        assert all(broker in said for broker in rig.brokers)
    finally:
        rig.cluster.rest().call("DELETE", switch)
