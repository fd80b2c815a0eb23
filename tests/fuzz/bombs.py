"""Inputs that are made to cost as much as they can: ``python -m tests.fuzz.bombs [NAME ...]``.

Each is given to the product in a process of its own. A line of JSON per bomb has what it cost.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from quotabalance.pulsar_admin.broker_stats import read_broker_stats
from quotabalance.wire.balance_plans import decode_plan
from quotabalance.wire.load_batch import decode_load_reports
from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.errors import QuotaplaneError
from quotaplane.groups.names import check_name
from quotaplane.groups.quota_text import parse_quota
from quotaplane.model import Round
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_usage import Counters, Snapshots
from quotaplane.quota.config import Events
from quotaplane.quota.state import ShardState
from quotaplane.quota.step import step
from quotaplane.settings import load_settings
from quotaplane.wire.limits import MAX_LIMITS_BYTES, decode_limits
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from quotaplane.wire.reports import encode_stock_report
from tests.fuzz.rest_targets import done, with_answers
from tests.fuzz.text_targets import _file
from tests.fuzz.wire_targets import KEYS
from tests.unit.balance.load_report_cases import BOUNDS, local_broker_data
from tests.unit.pulsar_admin.cluster_cases import transport_to
from tests.unit.quota.step_cases import CONFIG
from tests.unit.wire.wire_cases import NOW_MS, decode_now, limits_message, own_report, with_fields

SIZE: Final = 16 << 20
MOST_CPU_S: Final = 1.0
MOST_MEMORY: Final = 256 << 20
USUAL_CALIBRATION_S: Final = 0.06
"""Processor time of ``calibrate`` on the machine for which ``MOST_CPU_S`` holds, without other
load: others on the same core and cache double it."""


@dataclass(frozen=True)
class Bomb:
    """Input for the product, and the call that takes it."""

    build: Callable[[], Any]
    run: Callable[[Any], object]
    """May raise a ``QuotaplaneError``."""


def _bombs(run: Callable[[Any], object], builds: dict[str, Callable[[], Any]]) -> dict[str, Bomb]:
    return {name: Bomb(build, run) for name, build in builds.items()}


def calibrate() -> float:
    """Processor time of a fixed piece of work, of the kind that parsers do."""
    begun_s = time.process_time()
    text = json.dumps([{"name": f"n{i}", "value": i * 0.5} for i in range(20_000)])
    for _ in range(2):
        parsed = json.loads(text)
        sorted((each["name"] for each in parsed), reverse=True)
    return time.process_time() - begun_s


def filled(piece: bytes, head: bytes = b"", tail: bytes = b"", size: int = SIZE) -> bytes:
    """The piece, again and again, up to a size."""
    return head + piece * ((size - len(head) - len(tail)) // len(piece)) + tail


def numbered(
    piece: str, head: str = "", tail: str = "", between: str = "", size: int = SIZE
) -> bytes:
    """The same with a number in each piece, so that they differ."""
    count = (size - len(head) - len(tail)) // (len(piece % 0) + len(between))
    return (head + between.join([piece % number for number in range(count)]) + tail).encode()


# --- REST answers


def _statistics(value: bytes) -> object:
    return done(Snapshots(60.0).read(with_answers(value), "http://b1", 0.0))


def _metrics(value: bytes) -> object:
    return done(Counters().read(with_answers(value), "http://b1", 0.0))


def _load_report(value: bytes) -> object:
    return done(read_broker_stats(with_answers(value), "http://b1"))


def _load_by_topics(value: bytes) -> object:
    return done(read_broker_stats(with_answers(value), "http://b1", extensible=True))


def _names(value: bytes) -> object:
    return done(read_names(with_answers(value), "/admin/v2/tenants"))


_TOPICS = '{"a/b":{"0x00000000_0xffffffff":{"persistent":{'
_TOPIC = (
    '"persistent://a/b/t%07d":{"msgRateIn":1.5,"msgThroughputIn":1000.5,"msgRateOut":20.25,'
    '"msgThroughputOut":2000.5,"msgInCount":10,"bytesInCount":1000,"msgOutCount":55,'
    '"bytesOutCount":555,"publishers":[{"accessMode":"Shared","msgRateIn":0.0,"producerId":0}],'
    '"subscriptions":{"s":{"consumers":[{"msgRateOut":0.0,"consumerName":"c123"}],"msgBacklog":0,'
    '"type":"Exclusive"}},"producerCount":1}'
)
_BUNDLE = (
    '"a/b/0x%08x_0xffffffff":{"msgThroughputIn":1.0,"msgThroughputOut":1.0,"msgRateIn":1.0,'
    '"msgRateOut":1.0,"topics":1,"producerCount":1,"consumerCount":1,"cacheSize":0}'
)
_LOAD = (
    '{"webServiceUrl":"http://b1:8080","lastUpdate":1700000000000,"startTimestamp":1,'
    + "".join(
        f'"{name}":{{"usage":1.0,"limit":100.0}},'
        for name in ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
    )
    + '"lastStats":{'
)
_LABEL = b'pulsar_in_bytes_total{topic="'
_LINE = (
    'pulsar_in_bytes_total{cluster="standalone",namespace="public/default",'
    'topic="persistent://public/default/x%07d"} 7.0\n'
)

REST = {
    **_bombs(
        _statistics,
        {
            "statistics of usual topics": lambda: numbered(_TOPIC, _TOPICS, "}}}}", ","),
            "statistics of topics without any": lambda: numbered(
                '"persistent://a/b/t%07d":{}', _TOPICS, "}}}}", ","
            ),
            "statistics of short topics": lambda: numbered('"%06d":{}', _TOPICS, "}}}}", ","),
            "empty lists": lambda: filled(b"[],", b"[", b"[]]"),
            "nested lists": lambda: b"[" * SIZE,
        },
    ),
    "load by usual topics": Bomb(lambda: numbered(_TOPIC, _TOPICS, "}}}}", ","), _load_by_topics),
    **_bombs(
        _names,
        {
            "lists nested 500 times": lambda: filled(
                b"[" * 500 + b"]" * 500 + b"," + b" " * 16_000, b"[", b"1]"
            ),
            "a long number": lambda: b"[" + b"9" * SIZE + b"]",
            "a long fraction": lambda: b"[0." + b"9" * SIZE + b"]",
            "long numbers": lambda: filled(b"9" * 4200 + b",", b"[", b"1]"),
            "escapes": lambda: filled(b"\\u0041", b'["', b'"]'),
            "pairs of surrogates": lambda: filled(b"\\ud83d\\ude00", b'["', b'"]'),
            "a text with an emoji": lambda: b'["' + b"a" * SIZE + "😀".encode() + b'"]',
            "many names": lambda: numbered('"n%012d"', "[", "]", ","),
            "short names": lambda: filled(b'"ab",', b"[", b"1]"),
        },
    ),
    **_bombs(
        _metrics,
        {
            "long metric label": lambda: _LABEL + b"a" * SIZE + b'"} 1\n',
            "escapes in a metric label": lambda: filled(b'\\"', _LABEL, b'"} 1\n'),
            "braces in a metric label": lambda: filled(b"} ", _LABEL, b'"} 1\n'),
            "metrics without labels": lambda: filled(b"pulsar_in_bytes_total{} 1\n"),
            "metrics of short topics": lambda: numbered(_LABEL.decode() + '%05d"} 1\n'),
            "usual metrics": lambda: numbered(_LINE),
            "metrics in a line": lambda: filled(b"pulsar_in_bytes_total{"),
        },
    ),
    **_bombs(
        _load_report,
        {
            "load report of many bundles": lambda: numbered(_BUNDLE, _LOAD, "}}", ",", 15_000_000),
            "load report of lists": lambda: filled(
                b'["aaaaaaaaaaaaaaaa",1],', _LOAD[:-1].encode() + b"[", b"1]}"
            ),
        },
    ),
}


# --- answers over HTTP, where the bytes matter before they are parsed


def serve(head: bytes, body: bytes, times: int) -> int:
    """Answer one request in a child process; returns the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        try:
            connection, _ = listening.accept()
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head)
            for _ in range(times):
                connection.sendall(body)
        except OSError:  # the client has gone, as it should
            pass
        finally:
            os._exit(0)
    port = int(listening.getsockname()[1])
    listening.close()
    return port


