"""Targets for what people write: settings, files of groups, quotas, names, and requests' bodies."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from quotabalance.planning.policies import read_policies
from quotaplane.groups.flaws import option_flaws, quota_flaws
from quotaplane.groups.hierarchy import ancestors
from quotaplane.groups.names import check_name, flawed_names
from quotaplane.groups.quota_text import parse_quota
from quotaplane.groups.resolve import resolve, scopes_of
from quotaplane.groups.scope import is_scope, parse_scope, scope_of
from quotaplane.model import MAX_RATE
from quotaplane.parsing.strict_json import parse_case, parse_json
from quotaplane.registry.group_files import read_group_files
from quotaplane.registry.group_input import GivenGroups, given_groups, read_group, read_groups
from quotaplane.server.schemas import GroupBody, PulsarGroup, RollbackBody
from quotaplane.server.tokens import parse_key_set
from quotaplane.server.what_if_routes import WhatIfBody
from quotaplane.settings import load_settings
from tests.fuzz.mutators import TEXTS, changed_json, changed_text, texts
from tests.fuzz.target import Target

_CONF = Path(__file__).resolve().parents[2] / "conf"
_YAML_TOKENS = (
    *("&a ", "*a", "<<: *a", "<<: ", "!!int ", "!!python/name:os.system ", "!x ", "? ", "- ", ": "),
    *("[", "]", "{", "}", ",", "|\n", ">-\n", "'", '"', "#", "\n", "\n  ", "\t", "---\n", "...\n"),
    *("%YAML 1.2\n", "1:1:1", "2026-02-30", ".inf", ".nan", "0x1f", "0o17", "~", "yes", "${HOME}"),
    *("${NO_SUCH}", "${", "9" * 50, "9" * 5000, "1:" * 60, "- " * 40, "[" * 40, "{a: " * 40),
    *TEXTS,
)
GROUP_FILES = (
    "- group: acme\n  publish_bytes_per_s: 100\n  weight: 2\n- group: acme::orders\n"
    "  quotas: [write 10MB/min, read 5 reqs/s]\n  throttle: {'*': {mode: hard}}\n",
    "group: a\nmode: soft\nbrokers: {b1: {weight: 2, floor: 5}}\nthrottle: {publish_bytes: "
    "{law: sliding_window, window_s: 60}}\n",
    "- &base {group: a, weight: 2}\n- {<<: *base, group: b}\n",
)
QUOTAS = (
    *("write 10MB/min", "read 1000 reqs/sec", "Read 5G / hour", "1048576 bytes/sec"),
    *("5 mutations/s", "200 ms/s", "both 1.5K bytes/day", "1000 reqs/sec"),
)
_QUOTA_TOKENS = (*"0123456789.", *" /eE-+", *("MB", "K", "min", "/s", "bytes", "read"), *TEXTS)
NAMES = ("acme", "acme::orders", "user=alice,client=<default>", "client=app%2D1", "a/b/c")
_NAME_TOKENS = (*"=,%:<>/ ", "::", "user=", "client=", "<default>", "%41", "%ff", *TEXTS)
RECORDS: tuple[dict[str, Any], ...] = (
    {
        "group": "a",
        "publish_bytes_per_s": 5,
        "quotas": ["write 10 reqs/s"],
        "mode": "soft",
        "weight": 2.0,
        "priority": 1,
        "enforcement_percent": "50",
        "brokers": {"b1": {"weight": 2, "priority": 1, "floor": 3, "ceiling": 9}},
        "throttle": {
            "*": {"mode": "hard", "law": "token_bucket"},
            "publish_bytes": {"window_s": 5},
        },
        "pulsar_fields": {"replicationDispatchRateInMsgs": 7, "a": {"b": [1, None]}},
    },
    {"group": "b", "quotas": ["read 5MB/day"], "throttle": {"dispatch_bytes": {"samples": 4}}},
)
BODIES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (GroupBody, {k: v for k, v in RECORDS[0].items() if k != "group"}),
    (RollbackBody, {"groups": ["a"], "version": 5, "at": None, "why": "because"}),
    (RollbackBody, {"groups": [], "at": "2026-03-01T12:00:00Z"}),
    (PulsarGroup, {"publishRateInMsgs": 5, "dispatchRateInBytes": -1}),
    (PulsarGroup, {"replicationDispatchRateInMsgs": 5, "replicatorDispatchRate": {"a": 1}}),
    (WhatIfBody, {"group": "a", "since": "2h", "points": 5, "changes": {"weight": 2}, "law": "x"}),
)
BALANCE_POLICIES = {
    "isolation": [
        {"namespaces": ["acme/.*"], "primary": ["b1.*"], "secondary": ["b2"], "min_primary": 1}
    ],
    "anti_affinity": {"acme/orders": "g", "acme/bills": "g"},
}


_IN_MEMORY = "/dev/shm"
_FOLDER = tempfile.TemporaryDirectory(
    prefix="quotaplane-fuzz-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
)


def _file(name: str, value: bytes) -> str:
    path = Path(_FOLDER.name, f"{os.getpid()}-{name}")
    path.write_bytes(value)
    return str(path)


@functools.cache
def _settings_samples() -> tuple[str, ...]:
    def bare(text: str) -> str:
        return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))

    return (
        "transport: {kind: delta, path: t}\nhistory: {path: h}\ncheckpoint: c\nshards: 2\n",
        *(bare(path.read_text(encoding="utf-8")) for path in sorted(_CONF.glob("*.yaml"))),
    )


def _yaml(random: Random, samples: tuple[str, ...]) -> bytes:
    text = changed_text(random, samples, _YAML_TOKENS)
    return text.encode("utf-8", random.choice(("replace", "surrogatepass")))


def _groups(value: bytes) -> None:
    given = read_group_files(_file("groups.yaml", value))
    assert not np.isnan(given.quotas).any(), "a quota is NaN"


def _groups_json(value: bytes) -> None:
    _look_for_flaws(read_groups(_file("groups.json", value)))


def _look_for_flaws(given: GivenGroups) -> None:
    list(quota_flaws(given.quotas))
    if given.policy is not None:
        list(option_flaws(given.policy))


def _quota(value: bytes) -> None:
    given = parse_quota(value.decode("utf-8", "surrogatepass"))
    assert 0 <= given.rate_per_s <= MAX_RATE, given


def _name(value: bytes) -> None:
    name = value.decode("utf-8", "surrogatepass")
    check_name(name)
    ancestors(name)
    assert list(flawed_names(pa.array([name]))) == [], "two checks disagree"
    if is_scope(name):
        scope = parse_scope(name)
        assert str(scope) == name
    scopes = scopes_of(pa.array([name, "user=<default>"]))
    scope_of(name, None)
    resolve(scopes, np.ones(2, np.bool_), pa.array([name, ""]), pa.array(["x", name]))


def _record(value: bytes) -> None:
    record = parse_json(value.decode("utf-8", "replace"), "body")
    if isinstance(record, dict):
        _look_for_flaws(given_groups(["a"], [read_group(record, str)]))


def _body(random: Random) -> bytes:
    which = random.randrange(len(BODIES))
    return b"%d" % which + changed_json(random, (BODIES[which][1],))


def _checked_body(value: bytes) -> None:
    model = BODIES[int(value[:1])][0]
    parse_case(parse_json(value[1:].decode("utf-8", "replace"), "body"), model, "body")


def _policies(value: bytes) -> None:
    read_policies(parse_json(value.decode("utf-8", "replace"), "policies"))


_KEY = {"kty": "RSA", "use": "sig", "kid": "k", "n": "u" * 342, "e": "AQAB"}

TARGETS = {
    "settings": Target(
        lambda random: _yaml(random, _settings_samples()),
        lambda value: load_settings(_file("settings.yaml", value)),
    ),
    "group-files": Target(lambda random: _yaml(random, GROUP_FILES), _groups),
    "group-lists": Target(lambda random: changed_json(random, (list(RECORDS),)), _groups_json),
    "group-records": Target(lambda random: changed_json(random, RECORDS), _record),
    "quotas": Target(texts(QUOTAS, _QUOTA_TOKENS), _quota),
    "names": Target(texts(NAMES, _NAME_TOKENS), _name),
    "bodies": Target(_body, _checked_body),
    "balance-policies": Target(lambda random: changed_json(random, [BALANCE_POLICIES]), _policies),
    "key-sets": Target(
        lambda random: changed_json(random, ({"keys": [_KEY]},)), parse_key_set, (ValueError,)
    ),
}
