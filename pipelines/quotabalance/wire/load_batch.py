"""Decodes batches of load reports into tables, and makes dead letters of bad ones.

No content of the topic makes ``decode_load_reports`` raise. A report with a broken frame is refused
whole; of a report with some unusable bundles only these are refused, so that one tenant's bad
values don't hide the broker's others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotabalance.planning.reported_loads import (
    BUNDLES,
    COUNT_COLUMNS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    REPORTS,
    USAGE_COLUMNS,
    ReportedLoads,
)
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.bundle_checks import REASON_OF_FLAW, describe_flaws, flaws_of_bundles
from quotabalance.wire.load_reports import decode_load_report, encode_load_report
from quotabalance.wire.pulsar_load_json import decode_local_broker_data, is_json
from quotaplane.arrow import pack, unpack
from quotaplane.model import FloatArray, IntArray
from quotaplane.wire.entry_checks import MOST_RATE
from quotaplane.wire.reasons import EMPTY, FUTURE, STALE, TOO_LARGE, UnusableReportError
from quotaplane.wire.rejected_reports import Refusal, letters_of_batch, refusal
from quotaplane.wire.sender_rules import ANY_SENDER, SenderRules

_MOST_KEPT: Final = 100
"""Most bad bundles of a report that its dead letter contains."""
_MOST_BUNDLES: Final = 100_000
"""Bundles in a report: as many as all brokers have in the largest cluster measured
(docs/operate/balance-job.md)."""


class LoadBounds(NamedTuple):
    """Which load reports are used."""

    max_report_bytes: int = 8 << 20
    max_clock_skew_s: float = 30.0
    gone_after_s: float = 3600.0
    """A report that was measured longer ago than this is not used."""


class DecodedLoads(NamedTuple):
    """A batch of load reports."""

    loads: ReportedLoads
    rejected: pa.Table
    """Dead letters (``shard_inputs.REJECTED``)."""


def decode_load_reports(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    positions: Sequence[str],
    *,
    now_ms: int,
    bounds: LoadBounds,
    senders: SenderRules = ANY_SENDER,
) -> DecodedLoads:
    """Decode and check a batch of load reports, of both formats in any order.

    ``values``, ``published_at_ms`` and ``positions`` (in their topics) have one element per report.
    ``senders``: which brokers they may name.

    >>> load = BrokerLoad("b1", 1, 7, 5_000, np.ones(5), np.ones(5),
    ...     ["acme/orders/0x00000000_0xffffffff", "acme"], np.ones((2, 4)))
    >>> decoded = decode_load_reports([encode_load_report(load), b"?"], np.array([5000, 5000]),
    ...     ["0@1", "0@2"], now_ms=6000, bounds=LoadBounds())
    >>> decoded.loads.bundles.select(["report", "bundle", "bytes_in_per_s"]).to_pylist()
    [{'report': 0, 'bundle': 'acme/orders/0x00000000_0xffffffff', 'bytes_in_per_s': 1.0}]
    >>> decoded.rejected.select(["reason", "position"]).to_pylist()
    [{'reason': 'bad_bundle', 'position': '0@1'}, {'reason': 'wrong_protobuf', 'position': '0@2'}]
    """
    refusals: list[Refusal] = []
    read: dict[int, BrokerLoad] = {}
    for index, value in enumerate(values):
        try:
            read[index] = _read(value or b"", int(published_at_ms[index]), now_ms, bounds)
        except UnusableReportError as error:
            refusals.append(refusal(index, error))
    names = pa.array([load.broker for load in read.values()], pa.string())
    of_senders = senders.refusals(np.array([*read], np.int64), names)
    for index in (index for one in of_senders for index in one.which.tolist()):
        del read[index]
    kept, in_part = _usable_bundles(read)
    indexes = np.array([*read], np.int64)
    loads = _tables(list(read.values()), indexes, published_at_ms, positions, kept)
    refusals += [*of_senders, *in_part]
    return DecodedLoads(loads, letters_of_batch(refusals, values, published_at_ms, positions))


def _read(value: bytes, published_at_ms: int, now_ms: int, bounds: LoadBounds) -> BrokerLoad:
    if not value:
        raise UnusableReportError(EMPTY, "no value")
    if len(value) > bounds.max_report_bytes:
        most = bounds.max_report_bytes
        raise UnusableReportError(
            TOO_LARGE, f"{len(value)} bytes; reports.max_report_bytes is {most}"
        )
    if is_json(value):
        load = decode_local_broker_data(value, published_at_ms, _MOST_BUNDLES)
    else:
        load = decode_load_report(value, _MOST_BUNDLES)
    times = {"started": load.started_at_ms, "was measured": load.measured_at_ms}
    for what, at_ms in times.items():
        if at_ms - now_ms > bounds.max_clock_skew_s * 1000:
            raise UnusableReportError(
                FUTURE,
                f"{what} {(at_ms - now_ms) / 1000:g} s in the future; "
                f"reports.max_clock_skew_s is {bounds.max_clock_skew_s:g}",
            )
    age_s = (now_ms - load.measured_at_ms) / 1000
    if age_s > bounds.gone_after_s:
        raise UnusableReportError(
            STALE, f"measured {age_s:g} s ago; brokers are forgotten after {bounds.gone_after_s:g}"
        )
    return load


class _Kept(NamedTuple):
    """The usable bundles of all reports."""

    report: IntArray
    """Index among the reports that were read."""
    names: pa.StringArray
    rates: FloatArray
    counts: tuple[IntArray, IntArray]


def _usable_bundles(read: dict[int, BrokerLoad]) -> tuple[_Kept, list[Refusal]]:
    """The usable bundles of the reports by index, and the refusals of the others."""
    loads = list(read.values())
    sizes = np.array([len(load.bundles) for load in loads], np.int64)
    report = np.repeat(np.arange(len(loads)), sizes)
    names = pa.concat_arrays([pa.array([], pa.string()), *(load.names() for load in loads)])
    rates = np.concatenate([np.zeros((0, len(RATE_COLUMNS))), *(load.rates for load in loads)])
    counts = tuple(
        np.concatenate([np.zeros(0, np.int64), *(_known(load, name) for load in loads)])
        for name in COUNT_COLUMNS
    )
    refusals = []
    names, codes = flaws_of_bundles(report, names, rates, MOST_RATE)
    if codes.any():
        begins = np.cumsum(sizes) - sizes
        indexes = np.array([*read], np.int64)
        worst = np.zeros(len(loads), np.uint8)
        np.maximum.at(worst, report, codes)

        def bundles_of(index: int) -> tuple[BrokerLoad, npt.NDArray[np.uint8]]:
            row = int(np.searchsorted(indexes, index))
            load, begin = loads[row], int(begins[row])
            return load, codes[begin : begin + len(load.bundles)]

        def detail(index: int) -> str:
            load, own = bundles_of(index)
            bad = np.flatnonzero(own)
            shown = load.take(bad[:_MOST_KEPT])
            return describe_flaws(
                shown.bundles, shown.rates, own[bad], MOST_RATE, bad=len(bad), size=len(own)
            )

        def part(index: int) -> bytes:
            load, own = bundles_of(index)
            return encode_load_report(load.take(np.flatnonzero(own)[:_MOST_KEPT]))

        refusals = [
            Refusal(indexes[worst == code], reason, detail, part)
            for code, reason in enumerate(REASON_OF_FLAW)
            if code
        ]
    good = np.flatnonzero(codes == 0)
    kept = _Kept(
        report[good], names.take(pa.array(good)), rates[good], (counts[0][good], counts[1][good])
    )
    return kept, refusals


def _known(load: BrokerLoad, name: str) -> IntArray:
    """A column of counts; -1: not known."""
    given: IntArray = getattr(load, name)
    return np.minimum(given, 2**31 - 1) if len(given) else np.full(len(load.bundles), -1)


def _tables(
    loads: list[BrokerLoad],
    index: IntArray,
    published_at_ms: IntArray,
    positions: Sequence[str],
    kept: _Kept,
) -> ReportedLoads:
    usage = np.array([load.usage for load in loads]).reshape(-1, len(USAGE_COLUMNS))
    limit = np.array([load.limit for load in loads]).reshape(-1, len(LIMIT_COLUMNS))
    columns: dict[str, Any] = {
        name: [getattr(load, name) for load in loads]
        for name in ("broker", "started_at_ms", "sequence", "measured_at_ms", "draining")
    }
    columns["published_at_ms"] = published_at_ms[index]
    columns["position"] = [positions[i] for i in index.tolist()]
    columns.update(zip(USAGE_COLUMNS, usage.T, strict=True))
    columns.update(zip(LIMIT_COLUMNS, limit.T, strict=True))
    reports = pa.table({name: columns[name] for name in REPORTS.names}, schema=REPORTS)
    entries: dict[str, Any] = {"report": kept.report.astype(np.int32), "bundle": kept.names}
    entries.update(zip(RATE_COLUMNS, kept.rates.astype(np.float32).T, strict=True))
    entries.update((n, c.astype(np.int32)) for n, c in zip(COUNT_COLUMNS, kept.counts, strict=True))
    return ReportedLoads(reports, pa.table(entries, schema=BUNDLES))


def pack_loads(loads: ReportedLoads) -> bytes:
    """Load reports as a payload for the operator."""
    return pack(*loads)


def unpack_loads(payloads: Sequence[bytes]) -> ReportedLoads:
    """The load reports of several payloads, joined."""
    return ReportedLoads.join([ReportedLoads(*unpack(payload)) for payload in payloads])
