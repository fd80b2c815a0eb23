"""Pulsar's own classes as a simulated cluster's leader, in a JVM that runs beside."""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import FloatArray, IntArray
from tests.servers.pulsar_roles import pulsar_home
from tests.servers.tools import java

_STATS: Final = np.dtype([("bundle", ">i4"), ("rates", ">f8", (4,)), ("topics", ">i4")])
_HEAP_MB: Final = 1024


class Report(NamedTuple):
    """A broker's entry in the store. n bundles."""

    broker: int
    usage: FloatArray
    """Shape (5,), as ``ClusterLoad.usage``."""
    limit: FloatArray
    """Shape (5,)."""
    bundles: IntArray
    """Shape (n,): the bundles that it measured."""
    rates: FloatArray
    """Shape (n, 4), as ``ClusterLoad.rates``."""
    topics: IntArray
    """Shape (n,)."""

    def packed(self) -> bytes:
        """Bytes that StockBalancers.java reads, without the broker's number."""
        rows = np.empty(len(self.bundles), _STATS)
        rows["bundle"], rows["rates"], rows["topics"] = self.bundles, self.rates, self.topics
        pairs = np.stack([self.usage, self.limit], axis=1).astype(">f8")
        return pairs.tobytes() + struct.pack(">i", len(rows)) + rows.tobytes()


class Jvm:
    """A JVM with the classes of the Pulsar distribution; serves one leader after the other."""

    def __init__(self) -> None:
        source = Path(__file__).with_name("StockBalancers.java")
        self._process = subprocess.Popen(
            [
                java(),
                f"-Xmx{_HEAP_MB}m",
                "-XX:+UseSerialGC",
                f"-Dlog4j.configurationFile={source.with_name('silent.properties')}",
                "-cp",
                f"{pulsar_home()}/lib/*",
                str(source),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def write(self, data: bytes) -> None:
        """Send a request without waiting."""
        assert self._process.stdin
        self._process.stdin.write(data)

    def read(self, size: int) -> bytes:
        """Wait for an answer.

        Raises:
            RuntimeError: the JVM ended; standard error says why.
        """
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.flush()
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise RuntimeError(f"StockBalancers.java ended with code {self._process.wait()}")
        return data

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


class StockLeader:
    """The leader of a cluster. Brokers and bundles are numbers; times are virtual."""

    def __init__(
        self, jvm: Jvm, shedder: str, placement: str, seed: int, settings: str = ""
    ) -> None:
        """``shedder`` and ``placement``: Pulsar's class names; "" = no shedding."""
        self._jvm = jvm
        self._known_bundles = 0
        strings = b"".join(_utf(text) for text in (settings, shedder, placement))
        jvm.write(b"N" + strings + struct.pack(">q", seed))

    def brokers(self, names: Sequence[str]) -> None:
        """Name all brokers, before anything else."""
        self._names(b"B", names)

    def bundles(self, names: Sequence[str]) -> None:
        """Name all bundles; those of earlier calls come first and are not sent again."""
        if len(names) > self._known_bundles:
            self._names(b"b", names[self._known_bundles :])
            self._known_bundles = len(names)

    def active(self, brokers: Sequence[int]) -> None:
        """Which brokers are registered."""
        self._jvm.write(b"A" + struct.pack(f">i{len(brokers)}i", len(brokers), *brokers))

    def reports(self, reports: Sequence[Report], samples: int) -> None:
        """Brokers of the modular manager write reports, of which the leader makes samples."""
        for report in reports:
            self._jvm.write(b"R" + struct.pack(">i", report.broker) + report.packed())
        if reports:
            self._jvm.write(b"U" + struct.pack(">i", samples))

    def check(
        self, report: Report, updates: int, now_ms: int, load_too: bool, bundles_too: bool
    ) -> None:
        """A broker of the extensible manager updates its averages, and perhaps reports."""
        head = struct.pack(">iiq??", report.broker, updates, now_ms, load_too, bundles_too)
        self._jvm.write(b"L" + head + report.packed())

    def clear(self, broker: int) -> None:
        """A bundle came to a broker of the extensible manager or left it: its data are void."""
        self._jvm.write(b"C" + struct.pack(">i", broker))

    def shed(self, now_ms: int) -> list[tuple[int, int, int]]:
        """A round: bundle, source, target of each move, in order."""
        self._jvm.write(b"S" + struct.pack(">q", now_ms))
        flat = self._ints(3)
        return [(flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3)]

    def wish(self, bundle: int, broker: int) -> None:
        """The entry that an unload with a destination stores."""
        self._jvm.write(b"W" + struct.pack(">ii", bundle, broker))

    def place(self, bundle: int) -> int:
        """The broker that a lookup of an unloaded bundle finds; -1 = none."""
        self._jvm.write(b"P" + struct.pack(">i", bundle))
        return int(struct.unpack(">i", self._jvm.read(4))[0])

    def splits(self) -> list[int]:
        """Bundles that the modular manager's split task would split now."""
        self._jvm.write(b"K")
        return self._ints(1)

    def timed(self, rounds: int, now_ms: int) -> list[tuple[float, int]]:
        """Seconds of each round, and at how many brokers it chose bundles."""
        self._jvm.write(b"T" + struct.pack(">iq", rounds, now_ms))
        return [struct.unpack(">di", self._jvm.read(12)) for _ in range(rounds)]

    def _names(self, kind: bytes, names: Sequence[str]) -> None:
        out = io.BytesIO()
        out.write(kind + struct.pack(">i", len(names)))
        for name in names:
            out.write(_utf(name))
        self._jvm.write(out.getvalue())

    def _ints(self, each: int) -> list[int]:
        (count,) = struct.unpack(">i", self._jvm.read(4))
        return list(struct.unpack(f">{count * each}i", self._jvm.read(4 * count * each)))


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data
