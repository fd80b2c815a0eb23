"""Load reports of both formats: what is read, and what becomes of bad ones."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.reported_loads import BUNDLES, REPORTS, ReportedLoads
from quotabalance.wire.load_batch import pack_loads, unpack_loads
from quotabalance.wire.load_reports import decode_load_report, encode_load_report
from quotabalance.wire.pb.balance_pb2 import LoadReport
from quotaplane.topics.bundle_names import parse_bundle
from quotaplane.wire.reasons import LOAD_REASONS, REASONS, UnusableReportError
from quotaplane.wire.rejected_reports import condensed
from tests.unit.balance.load_report_cases import (
    NOW_MS,
    bundle_of,
    decoded,
    load_of,
    local_broker_data,
)
from tests.unit.wire.wire_cases import damaged, with_fields

GOOD = encode_load_report(load_of(bytes_per_s=(1e6, 2e6, 3e6)))
NAN, INF = float("nan"), float("inf")


def test_a_report_is_read_as_it_was_written() -> None:
    load = load_of(bytes_per_s=(1e6, 5.0), draining=True)
    read = decode_load_report(encode_load_report(load))
    for name in ("broker", "started_at_ms", "sequence", "measured_at_ms", "draining"):
        assert getattr(read, name) == getattr(load, name)
    for name in ("usage", "limit", "rates", "topics", "sessions"):
        assert np.array_equal(getattr(read, name), getattr(load, name))
    assert read.bundles == load.bundles


def test_a_broker_without_bundles_is_a_heartbeat() -> None:
    batch = decoded(encode_load_report(load_of(bytes_per_s=())))
    assert batch.loads.reports["broker"].to_pylist() == ["b1:8080"]
    assert (len(batch.loads.bundles), len(batch.rejected)) == (0, 0)


def test_what_protobuf_writes_itself_is_read_too() -> None:
    """Columns that are not packed are valid protobuf."""
    message = LoadReport.FromString(GOOD)
    assert message.bytes_in_per_s == [5e5, 1e6, 1.5e6]
    assert decode_load_report(message.SerializeToString()).rates.shape == (3, 4)


def test_pulsar_s_own_report_is_read() -> None:
    batch = decoded(local_broker_data(bundles=2))
    (report,) = batch.loads.reports.to_pylist()
    assert (report["broker"], report["measured_at_ms"]) == ("b1:8080", NOW_MS - 1000)
    assert (report["cpu_usage"], report["cpu_limit"]) == (50.0, 400.0)
    assert batch.loads.bundles.to_pylist() == [
        {
            "report": 0,
            "bundle": bundle_of(number),
            "bytes_in_per_s": 1000.0,
            "bytes_out_per_s": 2000.0,
            "messages_in_per_s": 10.0,
            "messages_out_per_s": 20.0,
            "topics": 4,
            "sessions": 3,
        }
        for number in range(2)
    ]
    assert not len(batch.rejected)


def test_what_pulsar_does_not_know_is_zero() -> None:
    """An unmeasured resource is -1 of -1, and a bundle that was just loaded has no stats."""
    unknown = {"usage": -1.0, "limit": -1.0}
    batch = decoded(local_broker_data(memory=unknown, bundles=0) | {"bundles": [bundle_of(7)]})
    assert batch.loads.reports["memory_limit"].to_pylist() == [0.0]
    assert batch.loads.bundles["bytes_in_per_s"].to_pylist() == [0.0]


def _broken(name: str, value: Any) -> bytes:
    """A report with a field that the encoder would refuse."""
    return with_fields(LoadReport.FromString(GOOD), {name: value})


WHOLE = [
    (b"", "empty", "no value"),
    (None, "empty", "no value"),
    (
        b"x" * (9 << 20),
        "too_large",
        "9437184 bytes; reports.max_report_bytes is 8388608; raw bytes left out, "
        "there are too many",
    ),
    (b"hello", "wrong_protobuf", "not a LoadReport: it begins with 68 65 6c 6c 6f"),
    (GOOD[:-3], "not_protobuf", f"{len(GOOD) - 3} bytes that are not a LoadReport, or truncated"),
    (_broken("broker", ""), "no_broker", "the broker's name is empty"),
    (_broken("broker", "a\nb"), "no_broker", r"the broker's name is not printable: 'a\nb'"),
    (
        _broken("broker", "x" * 600),
        "no_broker",
        "the broker's name has 600 characters (at most 512)",
    ),
    (_broken("usage", [1.0]), "length_mismatch", "usage has 1 values; expected 5"),
    (_broken("limit", []), "length_mismatch", "limit has 0 values; expected 5"),
    (_broken("limit", [1.0] * 6), "length_mismatch", "limit has 6 values; expected 5"),
    (_broken("usage", [1.0, NAN, 0, 0, 0]), "not_finite", "usage of memory is nan"),
    (_broken("usage", [INF, 1.0, 0, 0, 0]), "not_finite", "usage of cpu is inf"),
    (_broken("limit", [1.0, 1.0, -1.0, 0, 0]), "negative", "limit of directMemory is -1"),
    (_broken("usage", [1e300, 0, 0, 0, 0]), "absurd", "usage of cpu is 1e+300"),
    (_broken("limit", [1.0, 1e-300, 0, 0, 0]), "absurd", "limit of memory is 1e-300"),
    (
        _broken("bytes_in_per_s", [1.0]),
        "length_mismatch",
        "bytes_in_per_s has 1 values for 3 bundles",
    ),
    (_broken("topics", [1]), "length_mismatch", "topics has 1 values for 3 bundles"),
    (_broken("sessions", [1] * 9), "length_mismatch", "more topics or sessions than 3"),
    (_broken("sequence", 2**63), "absurd", f"sequence is {2**63}"),
    (
        _broken("bundles", ["x"] * 5000),
        "too_many_entries",
        "5000 bundles in 15224 bytes; at most 100000",
    ),
    (
        _broken("measured_at_ms", NOW_MS + 31_000),
        "future",
        "was measured 31 s in the future; reports.max_clock_skew_s is 30",
    ),
    (
        _broken("started_at_ms", NOW_MS + 31_000),
        "future",
        "started 31 s in the future; reports.max_clock_skew_s is 30",
    ),
    (
        _broken("measured_at_ms", NOW_MS - 3_601_000),
        "stale",
        "measured 3601 s ago; brokers are forgotten after 3600",
    ),
    (
        {"cpu": {}},
        "missing_field",
        "without webServiceUrl, which names the broker",
    ),
    (
        {"weightedMaxEMA": 0.5},
        "missing_field",
        "without webServiceUrl, which names the broker; the extensible manager's load data is "
        "without it",
    ),
    (b'{"cpu": ', "not_json", "Expecting value: line 1 column 9 (char 8)"),
    (b'{"cpu": NaN}', "not_finite", "NaN is not a JSON number"),
    (b'{"a":' + b"[" * 10_000, "not_json", "nested too deeply: more than 32 levels"),
    (b'{"a":' + b"[" * 200_000, "not_json", "about 200002 values in 200005 bytes"),
    (b'{"a":' + b"9" * 5000 + b"}", "not_json", None),
    (b'{"\xff":1}', "not_json", None),
    (b'{"lastStats": {"a": 1, "b": 2, "a": 3}}', "not_json", "the key 'a' occurs twice"),
    (b'{"\\ud800": 1, "\\ud800": 2}', "not_json", "the key '\\ud800' occurs twice"),
    (local_broker_data(cpu={"usage": "NaN", "limit": 1.0}), "not_finite", "usage of cpu is NaN"),
    (
        local_broker_data(cpu={"usage": "5", "limit": 1.0}),
        "not_json",
        "usage of cpu is not a number: '5'",
    ),
    (local_broker_data(cpu={"usage": -5, "limit": 1.0}), "negative", "usage of cpu is -5"),
    (
        local_broker_data(cpu={"usage": 10**400, "limit": 1}),
        "absurd",
        "usage of cpu has too many digits",
    ),
    (local_broker_data(cpu=[1, 2]), "not_json", "cpu is not an object"),
    (local_broker_data(lastUpdate=1.5), "not_json", "lastUpdate is not a whole number"),
    (local_broker_data(lastUpdate=None), "missing_field", "without lastUpdate"),
    (local_broker_data(lastUpdate=-7), "absurd", "measured_at_ms is -7"),
    (
        local_broker_data(bundles={"a": 1}.keys().__len__(), lastStats=[1]),
        "not_json",
        "lastStats is not an object",
    ),
    (local_broker_data(lastStats={"a/b/0x00000000_0x10000000": 3}), "not_json", None),
    (local_broker_data(lastStats={"\ud800": {}}), "not_json", "a text in it is not Unicode"),
    (local_broker_data("\ud800"), "not_json", "a text in it is not Unicode"),
]


@pytest.mark.parametrize(("value", "reason", "detail"), WHOLE, ids=lambda case: str(case)[:30])
def test_a_report_that_can_t_be_used_is_a_dead_letter(
    value: Any, reason: str, detail: str | None
) -> None:
    batch = decoded(GOOD, value)
    assert batch.loads.reports["position"].to_pylist() == ["loads/0@0"]
    (letter,) = batch.rejected.to_pylist()
    assert (letter["reason"], letter["position"]) == (reason, "loads/0@1"), letter
    assert detail is None or letter["detail"] == detail
    assert letter["counts_as_bad"] == (reason != "stale")
    assert reason in REASONS | LOAD_REASONS


@pytest.mark.parametrize(
    ("name", "rate", "reason", "detail"),
    [
        ("acme/orders", 1.0, "bad_bundle", "'acme/orders' is not a bundle, or listed twice"),
        (bundle_of(0), 1.0, "bad_bundle", f"'{bundle_of(0)}' is not a bundle, or listed twice"),
        ("a/b/0x10000000_0x10000000", 1.0, "bad_bundle", None),
        ("a/b\n/0x10000000_0x20000000", 1.0, "bad_bundle", None),
        ("a/../0x10000000_0x20000000", 1.0, "bad_bundle", None),
        ("a/b?c#/0x10000000_0x20000000", 1.0, "bad_bundle", None),
        ("a/'b'/0x10000000_0x20000000", 1.0, "bad_bundle", None),
        (bundle_of(7), NAN, "not_finite", f"'{bundle_of(7)}': throughput_in is nan"),
        (bundle_of(7), -INF, "negative", f"'{bundle_of(7)}': throughput_in is -inf"),
        (bundle_of(7), -1.0, "negative", f"'{bundle_of(7)}': throughput_in is -1"),
        (bundle_of(7), 2e15, "absurd", f"'{bundle_of(7)}': throughput_in is 2e+15"),
    ],
)
def test_a_bad_bundle_does_not_hide_the_others(
    name: str, rate: float, reason: str, detail: str | None
) -> None:
    load = load_of(bytes_per_s=(1.0, 2.0, 3.0))
    load = replace(load, bundles=[*load.bundles[:2], name], rates=load.rates.copy())
    load.rates[2, 0] = rate
    batch = decoded(encode_load_report(load))
    assert batch.loads.bundles["bundle"].to_pylist() == load.bundles[:2]
    (letter,) = batch.rejected.to_pylist()
    assert (letter["reason"], letter["counts_as_bad"]) == (reason, False)
    assert detail is None or letter["detail"] == f"1 of 3 bundles: {detail}"
    assert decode_load_report(letter["raw"]).bundles == [name]


def test_a_bad_bundle_in_json_does_not_hide_the_others() -> None:
    report = local_broker_data(bundles=3)
    stats = report["lastStats"]
    stats[bundle_of(0)]["msgRateIn"] = "NaN"
    stats[bundle_of(1)]["topics"] = -1
    batch = decoded(report)
    assert batch.loads.bundles["bundle"].to_pylist() == [bundle_of(2)]
    assert batch.rejected["reason"].to_pylist() == ["not_finite"]


def test_a_flood_of_bad_reports_has_few_letters() -> None:
    found = condensed(decoded(*[b"junk"] * 5000).rejected)
    assert len(found) == 101
    detail = "4900 more reports for this reason, the last one at loads/0@4999"
    assert found["detail"][-1].as_py() == detail


def test_names_are_as_pulsar_writes_them() -> None:
    load = load_of(bundles=["acme/ORDERS/0xAB000000_0xFFFFFFFF"])
    names = decoded(encode_load_report(load)).loads.bundles["bundle"].to_pylist()
    assert names == ["acme/ORDERS/0xab000000_0xffffffff"]


def test_counts_that_are_not_told_are_unknown() -> None:
    nothing = np.zeros(0, np.int64)
    batch = decoded(encode_load_report(load_of(topics=nothing, sessions=nothing)), GOOD)
    assert batch.loads.bundles["topics"].to_pylist() == [-1, 3, 3, 3]


@pytest.mark.parametrize("wrong", [{"usage": np.ones(4)}, {"topics": np.ones(3)}])
def test_what_nobody_could_read_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnusableReportError):
        encode_load_report(replace(load_of(), **wrong))


def test_payloads_are_joined() -> None:
    first, second = decoded(GOOD).loads, decoded(b"", GOOD, GOOD).loads
    joined = unpack_loads([pack_loads(first), pack_loads(second)])
    assert joined.bundles["report"].to_pylist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert joined.reports.schema == REPORTS
    picked = joined.take([2, 0])
    assert picked.reports["position"].to_pylist() == ["loads/0@2", "loads/0@0"]
    assert picked.bundles["report"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert unpack_loads([]) == ReportedLoads.none()


texts = st.text(max_size=12) | st.sampled_from([bundle_of(1), bundle_of(2), "a/b/0x0_0x1"])
numbers = st.floats() | st.integers(-(2**70), 2**70) | st.sampled_from([0, 1.5, -1])
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def _changed_json(draw: st.DrawFn) -> bytes:
    report = local_broker_data(bundles=2)
    places = [report, report["lastStats"], report["cpu"], report["lastStats"][bundle_of(0)]]
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places))
        place[draw(st.sampled_from(sorted(place)) if place else texts)] = draw(anything)
    return json.dumps(report).encode("utf-8", "surrogatepass")


@given(
    st.lists(damaged(st.just(GOOD)) | _changed_json() | st.binary(max_size=40), max_size=4),
)
def test_nothing_that_arrives_makes_the_decoder_raise_or_lets_bad_values_in(
    values: list[bytes],
) -> None:
    batch = decoded(GOOD, *values)
    loads, rejected = batch.loads, batch.rejected
    assert (loads.reports.schema, loads.bundles.schema) == (REPORTS, BUNDLES)
    whole = set(rejected.filter(rejected["counts_as_bad"])["position"].to_pylist())
    stale = {r["position"] for r in rejected.to_pylist() if r["reason"] == "stale"}
    used = set(loads.reports["position"].to_pylist())
    assert used | whole | stale == {f"loads/0@{n}" for n in range(len(values) + 1)}
    assert not used & (whole | stale)
    assert set(rejected["reason"].to_pylist()) <= (REASONS | LOAD_REASONS).keys()
    for name in [*loads.reports.column_names, *loads.bundles.column_names]:
        table = loads.reports if name in REPORTS.names else loads.bundles
        if str(table.schema.field(name).type) in ("double", "float"):
            column = table[name].to_numpy()
            assert (np.isfinite(column) & (column >= 0)).all()
    for row in loads.bundles.to_pylist():
        assert str(parse_bundle(row["bundle"])) == row["bundle"]


@given(damaged(st.just(GOOD)))
def test_one_report_is_read_or_refused(value: bytes) -> None:
    with suppress(UnusableReportError):
        decode_load_report(value).check()
