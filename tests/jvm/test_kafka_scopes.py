"""Kafka's own ClientQuotaManager, our scopes and the plugin's built-in quotas on the same requests:
the same quota and bucket."""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.groups.resolve import resolve, scopes_of
from quotaplane.groups.scope import Scope, encode
from tests.jvm.kafka_classes import ask_manager
from tests.jvm.kafka_plugin import ask_plugin
from tests.servers.kafka_server import kafka_jars

pytestmark = pytest.mark.nightly

CASES = 400
KINDS = ("u", "c", "uc")
NAMES = ["alice", "<default>", "a,b=c ~*"]
SCOPES = [
    Scope(user, client)
    for user, client in product([None, "<default>", *map(encode, NAMES)], repeat=2)
    if (user, client) != (None, None)
]
REQUESTS = list(product(["", "zed", *NAMES], repeat=2))
NO_QUOTA = "9.223372036854776E18"
"""Answer of the manager where no quota holds: the greatest long."""


def test_scopes_are_resolved_as_by_kafka() -> None:
    random = np.random.default_rng(0)
    # Few and many, also such of one kind only, for which Kafka has ways of its own.
    cases = [
        random.choice(len(SCOPES), random.integers(0, size + 1), replace=False)
        for size in random.integers(1, len(SCOPES), CASES)
    ]
    lines = []
    for case in cases:
        lines.append("new")
        lines += [
            f"put\t{SCOPES[scope].user or ''}\t{SCOPES[scope].client or ''}\t{turn}"
            for turn, scope in enumerate(case.tolist())
        ]
        lines += [f"ask\t{_sanitized(user)}\t{_sanitized(client)}" for user, client in REQUESTS]
    # Where no quota holds, the tags say nothing.
    said = [
        NO_QUOTA if line.startswith(NO_QUOTA) else line for line in ask_manager(kafka_jars(), lines)
    ]
    assert said == [line for case in cases for line in _ours(case)]
    assert 0.1 < said.count(NO_QUOTA) / len(said) < 0.8


def test_built_in_quotas_are_those_of_kafka() -> None:
    """Also the tags where no quota holds, and after quotas were removed, which Kafka remembers."""
    random = np.random.default_rng(1)
    lines = []
    for size in random.integers(1, len(SCOPES), CASES).tolist():
        # Of some kinds only, so that there are tables of one kind, and of two.
        kinds = set(random.choice(list(KINDS), random.integers(1, 4)).tolist())
        scopes = [scope for scope in SCOPES if _kind(scope) in kinds]
        lines.append("builtin")
        for turn in range(size):
            scope = scopes[random.integers(len(scopes))]
            quota = "" if random.random() < 0.3 else turn
            lines.append(f"put\t{scope.user or ''}\t{scope.client or ''}\t{quota}")
        lines += [f"ask\t{_sanitized(user)}\t{_sanitized(client)}" for user, client in REQUESTS]
    said = ask_plugin(lines)
    kafka = ["new" if line == "builtin" else line for line in lines]
    assert said == ask_manager(kafka_jars(), kafka)
    none = sum(line.startswith(NO_QUOTA) for line in said)
    assert 0.1 < none / len(said) < 0.8


def _kind(scope: Scope) -> str:
    return "".join(key for key, name in zip("uc", scope, strict=True) if name is not None)


def _ours(case: np.ndarray) -> list[str]:
    """Kafka's answers to all requests, made of ours."""
    users, clients = zip(*REQUESTS, strict=True)
    found = resolve(
        scopes_of(pa.array([str(SCOPES[scope]) for scope in case.tolist()], pa.string())),
        np.ones(len(case), bool),
        pa.array(users),
        pa.array(clients),
    )
    of_user, of_client = found.entity_user.to_pylist(), found.entity_client.to_pylist()
    return [
        f"{float(definition)}\t{_sanitized(of_user[entity])}\t{_sanitized(of_client[entity])}"
        if definition >= 0
        else NO_QUOTA
        for definition, entity in zip(found.definition.tolist(), found.entity.tolist(), strict=True)
    ]


def _sanitized(name: str | None) -> str:
    return encode(name) if name else ""
