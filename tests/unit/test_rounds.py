"""A round as bytes in, bytes out: what leaves the operator."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from quotaplane.settings import parse_settings
from quotaplane.state import ShardState
from quotaplane.streams.rounds import Output, round_config, run_round
from quotaplane.wire.events import pack_reports
from quotaplane.wire.own import encode_report
from quotaplane.wire.reports import decode

SETTINGS = parse_settings(
    {
        "transport": {"kind": "delta", "path": "topics"},
        "history": {"path": "history"},
        "checkpoint": "checkpoint",
        "reports": {"interval_s": 1.0},
    }
)
CONFIG = round_config(SETTINGS, epoch=1)


def report(broker: str, groups: list[str], at_ms: int) -> bytes:
    value = encode_report(
        broker=broker,
        started_at_ms=1,
        sequence=at_ms,
        window_ms=1000,
        groups=groups,
        usage=np.full((len(groups), 4), 3.0),
    )
    decoded = decode(
        [value], np.array([at_ms]), ["reports/0@1"], now_ms=at_ms, reports=SETTINGS.reports
    )
    ((_, payload),) = pack_reports(decoded, 1)
    return payload


def tables(outputs: list[Output]) -> dict[str, list[dict[str, object]]]:
    return {
        output.kind: [json.loads(output.payload)]
        if output.kind == "counts"
        else pa.ipc.open_stream(output.payload).read_all().to_pylist()
        for output in outputs
    }


def test_whatever_leaves_has_its_counts_with_it() -> None:
    state, _ = run_round(
        ShardState(),
        {"reports": [report("b1", [], 1_000)]},
        shard=0,
        seq=1,
        now_ms=1_000,
        config=CONFIG,
    )
    late = 1_000 + int(CONFIG.step.stale_after_ms) + 1
    state, outputs = run_round(state, {}, shard=0, seq=2, now_ms=late, config=CONFIG)
    found = tables(outputs)
    assert [row["status"] for row in found["brokers"]] == ["stale"]
    assert found["counts"][0]["now_ms"] == late


def test_a_round_that_changes_nothing_leaves_nothing() -> None:
    state, outputs = run_round(ShardState(), {}, shard=0, seq=1, now_ms=1_000, config=CONFIG)
    assert (outputs, state.rounds) == ([], 1)