def _get(port: int) -> object:
    import asyncio

    async def get() -> object:
        async with Rest(transport_to(f"http://127.0.0.1:{port}")) as rest:
            return await rest.get("/admin/v2/tenants")

    return asyncio.run(get())


def _gzipped(size: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    part = b"[" * (1 << 20)
    return b"".join(packer.compress(part) for _ in range(size >> 20)) + packer.flush()


def _gzip_bomb() -> int:
    body = _gzipped(1 << 27)
    assert len(body) < SIZE
    head = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    return serve(head, body, 1)


HTTP = {
    "gzip bomb": Bomb(_gzip_bomb, _get),
    "endless answer": Bomb(
        lambda: serve(b"Connection: close\r\n\r\n", b"[" * (1 << 20), 200), _get
    ),
    "endless header": Bomb(lambda: serve(b"X: ", b"a" * (1 << 20), 16), _get),
}


# --- settings


def _nine_times_nine(first: bytes, item: bytes) -> bytes:
    """Settings in which each of 24 values has nine aliases of the one before."""
    lines = [b"x0: &x0 " + first]
    for number in range(1, 25):
        aliases = b",".join([b"*x%d" % (number - 1)] * 9)
        lines.append(b"x%d: &x%d " % (number, number) + item % aliases)
    return _GOOD + b"\n".join(lines) + b"\n"


_GOOD = b"transport: {kind: delta, path: t}\nhistory: {path: h}\ncheckpoint: c\n"
_MB = 1 << 20

SETTINGS = _bombs(
    lambda value: load_settings(_file("bomb.yaml", value)),
    {
        "large settings": lambda: numbered("k%07d: 1\n"),
        "settings of a megabyte": lambda: numbered("k%07d: 1\n", size=_MB),
        "settings of many values": lambda: filled(b"a,", _GOOD + b"x: [", b"]", 95_000),
        "settings of many keys": lambda: numbered("k%05d: 1\n", size=240_000),
        "nested lists in settings": lambda: _GOOD + b"x: " + b"[" * 900_000,
        "nested items in settings": lambda: _GOOD + b"x:\n " + b"- " * 450_000,
        "nested keys in settings": lambda: _GOOD + b"? " * 450_000,
        "aliases of aliases": lambda: _nine_times_nine(b"[1]", b"[%s]"),
        "merges of merges": lambda: _nine_times_nine(b"{a: 1}", b"{<<: [%s]}"),
        "a time of many parts": lambda: filled(b":1", _GOOD + b"x: 1", b"\n", _MB),
        "a long number in settings": lambda: _GOOD + b"x: 0x" + b"f" * 900_000,
        "a long text in settings": lambda: _GOOD + b"x: '" + b"a " * 450_000 + b"'",
        "empty lines in settings": lambda: _GOOD + b"\n \n" * 300_000,
    },
)


# --- messages on topics


def _step(values: list[bytes]) -> object:
    decoded = decode_now(*values)
    events = Events(headers=decoded.headers, entries=decoded.entries)
    return step(ShardState(), events, Round(epoch=1, seq=0, now_ms=NOW_MS), CONFIG)


def _received(values: list[bytes]) -> object:
    received = ClusterLimits()
    for value in values:
        try:
            received.receive(decode_limits(value), NOW_MS)
        except QuotaplaneError:
            continue
    return received


def _loads(values: list[bytes]) -> object:
    published, places = np.full(len(values), NOW_MS), list(map(str, range(len(values))))
    return decode_load_reports(values, published, places, now_ms=NOW_MS, bounds=BOUNDS)


_HEARTBEAT = own_report(groups=[], usage=np.empty((0, 4)))
_NO_LIMITS = limits_message(groups=[], limits=np.empty((0, 4)), issued_at_ms=NOW_MS)


def _limits(**columns: list[Any]) -> bytes:
    return with_fields(LimitsUpdate.FromString(_NO_LIMITS), columns)


def _names_of(count: int, prefix: str) -> list[str]:
    return [f"{prefix}{number:05d}" for number in range(count)]


def _stock(broker: int, groups: int) -> bytes:
    names = [f"group-{broker:03d}-{number:05d}-abcd" for number in range(groups)]
    return encode_stock_report(f"b{broker}", names, np.full((groups, 4), 7))


def _twice(piece: bytes, head: bytes = _HEARTBEAT) -> list[bytes]:
    return [filled(piece, head, size=8 << 20)] * 2


def _of_new_names(broker: int) -> bytes:
    names = [f"{broker:05d}{number:07d}" for number in range(3600)]
    return encode_stock_report(f"b{broker}", names, np.full((3600, 4), np.nan))


_SHORT_BUNDLES = json.dumps(local_broker_data())[:-1] + ',"x":{'
WIRE = {
    **_bombs(
        lambda values: decode_now(*values),
        {
            "our reports of empty names": lambda: _twice(b"\x42\x00"),
            "our reports of short names": lambda: _twice(b"\x42\x01a"),
            "our reports of unknown fields": lambda: _twice(b"\x78\x00"),
            "stock reports of empty entries": lambda: _twice(b"\x12\x00", b"\x0a\x01b"),
            "reports of new names": lambda: [_of_new_names(broker) for broker in range(256)],
            "reports of a large cluster": lambda: [_stock(broker, 2500) for broker in range(100)],
        },
    ),
    "reports of undefined groups, in the step": Bomb(
        lambda: [_stock(broker, 2000) for broker in range(100)], _step
    ),
    **_bombs(
        _received,
        {
            "limits of empty names": lambda: [_limits(groups=[""] * 1_000_000)] * 8,
            "limits removed by empty names": lambda: [_limits(removed_groups=[""] * 1_000_000)] * 8,
            "limits of as many names as fit": lambda: [
                _limits(groups=_names_of(99_000, f"{n}"), removed_groups=_names_of(99_000, f"r{n}"))
                for n in range(2)
            ],
            "limits by id": lambda: [_limits(group_ids=[*range(250_000)])] * 8,
            "limits of unknown fields": lambda: (
                [filled(b"\xf8\x01\x00", _NO_LIMITS, size=MAX_LIMITS_BYTES)] * 8
            ),
        },
    ),
    "limits larger than allowed": Bomb(
        lambda: filled(b"\x42\x00", _NO_LIMITS), lambda value: decode_limits(value, KEYS)
    ),
    **_bombs(
        _loads,
        {
            "load reports of Pulsar": lambda: [numbered(_BUNDLE, _LOAD, "}}", ",", 7_500_000)] * 2,
            "load reports of short bundles": lambda: (
                [numbered('"%06d":0', _SHORT_BUNDLES, "}}", ",", 8 << 20)] * 2
            ),
        },
    ),
    "a plan of empty names": Bomb(lambda: filled(b"\x42\x00", b"\x0dQPM1", size=_MB), decode_plan),
}

# --- what people write

TEXTS = {
    "a quota of many digits": Bomb(lambda: "9" * SIZE + " bytes/s", parse_quota),
    "a quota of many spaces": Bomb(lambda: "5" + " " * SIZE + "bytes/s?", parse_quota),
    "a long name": Bomb(lambda: "user=" + "%41" * (SIZE // 3), check_name),
}

BOMBS: Final[dict[str, Bomb]] = {**REST, **HTTP, **SETTINGS, **WIRE, **TEXTS}


# --- measuring


def cost_of(name: str) -> dict[str, Any]:
    """Cost of a bomb: ``cpu_s``, ``memory`` in bytes, ``outcome``; measured in a child process.

    ``scale`` is how much slower this machine is at the moment than usual, at least 1.
    """
    readable, writable = os.pipe()
    builder = os.fork()
    if builder == 0:
        # Another child, so that building the input is not measured.
        value = BOMBS[name].build()
        child = os.fork()
        if child == 0:
            os.write(writable, json.dumps(_measured(name, value)).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(builder, 0)
    found: dict[str, Any] = json.loads(answer) if answer else {"outcome": "the process died"}
    return {"bomb": name, **found}


def _measured(name: str, value: Any) -> dict[str, Any]:
    # A process that never ends a bomb would hold up all of them.
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    calibration_s = calibrate()
    with open("/proc/self/statm", "rb") as file:
        before = int(file.read().split()[1]) * resource.getpagesize()
    begun_s = time.process_time()
    try:
        outcome = type(BOMBS[name].run(value)).__name__
    except QuotaplaneError as error:
        outcome = f"{type(error).__name__}: {str(error)[:150]}"
    except Exception as error:
        outcome = f"not ours: {type(error).__name__}: {str(error)[:150]}"
    cpu_s = time.process_time() - begun_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # Once more: the load of the machine may have changed meanwhile.
    slower = max(calibration_s, calibrate()) / USUAL_CALIBRATION_S
    return {
        "cpu_s": round(cpu_s, 3),
        "memory": max(peak - before, 0),
        "scale": round(max(slower, 1.0), 2),
        "outcome": outcome,
    }


def main() -> int:
    """Measure the bombs that are named, or all."""
    for name in sys.argv[1:] or BOMBS:
        print(json.dumps(cost_of(name)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
