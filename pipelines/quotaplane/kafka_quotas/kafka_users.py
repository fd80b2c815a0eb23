"""Reads quotas from Strimzi's ``KafkaUser`` resources, in YAML or in kubectl's JSON.

With TLS the principal is ``CN=NAME``, with anything else the resource's name. Strimzi knows no
quotas of client ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from quotaplane.errors import InputError
from quotaplane.kafka_quotas.client_quotas import USER, FoundQuota
from quotaplane.parsing.strict_json import json_type
from quotaplane.parsing.strict_yaml import read_documents

_API: Final = "kafka.strimzi.io/"
_CLUSTER: Final = "strimzi.io/cluster"
_MOST_NODES: Final = 5_000_000
"""Keys and values of a file: kubectl prints 100 for a user."""

_FIELDS: Final = {
    "producerByteRate": "producer_byte_rate",
    "consumerByteRate": "consumer_byte_rate",
    "requestPercentage": "request_percentage",
    "controllerMutationRate": "controller_mutation_rate",
}
_LOGINS: Final = {"tls": "CN=", "tls-external": "CN=", "scram-sha-512": ""}
"""By type of authentication, what is in front of the name. Without any it is the name."""


def read_kafka_users(text: str, source: str) -> Iterator[FoundQuota]:
    """The quotas of all users in a text of several documents; other resources are left out.

    Raises:
        InputError: the text is no such YAML, a user is wrong, or they are of two clusters.
    """
    clusters: dict[str, str] = {}
    for document in read_documents(text, source, most_nodes=_MOST_NODES):
        for resource in _resources(document.values, f"{source}: line {document.line}"):
            if resource.get("kind") != "KafkaUser":
                continue
            where = f"{source}: line {document.line}"
            metadata = _object(resource, "metadata", where)
            name = metadata.get("name")
            if not isinstance(name, str) or not name:
                raise InputError(f"{where}: metadata.name: must be a name (quote it)")
            where = f"{source}: KafkaUser {name!r}"
            if not str(resource.get("apiVersion")).startswith(_API):
                raise InputError(f"{where}: apiVersion: must begin with {_API}")
            cluster = _object(metadata, "labels", where).get(_CLUSTER)
            if cluster is not None:
                clusters.setdefault(str(cluster), where)
            if len(clusters) > 1:
                raise InputError(
                    f"{where}: is of the cluster {cluster!r}, {next(iter(clusters.values()))} of "
                    "another one: import one cluster at a time"
                )
            yield _quota(name, _object(resource, "spec", where), where)


def _resources(values: Mapping[str, Any], where: str) -> Iterator[Mapping[str, Any]]:
    """The resource that a document is, or those in its list (kubectl prints these)."""
    if not isinstance(values.get("kind"), str):
        raise InputError(f"{where}: is no Kubernetes resource: there is no kind")
    if not values["kind"].endswith("List"):
        yield values
        return
    items = values.get("items") or []
    if not isinstance(items, list):
        raise InputError(f"{where}: items: must be a list, not {json_type(items)}")
    for item in items:
        if not isinstance(item, dict):
            raise InputError(f"{where}: items: must be objects, not {json_type(item)}")
        yield item


def _quota(name: str, spec: Mapping[str, Any], where: str) -> FoundQuota:
    login = _object(spec, "authentication", where).get("type")
    if login is not None and login not in _LOGINS:
        raise InputError(
            f"{where}: spec.authentication.type: must be one of {', '.join(_LOGINS)}, not {login!r}"
        )
    user = name if login is None else f"{_LOGINS[login]}{name}"
    values = {}
    for field, value in _object(spec, "quotas", where).items():
        if value is None:
            continue
        if field not in _FIELDS:
            raise InputError(f"{where}: spec.quotas.{field}: unknown key")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(
                f"{where}: spec.quotas.{field}: must be a number, not {json_type(value)}"
            )
        try:
            values[_FIELDS[field]] = float(value)
        except OverflowError:
            raise InputError(f"{where}: spec.quotas.{field}: has too many digits") from None
    return FoundQuota({USER: user}, values, where)


def _object(values: Mapping[str, Any], field: str, where: str) -> Mapping[str, Any]:
    found = values.get(field)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InputError(f"{where}: {field}: must be an object, not {json_type(found)}")
    return found
