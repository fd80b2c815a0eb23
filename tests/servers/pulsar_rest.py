"""The calls of Pulsar's REST API that tests make to set up a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import httpx

from tests.servers.pulsar_roles import CLUSTER

UNLIMITED: Final = -1


def publish_rate(messages: int = UNLIMITED, in_bytes: int = UNLIMITED) -> dict[str, Any]:
    """A publish rate of a topic or namespace, as Pulsar's tools write it."""
    return {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": in_bytes}


def dispatch_rate(
    messages: int = UNLIMITED, in_bytes: int = UNLIMITED, *, period_s: int = 1
) -> dict[str, Any]:
    """A dispatch rate, the same way."""
    rates = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": in_bytes}
    return {**rates, "relativeToPublishRate": False, "ratePeriodInSecond": period_s}


class PulsarRest:
    """A client of one broker; raises errors that the broker answers."""

    def __init__(self, url: str, *, token: str | None = None) -> None:
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            # A broker that does not own a topic redirects to the one that does.
            follow_redirects=True,
            timeout=30.0,
        )

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make a request to ``path`` in ``admin/v2``; returns the JSON, None for an empty answer.

        The path may begin with a topic's name.

        Raises:
            RuntimeError: the server refused; has the server's message.
        """
        path = path.replace("://", "/")
        answer = self._client.request(method, f"/admin/v2/{path}", json=body)
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def is_ready(self) -> bool:
        """Whether the broker serves already."""
        try:
            return self._client.get("/admin/v2/brokers/ready").text == "ok"
        except httpx.TransportError:
            return False

    def create_tenant(self, name: str) -> str:
        clusters = self.call("GET", "clusters")
        self.call("PUT", f"tenants/{name}", {"adminRoles": [], "allowedClusters": clusters})
        return name

    def create_namespace(
        self, name: str, *, retention_minutes: int = 60, bundles: int | None = None
    ) -> str:
        """Create ``tenant/namespace``, and return its name.

        Without retention, messages that nobody has subscribed to are deleted.
        """
        policies: dict[str, Any] = {
            "retention_policies": {
                "retentionTimeInMinutes": retention_minutes,
                "retentionSizeInMB": -1 if retention_minutes else 0,
            }
        }
        if bundles:
            policies["bundles"] = {"numBundles": bundles}
        self.call("PUT", f"namespaces/{name}", policies)
        return name

    def create_topic(self, name: str, *, partitions: int = 0) -> str:
        """Create ``persistent://tenant/namespace/topic``, and return its name.

        With 0 partitions it is a topic without partitions.
        """
        self.call("PUT", f"{name}/partitions" if partitions else name, partitions or None)
        return name

    def put_group(
        self,
        name: str,
        *,
        publish_messages_per_s: int = UNLIMITED,
        publish_bytes_per_s: int = UNLIMITED,
        dispatch_messages_per_s: int = UNLIMITED,
        dispatch_bytes_per_s: int = UNLIMITED,
    ) -> str:
        """Create a resource group, or change its quotas."""
        quotas = {
            "publishRateInMsgs": publish_messages_per_s,
            "publishRateInBytes": publish_bytes_per_s,
            "dispatchRateInMsgs": dispatch_messages_per_s,
            "dispatchRateInBytes": dispatch_bytes_per_s,
        }
        self.call("PUT", f"resourcegroups/{name}", quotas)
        return name

    def put_isolation(
        self,
        name: str,
        namespaces: str,
        primary: Sequence[str],
        *,
        secondary: Sequence[str] = (),
        min_primary: int = 1,
        unload_scope: str | None = None,
    ) -> None:
        """Create an isolation policy, or change it."""
        parameters = {"min_limit": str(min_primary), "usage_threshold": "100"}
        policy = {
            "namespaces": [namespaces],
            "primary": list(primary),
            "secondary": list(secondary),
            "auto_failover_policy": {"policy_type": "min_available", "parameters": parameters},
        } | ({"unload_scope": unload_scope} if unload_scope else {})
        self.call("POST", f"clusters/{CLUSTER}/namespaceIsolationPolicies/{name}", policy)

    def counter(self, topic: str, name: str = "msgInCounter") -> int:
        """A counter in the topic's statistics; unlike rates it is live."""
        return int(self.call("GET", f"{topic}/stats")[name])

    def per_s(self, topic: str, over_s: float, counter: str = "msgInCounter") -> float:
        """By how much a counter grows each second."""
        before, begun_s = self.counter(topic, counter), time.monotonic()
        time.sleep(over_s)
        return (self.counter(topic, counter) - before) / (time.monotonic() - begun_s)

    def attach(self, namespace: str, group: str) -> None:
        """Attach a resource group to ``tenant/namespace``."""
        self.call("POST", f"namespaces/{namespace}/resourcegroup/{group}")

    def owner(self, topic: str) -> str | None:
        """The service URL of the broker that owns the topic, or gets it by this lookup, or None.

        Until a dead broker's session ends, lookups of its topics still lead to it.
        """
        answer = self._client.get(f"/lookup/v2/topic/{topic.replace('://', '/')}")
        return str(answer.json()["brokerUrl"]) if answer.is_success else None

    def bundle(self, topic: str) -> str:
        """The topic's bundle: the hash range that moves between brokers as a whole."""
        answer = self._client.get(f"/lookup/v2/topic/{topic.replace('://', '/')}/bundle")
        return answer.raise_for_status().text

    def close(self) -> None:
        self._client.close()
