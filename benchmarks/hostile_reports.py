"""Measures the cost of 16 MB of hostile reports: CPU time and memory of decode, pack and a round.

    .venv/bin/python benchmarks/hostile_reports.py [CASE ...]

As in a task, ``decode`` gets up to 100 reports or 16 MB at a time, and a message counts as at least
1 kB; the output is packed for two shards, and one shard runs a round with all of it. Each case runs
three times, each time in its own process, so that the memory peak is that of the case; the least
time and the highest peak are printed. MB exclude the reports themselves; the peak of a step
includes the steps before it. The last cases are honest reports, for comparison.
docs/measured/parts.md has figures made by this.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "pipelines"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402

from quotaplane.console.option_parser import OptionParser  # noqa: E402
from quotaplane.quota.state import ShardState  # noqa: E402
from quotaplane.settings import parse_settings  # noqa: E402
from quotaplane.streams.quota.program import quota_program  # noqa: E402
from quotaplane.streams.shard_program import Batch  # noqa: E402
from quotaplane.wire.reports import decode, encode_stock_report  # noqa: E402
from quotaplane.wire.shard_inputs import pack_reports  # noqa: E402
from workload import Workload  # noqa: E402

BYTES: Final = 16 << 20
ONE: Final = 8 << 20
"""Size of the largest report that is read: ``reports.max_report_bytes``."""
AT_ONCE: Final = 100
"""Reports that are decoded together."""
MOST: Final = BYTES // 1024
"""Messages that count as 16 MB."""
NOW_MS: Final = 1_700_000_000_000
RUNS: Final = 3
TIMES: Final = ("decode_s", "pack_s", "round_s")
PEAKS: Final = ("decode_mb", "pack_mb", "round_mb")


def _varint(number: int) -> bytes:
    low = bytearray()
    while number > 0x7F:
        low.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*low, number])


def _field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + _varint(len(data)) + data


def _stock(broker: str, entries: bytes = b"") -> bytes:
    return _field(0x0A, broker.encode()) + entries


def _own(broker: str, number: int, rest: bytes = b"") -> bytes:
    """A heartbeat in our own format, followed by ``rest``."""
    started, window = b"\x18" + _varint(NOW_MS - 1000), b"\x28" + _varint(5000)
    sequence = b"\x20" + _varint(1_000_000 + number)
    return b"\x0dQPR1" + _field(0x12, broker.encode()) + started + sequence + window + rest


def _doubles(tag: int, *values: float) -> bytes:
    return _field(tag, np.array(values, "<f8").tobytes())


def _group(name: str, rate: float) -> bytes:
    return _field(0x42, name.encode()) + _doubles(0x52, rate)


def _ids(count: int) -> bytes:
    return _field(0x4A, np.arange(count, dtype="<i8").tobytes())


def _filled(head: Callable[[int], bytes], piece: bytes, size: int = ONE) -> list[bytes]:
    """16 MB of reports of ``size`` bytes, one broker each: a head, then one piece repeated."""
    heads = [head(number) for number in range(BYTES // size)]
    return [start + piece * ((size - len(start)) // len(piece)) for start in heads]


def _many(make: Callable[[int], bytes], count: int = 0) -> list[bytes]:
    """``count`` small reports; 0 = 16 MB of them."""
    return [make(number) for number in range(count or BYTES // len(make(0)))]


def _names(length: int, size: int, more: str = "") -> list[bytes]:
    """16 MB of stock reports of ``size`` bytes: groups with only a name, all names different."""

    def entry(number: int) -> bytes:
        return _field(0x12, _field(0x0A, f"{number:0{length}d}{more}".encode()))

    count = size // len(entry(0))
    return [
        _stock(f"b{n:07d}", b"".join(map(entry, range(n * count, n * count + count))))
        for n in range(BYTES // size)
    ]


def _short_names(different: bool) -> list[bytes]:
    """100 stock reports with names of seven letters, as many as one batch reads."""
    count = 13_000

    def report(number: int) -> bytes:
        first = number * count if different else 0
        names = range(first, first + count)
        entries = b"".join(_field(0x12, _field(0x0A, f"{name:07d}".encode())) for name in names)
        return _stock(f"b{number:07d}", entries)

    return [report(number) for number in range(100)]


def _s(number: int) -> bytes:
    return _stock(f"broker-{number:07d}")


def _o(number: int) -> bytes:
    return _own(f"broker-{number:07d}", number)


def _partly_bad(number: int) -> bytes:
    counts = np.array([[1, 1, 1, 1], [2.0**63, 1, 1, 1]])
    good_and_bad = encode_stock_report("", ["good", "bad"], counts)[2:]
    return _stock(f"b{number:07d}", good_and_bad)


def _wide(number: int) -> bytes:
    """Ids with every possible column if ``number`` is 0, otherwise with one column."""
    count = 2 if number == 0 else 4000
    columns = [*range(10, 23), *range(23, 32)] if number == 0 else [10]
    made = b"".join(
        _varint(column << 3 | 2) + _doubles(0, *[1.0] * count)[1:] for column in columns
    )
    return _own(f"b{number}", number, _ids(count) + made)


_LONG: Final = b"\xff" * 9 + b"\x01"
_SMALL: Final = 65536

CASES: Final[dict[str, Callable[[], list[bytes]]]] = {
    "stock, 8 MB: empty entries (12 00)": lambda: _filled(_s, b"\x12\x00"),
    "stock, 8 MB: the same without a broker": lambda: _filled(lambda _: b"", b"\x12\x00"),
    "stock, 600 kB: empty entries": lambda: _filled(_s, b"\x12\x00", 600_000),
    "stock, 8 MB: empty names (12 02 0a 00)": lambda: _filled(_s, b"\x12\x02\x0a\x00"),
    "stock, 64 kB: empty names": lambda: _filled(_s, b"\x12\x02\x0a\x00", _SMALL),
    "stock, 8 MB: one-letter names": lambda: _filled(_s, b"\x12\x03\x0a\x01a"),
    "stock, 64 kB: one-letter names": lambda: _filled(_s, b"\x12\x03\x0a\x01a", _SMALL),
    "stock, 64 kB: names of 12 letters, all different": lambda: _names(12, _SMALL),
    "stock, 512 kB: names of 20 letters, all different": lambda: _names(20, 1 << 19),
    "stock, 512 kB: names of 8 digits and 8 emoji": lambda: _names(8, 1 << 19, "\U0001f600" * 8),
    "stock, 8 MB: empty entries with long tags": lambda: _filled(_s, b"\x92\x00\x00"),
    "stock, 143 kB: 13,000 short names, known": lambda: _short_names(different=False),
    "stock, 143 kB: 13,000 short names, all different": lambda: _short_names(different=True),
    "stock, 8 MB: unknown fields (18 01)": lambda: _filled(_s, b"\x18\x01"),
    "stock, 64 kB: an unknown field in each entry": lambda: _filled(
        _s, b"\x12\x06\x0a\x02ab\x28\x01", _SMALL
    ),
    "stock, 64 kB: counts of ten bytes": lambda: _filled(
        _s, _field(0x12, b"\x0a\x01a" + _field(0x12, b"\x08" + _LONG + b"\x10" + _LONG)), _SMALL
    ),
    "stock, 200 B: a name that is not UTF-8": lambda: _many(
        lambda n: _stock(f"b{n:07d}", b"\x12\x08\x0a\x06abcdef" * 18 + b"\x12\x04\x0a\x02\xc0\xa1")
    ),
    "stock, 64 kB: names of 20 kB": lambda: _filled(
        _s, _field(0x12, _field(0x0A, b"x" * 20_000)) + b"\x12\x03\x0a\x01a" * 1000, _SMALL
    ),
    "stock, 8 MB: nested 90 deep": lambda: _filled(_s, b"\x1b" * 90 + b"\x1c" * 90),
    "stock, 8 MB: nested 1,000,000 deep": lambda: _filled(_s, b"\x1b" * 10**6 + b"\x1c" * 10**6),
    "stock, 60 B: one bad entry of two": lambda: _many(_partly_bad),
    "stock, 16 B: heartbeats, all different brokers": lambda: _many(_s),
    "stock, 4 B: the same heartbeat": lambda: [_stock("b1")] * (BYTES // 4),
    "ours, 8 MB: empty names (42 00)": lambda: _filled(_o, b"\x42\x00"),
    "ours, 8 MB: empty names and an unknown field": lambda: _filled(
        lambda n: _o(n) + b"\xf8\x07\x01", b"\x42\x00"
    ),
    "ours, 8 MB: empty names with long tags": lambda: _filled(_o, b"\xc2\x00\x00"),
    "ours, 8 MB: one-letter names": lambda: _filled(_o, b"\x42\x01a"),
    "ours, 64 kB: one-letter names": lambda: _filled(_o, b"\x42\x01a", _SMALL),
    "ours, 8 MB: ids alone": lambda: [_o(n) + _ids((ONE - 64) // 8) for n in range(2)],
    "ours, 64 kB: ids alone": lambda: [_o(n) + _ids(8180) for n in range(256)],
    "ours, 64 kB: ids, one report with every column": lambda: _many(_wide, 256),
    "ours, 160 kB: as many ids as are read, one report with every column": lambda: [
        _wide(0),
        *(_o(n) + _ids(13_400) + bytes([0x78, 0]) * 26_000 for n in range(1, 100)),
    ],
    "ours, 8 MB: ids in pieces of one": lambda: _filled(_o, b"\x4a\x08abcdefg\0"),
    "ours, 8 MB: empty pieces (4a 00)": lambda: _filled(_o, b"\x4a\x00"),
    "ours, 8 MB: ids not packed": lambda: _filled(_o, b"\x49abcdefg\0"),
    "ours, 8 MB: unknown fields (78 00)": lambda: _filled(_o, b"\x78\x00"),
    "ours, 8 MB: one long name": lambda: [_o(n) + _field(0x42, b"x" * (ONE - 64)) for n in (1, 2)],
    "ours, 8 MB: a broker's long name": lambda: [_own("x" * (ONE - 64), n) for n in (1, 2)],
    "ours, 8 MB: the broker again and again": lambda: _filled(_o, b"\x12\x02b1"),
    "ours: 100,000 heartbeats of one broker": lambda: _many(lambda n: _own("b1", n), 100_000),
    "ours, 36 B: heartbeats of one broker": lambda: _many(lambda n: _own("broker-1", n)),
    "ours, 36 B: heartbeats, all different brokers": lambda: _many(_o),
    "ours, 36 B: the same heartbeat": lambda: [_o(1)] * (BYTES // 36),
    "ours: a group each, 100,000 brokers": lambda: _many(
        lambda n: _o(n) + _group(f"g{n:07d}", 1.0), 100_000
    ),
    "ours, 50 B: a group each, one broker": lambda: _many(
        lambda n: _own("b1", n, _group("g", 1.0))
    ),
    "ours, 60 B: a negative rate each": lambda: _many(lambda n: _o(n) + _group(f"g{n:07d}", -1.0)),
    "ours, 38 B: an unknown field each": lambda: _many(lambda n: _o(n) + b"\x78\x00"),
    "junk of 100 bytes": lambda: [b"\xff" * 100] * (BYTES // 100),
    "junk of 3 bytes": lambda: [b"?!?"] * (BYTES // 3),
    "1,000,000 empty messages": lambda: [b""] * 1_000_000,
    "limits in place of reports": lambda: [b"\x0dQPL1" + b"x" * 55] * (BYTES // 60),
    "honest: PIP-82's scale, 32 MB": lambda: [
        value for _, value in next(Workload(100_000, 100).rounds(1))
    ],
    "honest: 300,000 groups, 96 MB": lambda: [
        value for _, value in next(Workload(300_000, 100).rounds(1))
    ],
    "honest: six brokers, 12 groups": lambda: [
        value for _, value in next(Workload(12, 6, 6).rounds(1))
    ],
}


def _batches(values: list[bytes]) -> Iterator[list[bytes]]:
    """Batches of a task, as Spark makes them."""
    batch: list[bytes] = []
    for value in values[:MOST]:
        batch.append(value)
        if len(batch) == AT_ONCE or sum(map(len, batch)) >= BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _memory_mb(what: str) -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith(what)) / 1024


def _run(case: str) -> dict[str, Any]:
    settings = parse_settings(
        {
            "transport": {"kind": "delta", "path": "t"},
            "history": {"path": "h"},
            "checkpoint": "c",
        }
    )
    program = quota_program(settings, epoch=1)

    def once(values: list[bytes]) -> Callable[[], dict[str, Any]]:
        def go() -> dict[str, Any]:
            payloads, reasons = list[bytes](), set[str]()
            spent_s, reports, entries, letters = {"decode": 0.0, "pack": 0.0}, 0, 0, 0
            for piece in _batches(values):
                times, places = np.full(len(piece), NOW_MS), [f"t/0@{n}" for n in range(len(piece))]
                begun_s = time.process_time()
                decoded = decode(piece, times, places, now_ms=NOW_MS, reports=settings.reports)
                decoded_s, decoded_mb = time.process_time(), _memory_mb("VmHWM")
                payloads += [payload for shard, payload in pack_reports(decoded, 2) if shard]
                spent_s["decode"] += decoded_s - begun_s
                spent_s["pack"] += time.process_time() - decoded_s
                reports, entries = reports + len(decoded.headers), entries + len(decoded.entries)
                letters += len(decoded.rejected)
                reasons |= set(decoded.rejected["reason"].to_pylist())
                del decoded
            packed_s, packed_mb = time.process_time(), _memory_mb("VmHWM")
            if payloads:
                program.run(ShardState(), {"reports": payloads}, Batch(0, 1, NOW_MS))
            return {
                "decode_s": spent_s["decode"],
                "decode_mb": decoded_mb,
                "pack_s": spent_s["pack"],
                "pack_mb": packed_mb,
                "round_s": time.process_time() - packed_s,
                "round_mb": _memory_mb("VmHWM"),
                "used": reports,
                "entries": entries,
                "letters": letters,
                "reasons": sorted(reasons),
            }

        return go

    once([_o(1) + _group("g", 1.0), _s(1), _s(2) + b"\x12\x03\x0a\x01a", b"?"])()
    go = once(CASES[case]())
    before = _memory_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    figures = go()
    return {
        name: value - before if name.endswith("_mb") else value for name, value in figures.items()
    }


def _best(case: str) -> dict[str, Any]:
    """The least time and the most memory of some runs, each in its own process."""
    runs = []
    for _ in range(RUNS):
        command = [sys.executable, __file__, "--one", case]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise SystemExit(f"{case}: exit code {done.returncode}: {done.stderr[-300:]}")
        runs.append(json.loads(done.stdout))
    least, most = (
        {name: of(run[name] for run in runs) for name in TIMES + PEAKS} for of in (min, max)
    )
    times = {name: least[name] for name in TIMES}
    return {**runs[0], **times, **{name: most[name] for name in PEAKS}}


def main() -> None:
    parser = OptionParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="parts of names of cases; default: all")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(_run(args.one)))
        return
    print("| case | decode s | MB | pack s | MB | round s | MB | used | entries | letters | why |")
    print(f"|---|{'---:|' * 9}---|")
    for case in CASES:
        if args.cases and not any(part in case for part in args.cases):
            continue
        best = _best(case)
        times = [f"{best[name]:.2f}" for name in TIMES]
        peaks = [f"{best[name]:.0f}" for name in PEAKS]
        cells = [cell for pair in zip(times, peaks, strict=True) for cell in pair]
        numbers = [f"{best[name]}" for name in ("used", "entries", "letters")]
        print("|", " | ".join([case, *cells, *numbers, " ".join(best["reasons"])]), "|", flush=True)


if __name__ == "__main__":
    main()
