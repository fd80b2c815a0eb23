"""Targets for the bytes on topics: reports, limits, load reports, plans; and for the step."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from quotabalance.planning.decisions import Decisions, Move, Split
from quotabalance.wire.balance_plans import decode_plan, encode_plan
from quotabalance.wire.load_batch import decode_load_reports, pack_loads, unpack_loads
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.client.attachments import ReceivedAttachments
from quotaplane.client.receiver import ReceivedLimits
from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.errors import InputError
from quotaplane.groups.attachments import part_of
from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.model import (
    COUNTER_COLUMNS,
    DIMENSIONS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    Round,
    Transition,
    group_id,
)
from quotaplane.quota.config import Events
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import step
from quotaplane.wire.attachments import (
    AttachmentsMessage,
    decode_attachments,
    encode_attachments,
)
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.reports import Decoded, encode_stock_report
from quotaplane.wire.shard_inputs import (
    GROUPS,
    pack_groups,
    pack_reports,
    unpack_groups,
    unpack_reports,
)
from quotaplane.wire.signatures import SigningKeys
from tests.fuzz.mutators import TEXTS, changed_json, damaged, parts_of, protobuf, several
from tests.fuzz.target import Target
from tests.state_invariants import check_state
from tests.unit.balance.load_report_cases import BOUNDS, bundle_of, load_of, local_broker_data
from tests.unit.quota.step_cases import CONFIG
from tests.unit.wire.wire_cases import NOW_MS, decode_now, limits_message, own_report

KEYS = SigningKeys({"a": "0123456789abcdef0123456789abcdef", "b": "x" * 40}, sign_with="a")
OWN = (
    own_report(started_at_ms=NOW_MS - 9000),
    own_report(broker="b1", started_at_ms=0, observed=True),
    own_report(broker="b2", started_at_ms=0, sequence=9, groups=["a", "a::b"], observed=True),
    own_report(groups=[], usage=np.empty((0, 4)), applied=(1, 7)),
    own_report(
        groups=None,
        group_ids=[group_id("a"), group_id("a::b")],
        usage=np.full((2, len(DIMENSIONS)), 5.0),
        throttled=np.full((2, len(DIMENSIONS)), 1.0),
        applied=(1, 2),
        applied_seqs=np.array([2, -1]),
        limits=np.full((2, len(DIMENSIONS)), 7.0),
        counters=np.full((2, len(COUNTER_COLUMNS)), 1e12),
    ),
)
STOCK = (
    encode_stock_report("b1", ["a", "b"], np.array([[3, 300, np.nan, np.nan], [1, 1, 2, 2]])),
    encode_stock_report("b2", ["a::b"], np.array([[3, 300, 7, 2**40]])),
    encode_stock_report("b3", [], np.empty((0, 4))),
)
LIMITS = tuple(
    limits_message(
        shard=1,
        epoch=3,
        seq=9,
        issued_at_ms=NOW_MS,
        lease_ms=120_000,
        **{"limits": np.array([[20.0, np.inf], [1 / 3, 0.0]]), **given},
    )
    for given in (
        {"removed_groups": ["c"]},
        {"groups": ["a", "b::c"], "safe_limits": np.ones((2, 2)), "throttles": ["", "{}"]},
        {
            "groups": None,
            "group_ids": [group_id("a"), 7],
            "removed_group_ids": [9],
            "broker_started_at_ms": 5,
        },
    )
)
_KINDS = ("user=a,client=", "topic=", "namespace=a/", "other=")
ATTACHMENTS = tuple(
    encode_attachments(AttachmentsMessage(part, 1, part, NOW_MS, names, ("a::b",) * len(names)))
    for part in range(3)
    for names in [
        tuple(
            name
            for kind in _KINDS
            for name in (f"{kind}{number}" for number in range(64))
            if part_of(name) == part
        )
    ]
)
LOADS = (encode_load_report(load_of()), encode_load_report(load_of("b2", (1.0, 2.0, 3e9))))
LOCAL = (local_broker_data(bundles=2), {**local_broker_data("b2:8080"), "bundles": ["a/b/0x0_0x1"]})
_MOVE = Move(bundle_of(1), "b1:8080", "b2:8080", 1e6, "Overloaded", "b1 is 1.5 times the mean")
_SPLIT = Split(bundle_of(3), "b3:8080", (0x3100_0000, 0x3200_0000), "TooBig", "why")
PLANS = tuple(
    encode_plan(decisions, epoch=5, seq=6, decided_at_ms=7, mode=mode)
    for decisions in (Decisions((_MOVE,), (_SPLIT,)), Decisions((_MOVE,)), Decisions((), (_SPLIT,)))
    for mode in ("propose", "auto")
)


def _decode(values: list[bytes]) -> Decoded:
    decoded = decode_now(*values)
    reports = decoded.headers.num_rows + int(np.sum(decoded.rejected["reports"].to_numpy()))
    assert decoded.headers.num_rows <= len(values) <= max(reports, 1), "a report is lost"
    bad = decoded.rejected.filter(decoded.rejected["counts_as_bad"])
    both = {*bad["position"].to_pylist()} & {*decoded.headers["position"].to_pylist()}
    assert not both, "a report is used and refused"
    amounts = {*RATE_COLUMNS, *THROTTLED_COLUMNS, *COUNTER_COLUMNS}
    for name in amounts.intersection(decoded.entries.column_names):
        assert not np.isinf(decoded.entries[name].to_numpy()).any(), f"an infinite {name}"
    return decoded


def _several(random: Random, samples: tuple[bytes, ...]) -> bytes:
    return several(random, lambda each: protobuf(each, samples), 40)


def _batch(value: bytes) -> None:
    for _, payload in pack_reports(_decode(parts_of(value)), 2):
        unpack_reports([payload])


def _limits(value: bytes, keys: SigningKeys | None = None) -> None:
    message = decode_limits(value, keys)
    assert (message.limits >= 0).all(), "a limit is negative or NaN"
    own = ReceivedLimits([message.broker], ["a", "b"], started_at_ms=5)
    own.apply(message, NOW_MS)
    own.acknowledged(0, own.columns_of(["a", "b"]))
    assert not np.isnan(own.all(NOW_MS)).any(), "a limit is NaN"


def _attachments(value: bytes, keys: SigningKeys | None = None) -> None:
    message = decode_attachments(value, keys)
    again = encode_attachments(message)
    assert decode_attachments(again) == message, "attachments change on their way"


def _attached(value: bytes) -> None:
    received = ReceivedAttachments()
    for message in parts_of(value):
        try:
            received.apply(decode_attachments(message))
        except InputError:
            continue
    for name in (None, "a", "a b", "<default>"):
        group = received.group_of(user=name, client="a", topic=name, namespace=name)
        assert group is None or group in received.groups


def _received(value: bytes) -> None:
    received = ClusterLimits()
    received.expect({"b1"}, ["a", "b"])
    for at, message in enumerate(parts_of(value)):
        try:
            received.receive(decode_limits(message), NOW_MS + at)
        except InputError:
            continue
    pairs = np.array([0, 0, 1]), np.array([0, 1, 0])
    limits = received.in_force(["b1", "?"], ["a", "b::c"], *pairs, NOW_MS)
    assert not (limits < 0).any(), "a limit is negative"
    received.lease_ends_ms()
    received.is_known(["a"])
    received.forget(NOW_MS + 10**9)


def _signed(random: Random, samples: tuple[bytes, ...]) -> bytes:
    if random.random() < 0.5:
        return KEYS.sign(protobuf(random, samples))
    return damaged(random, KEYS.sign(random.choice(samples)), samples)


def _loads(value: bytes) -> None:
    decoded = decode_load_reports([value], np.array([NOW_MS]), ["0"], now_ms=NOW_MS, bounds=BOUNDS)
    assert decoded.loads.reports.num_rows + decoded.rejected.num_rows > 0, "a report is lost"
    unpack_loads([pack_loads(decoded.loads)])


def _plan(value: bytes) -> None:
    message = decode_plan(value)
    again = encode_plan(
        message.decisions,
        epoch=message.epoch,
        seq=message.seq,
        decided_at_ms=message.decided_at_ms,
        mode=message.mode,
    )
    assert decode_plan(again) == message, "a plan changes on its way"


_RATES = (0.0, 1.0, 5e-324, 1e-9, 1e3, 1e18, float("nan"), float("inf"), -1.0, 1.7e308, None, None)
_NAMES = ("a", "a::b", "a::b::c", "b", "user=<default>", "x" * 1024)


def _hostile_groups(random: Random) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for _ in range(random.randint(0, 4)):
        name = random.choice(_NAMES)
        row: dict[str, Any] = dict.fromkeys(GROUPS.names)
        row |= {"group": name, "group_id": group_id(name), "deleted": random.random() < 0.2}
        row["version"] = random.choice((0, 1, 2, 2, 3, 2**40))
        for column in random.sample(RATE_COLUMNS, random.randint(0, 3)):
            row[column] = random.choice(_RATES)
        for column in random.sample(list(POLICY_COLUMNS), random.choice((0, 0, 1, 2))):
            row[column] = _hostile_option(random, POLICY_COLUMNS[column])
        rows.append(row)
    return rows


def _hostile_option(random: Random, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        return random.choice(_RATES)
    if pa.types.is_integer(kind):
        return random.choice((0, 1, -1, 1000, -(2**31), 2**31 - 1))
    if pa.types.is_boolean(kind):
        return random.random() < 0.5
    terms = ("{}", '{"b1": {"weight": 2}}', '{"b1": {"floor": 5}}')
    text = random.choice(("hard", "soft", "shadow", *terms, *TEXTS))
    return text.encode("utf-8", "replace").decode()


def _step_input(random: Random) -> bytes:
    """Rounds as JSON lines: changes of groups, and reports in hex."""
    rounds = []
    for _ in range(random.randint(1, 3)):
        made = [protobuf(random, OWN if random.random() < 0.7 else STOCK) for _ in range(3)]
        valid = [random.choice((*OWN, *STOCK)) for _ in range(2)]
        rounds.append(
            {
                "groups": _hostile_groups(random),
                "reports": [value.hex() for value in (*made, *valid)],
                "after_ms": random.choice((0, 1000, 5000, 20_000, 10**9)),
                "strict": random.random() < 0.3,
            }
        )
    return json.dumps(rounds).encode()


def _step(value: bytes) -> None:
    state, now_ms = ShardState(), NOW_MS
    for seq, given in enumerate(json.loads(value)):
        now_ms += given["after_ms"]
        decoded = _decode([bytes.fromhex(report) for report in given["reports"]])
        groups = pa.Table.from_pylist(given["groups"], schema=GROUPS)
        payloads = [payload for _, payload in pack_groups(groups, 1)]
        events = Events(headers=decoded.headers, entries=decoded.entries)
        if payloads:
            events = replace(events, groups=unpack_groups(payloads))
        config = replace(CONFIG, transition=Transition.STRICT) if given["strict"] else CONFIG
        state, outcome = step(state, events, Round(epoch=1, seq=seq, now_ms=now_ms), config)
        check_state(state)
        state = load(dump(state))
        for name in outcome.limits.column_names:
            if name in RATE_COLUMNS:
                limits = outcome.limits[name].to_numpy()
                assert (limits >= 0).all(), f"{name} is negative or NaN"


TARGETS = {
    **{
        name: Target(lambda random, samples=samples: _several(random, samples), _batch, ())
        for name, samples in (
            ("reports-own", OWN),
            ("reports-stock", STOCK),
            ("reports-mixed", (*OWN, *STOCK, *LIMITS)),
        )
    },
    "step": Target(_step_input, _step, ()),
    "limits": Target(lambda random: protobuf(random, LIMITS), _limits),
    "limits-signed": Target(
        lambda random: _signed(random, LIMITS), lambda value: _limits(value, KEYS)
    ),
    "limits-received": Target(
        lambda random: several(random, lambda r: protobuf(r, LIMITS), 5), _received
    ),
    "attachments": Target(lambda random: protobuf(random, ATTACHMENTS), _attachments),
    "attachments-signed": Target(
        lambda random: _signed(random, ATTACHMENTS), lambda value: _attachments(value, KEYS)
    ),
    "attachments-received": Target(
        lambda random: several(random, lambda r: protobuf(r, ATTACHMENTS), 5), _attached, ()
    ),
    "loads": Target(lambda random: protobuf(random, LOADS), _loads, ()),
    "loads-of-pulsar": Target(lambda random: changed_json(random, LOCAL), _loads, ()),
    "plans": Target(lambda random: protobuf(random, PLANS), _plan),
}
