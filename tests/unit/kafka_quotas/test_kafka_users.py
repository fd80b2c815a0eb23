"""Strimzi's KafkaUser resources, as people write them and as kubectl prints them."""

from __future__ import annotations

import json

import pytest
import yaml

from quotaplane.errors import InputError
from quotaplane.kafka_quotas.client_quotas import gather
from quotaplane.kafka_quotas.kafka_users import read_kafka_users

USERS = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata:
  name: alice
  labels: {strimzi.io/cluster: prod}
spec:
  authentication: {type: tls}
  authorization: {type: simple, acls: [{resource: {type: topic, name: "*"}, operations: [All]}]}
  quotas:
    producerByteRate: 1048576
    consumerByteRate: 2097152
    requestPercentage: 55
    controllerMutationRate: 10
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaUser
metadata: {name: bob, labels: {strimzi.io/cluster: prod}}
spec:
  authentication: {type: scram-sha-512, password: {valueFrom: {secretKeyRef: {name: s, key: p}}}}
  quotas: {controllerMutationRate: 0.5}
---
---
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaTopic
metadata: {name: t}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: carol}
spec: {authentication: {type: tls-external}, quotas: {producerByteRate: 7}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: oauth}
spec: {quotas: {producerByteRate: 8, consumerByteRate: null}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaUser
metadata: {name: none}
spec: {}
"""

FOUND = {
    "user=CN%3Dalice": {
        "producer_byte_rate": 1048576,
        "consumer_byte_rate": 2097152,
        "request_percentage": 55,
        "controller_mutation_rate": 10,
    },
    "user=bob": {"controller_mutation_rate": 0.5},
    "user=CN%3Dcarol": {"producer_byte_rate": 7},
    "user=oauth": {"producer_byte_rate": 8},
    "user=none": {},
}


def read(text: str) -> dict[str, dict[str, float]]:
    found = gather(read_kafka_users(text, "f")).by_scope
    return {str(scope): values for scope, values in found.items()}


def test_users_of_several_documents() -> None:
    assert read(USERS) == FOUND


def test_a_list_as_kubectl_prints_it_as_yaml_or_json() -> None:
    items = [one for one in yaml.safe_load_all(USERS) if one]
    printed = {"apiVersion": "v1", "kind": "List", "items": items, "metadata": {}}
    assert read(json.dumps(printed, indent=4)) == FOUND
    assert read(yaml.safe_dump(printed)) == FOUND
    assert read(yaml.safe_dump({"kind": "KafkaUserList", "items": None})) == {}


BASE = "{apiVersion: kafka.strimzi.io/v1, kind: KafkaUser, metadata: {name: a}, spec: {quotas: "


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("just text", "must be a mapping"),
        ("a: 1", "is no Kubernetes resource"),
        ("kind: KafkaUser", "metadata.name: must be a name"),
        ("{kind: KafkaUser, metadata: {name: 5}}", "metadata.name: must be a name"),
        ("{kind: KafkaUser, metadata: {name: a}, apiVersion: other/v1}", "must begin with kafka"),
        ("{kind: KafkaUser, metadata: [a]}", "metadata: must be an object"),
        ("{kind: List, items: {a: 1}}", "items: must be a list"),
        ("{kind: List, items: [1]}", "items: must be objects"),
        (BASE + "{producerByteRate: '5'}}}", "KafkaUser 'a': spec.quotas.producerByteRate: must"),
        (BASE + "{producerByteRate: true}}}", "must be a number, not true"),
        (BASE + "{produceByteRate: 5}}}", "spec.quotas.produceByteRate: unknown key"),
        (BASE + "{producerByteRate: 0x10}}}", "means different things"),
        (BASE + "{}, authentication: {type: kerberos}}}", "authentication.type: must be one of"),
        ("a: &a [*a]", "contains itself"),
        ("[" * 100_000, "nested too deeply"),
        ('kind: "\x07"', "not YAML"),
        ("{kind: KafkaUser, kind: KafkaUser}", "occurs twice"),
    ],
)
def test_what_is_wrong_is_named(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        read(text)
    assert str(caught.value).startswith("f: ")
    assert str(caught.value).isprintable()


def test_users_of_two_clusters_are_not_mixed() -> None:
    other = USERS.replace(
        "name: bob, labels: {strimzi.io/cluster: prod}",
        "name: bob, labels: {strimzi.io/cluster: test}",
    )
    with pytest.raises(InputError, match="import one cluster at a time"):
        read(other)


def test_numbers_are_bounded() -> None:
    text = BASE + "{producerByteRate: " + "9" * 90 + "}}}"
    assert read(text) == {"user=a": {"producer_byte_rate": 1e90}}
