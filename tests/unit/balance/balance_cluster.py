"""A fake Pulsar cluster whose bundles can be unloaded, claimed and split, with awkward clients."""

from __future__ import annotations

import itertools
import json
import re
import time
import zlib
from collections import Counter
from typing import Any, Final

from quotabalance.planning.decisions import Decisions
from quotabalance.wire.balance_plans import PlanMessage
from tests.unit.pulsar_admin.cluster_cases import Answer, RestServer

BROKERS: Final = ("h:0", "h:1", "h:2")
HALVES: Final = ("0x00000000_0x80000000", "0x80000000_0xffffffff")
_LOOKUP: Final = re.compile(r"/b(\d)/lookup/v2/topic/(non-)?persistent/(.+)\?authoritative=true")
_UNLOAD: Final = re.compile(r"namespaces/(.+)/unload\?destinationBroker=(.+)")
_SPLIT: Final = re.compile(r"namespaces/(.+)/split\?.*specified_positions_divide")
_BOUNDS: Final = re.compile(r"namespaces/(.+)/bundles")


class FakeBundles(RestServer):
    """Brokers ``h:0`` to ``h:2``; ``owned`` says which bundle is where."""

    def __init__(self, owned: dict[str, str]) -> None:
        super().__init__()
        self.owned = dict(owned)
        self.rates: dict[str, float] = {}
        self.reported_by: dict[str, str] = {}
        """Brokers whose statistics have a bundle; by default its owner's."""
        self.snatched = Counter[str]()
        """By bundle: how many unloads end with the bundle at ``h:2``, a client's lookup being
        quicker."""
        self.unload_s = 0.0
        self.refuse_unloads = 0
        self.under_way: set[str] = set()
        self.most_under_way = 0
        self.clashes: list[str] = []
        """Ranges that were unloaded twice at once."""
        self.silent: set[str] = set()
        self.started_at_ms = 0
        self.policies: dict[str, Any] = {}
        self.extensible = False
        """The brokers have the extensible load manager."""
        self.refuse_splits_after = 1000
        self.topic_hashes: list[int] | None = None
        """Bundles with fewer than two of them are not split; None = each bundle has enough."""
        self.settings: dict[str, dict[str, str]] = {}
        """Further settings by broker."""
        self.moved_after: dict[str, str] = {}
        """By bundle: where somebody else moves it as soon as another bundle is unloaded."""

    def find(self, method: str, path: str) -> Answer:
        path = path.replace("/admin/v2/", "")
        if path == "brokers":
            return Answer(200, list(BROKERS))
        if path.endswith("brokers/configuration/runtime"):
            broker = f"h:{path[2]}" if path.startswith("/b") else BROKERS[0]
            return Answer(200, self._runtime(broker))
        if path.endswith("/healthcheck"):
            number = path.split("/")[-2][-1]
            return Answer(200, self._urls(f"h:{number}"))
        if path.endswith("/ownedNamespaces"):
            broker = path.split("/")[2]
            return Answer(200, {name: {} for name, owner in self.owned.items() if owner == broker})
        if path.endswith("/metrics/"):
            start_s = self.started_at_ms / 1000.0
            return Answer(200, f'process_start_time_seconds{{cluster="blue"}} {start_s:.12E}\n')
        if "broker-stats/" in path:
            before, _, asked = path.partition("broker-stats/")
            return self._stats(f"h:{before[-1]}", asked)
        if path.endswith("/namespaceIsolationPolicies"):
            return Answer(200, self.policies) if self.policies else Answer(404, {"reason": "no"})
        if found := _LOOKUP.fullmatch(path):
            return self._claim(f"h:{found[1]}", f"{found[2] or ''}persistent://{found[3]}")
        if method == "PUT" and (found := _UNLOAD.fullmatch(path)):
            return self._unload(found[1], found[2])
        if method == "PUT" and (found := _SPLIT.fullmatch(path)):
            return self._split(found[1], json.loads(self.asked[-1].body))
        if found := _BOUNDS.fullmatch(path):
            ranges = [name.rpartition("/")[2] for name in self.owned if name.startswith(found[1])]
            bounds = {bound for one in ranges for bound in one.split("_")}
            return Answer(200, {"boundaries": sorted(bounds)})
        return super().find(method, path)

    def _urls(self, broker: str) -> dict[str, str]:
        return {"brokerUrl": f"pulsar://{broker}", "httpUrl": f"{self.url}/b{broker[-1]}"}

    def _runtime(self, broker: str) -> dict[str, str]:
        manager = "Extensible" if self.extensible else "Modular"
        return {
            "clusterName": "blue",
            "statsUpdateFrequencyInSecs": "60",
            "loadManagerClassName": f"{manager}LoadManagerImpl",
            **self.settings.get(broker, {}),
        }

    def _split(self, bundle: str, boundaries: list[int]) -> Answer:
        self.refuse_splits_after -= 1
        if self.refuse_splits_after < 0:
            return Answer(500, {"reason": "broken"})
        if self.extensible and len(boundaries) > 1:
            return Answer(412, {"reason": "Split bundle failed due to invalid request"})
        namespace, _, range_ = bundle.rpartition("/")
        owner = self.owned.get(bundle)
        if owner is None:
            return Answer(412, {"reason": "Invalid upper boundary"})
        low, high = range_.split("_")
        inside = [one for one in self.topic_hashes or [] if int(low, 16) <= one < int(high, 16)]
        if self.topic_hashes is not None and len(inside) < 2:
            if self.extensible:
                return Answer(500, {"reason": f"Bundle {bundle} not found under namespace"})
            return Answer(204)
        del self.owned[bundle]
        edges = [low, *(f"0x{bound:08x}" for bound in boundaries), high]
        for lower, upper in itertools.pairwise(edges):
            self.owned[f"{namespace}/{lower}_{upper}"] = owner
        return Answer(204)

    def _unload(self, bundle: str, target: str) -> Answer:
        if self.refuse_unloads:
            self.refuse_unloads -= 1
            return Answer(500, {"reason": "broken"})
        range_ = bundle.rpartition("/")[2]
        if range_ in self.under_way:
            self.clashes.append(range_)
        self.under_way.add(range_)
        self.most_under_way = max(self.most_under_way, len(self.under_way))

        def unloaded() -> None:
            snatched = self.snatched[bundle] > 0
            self.snatched[bundle] -= snatched
            self.owned[bundle] = "h:2" if snatched else ""
            self.under_way.discard(range_)
            for other in self.moved_after.keys() - {bundle}:
                self.owned[other] = self.moved_after.pop(other)

        return Answer(204, delay_s=self.unload_s, then=unloaded)

    def _claim(self, broker: str, topic: str) -> Answer:
        namespace = "/".join(topic.split("/")[2:4])
        hashed = zlib.crc32(topic.encode())
        for bundle, owner in self.owned.items():
            low, high = (int(bound, 16) for bound in bundle.rpartition("/")[2].split("_"))
            if bundle.startswith(f"{namespace}/") and low <= hashed < high:
                self.owned[bundle] = owner or broker
                return Answer(200, self._urls(self.owned[bundle]))
        return Answer(404, {"reason": "no bundle"})

    def _stats(self, broker: str, asked: str) -> Answer:
        if broker in self.silent:
            return Answer(503, {"reason": "busy"})
        if asked == "load-report":
            return Answer(500, {"reason": "no"}) if self.extensible else self._report(broker)
        if asked == "metrics":
            metrics = {"brk_lb_cpu_usage": 10.0}
            return Answer(200, [{"metrics": metrics, "dimensions": {"broker": broker}}])
        topics: dict[str, Any] = {}
        for bundle, owner in self.owned.items():
            if owner == broker:
                namespace, _, range_ = bundle.rpartition("/")
                stats = {"msgThroughputIn": self.rates.get(bundle, 0.0), "producerCount": 1}
                one = {"persistent": {f"persistent://{namespace}/{range_}": stats}}
                topics.setdefault(namespace, {})[range_] = one
        leaders = {"persistent://pulsar/system/loadbalancer-service-unit-state": {}}
        others = {"persistent://pulsar/system/resource-usage": {"msgThroughputIn": 1.0}}
        if broker in BROKERS[:2]:
            there = {"persistent": leaders if broker == BROKERS[0] else others}
            topics["pulsar/system"] = {"0x40000000_0x50000000": there}
        return Answer(200, topics)

    def _report(self, broker: str) -> Answer:
        resource = {"usage": 10.0, "limit": 100.0}
        names = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
        stats = {
            bundle: {
                "msgThroughputIn": self.rates.get(bundle, 0.0),
                **dict.fromkeys(("msgThroughputOut", "msgRateIn", "msgRateOut"), 0.0),
                **dict.fromkeys(("topics", "producerCount", "consumerCount"), 1),
            }
            for bundle, owner in self.owned.items()
            if self.reported_by.get(bundle, owner) == broker
        }
        report = {**dict.fromkeys(names, resource), "lastStats": stats}
        return Answer(200, report | {"startTimestamp": self.started_at_ms})


def message(
    plan: Decisions, *, seq: int = 1, mode: str = "auto", age_s: float = 0.0
) -> PlanMessage:
    """A plan as it comes from the topic."""
    now_ms = int((time.time() - age_s) * 1000)
    return PlanMessage(1, seq, now_ms, mode, plan.plan_hash(now_ms), plan)
