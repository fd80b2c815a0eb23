"""Kafka's own ``TokenBucket`` and ``Rate``, and ``ClientQuotaManager``, in JVMs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.throttle.types import Quotas, Requests
from tests.jvm.jdk import run_jdk
from tests.spark.fixtures import ROOT

_QUOTA: Final = np.dtype([("q", ">f8"), ("samples", ">i4"), ("window_ms", ">i8"), ("hard", ">i1")])
_REQUEST: Final = np.dtype([("entity", ">i4"), ("at_ms", ">i8"), ("units", ">f8")])
_ANSWER: Final = np.dtype([("yes", ">i1"), ("ms", ">i8"), ("value", ">f8"), ("window", ">i8")])

MOST_MS: Final = 2**63 - 1
"""Greatest long; ``Math.round`` returns it for an infinite time, and for any longer one."""


class Stat(IntEnum):
    """Which of Kafka's classes; the numbers are those of KafkaThrottle.java."""

    TOKEN_BUCKET = 0
    RATE = 1


class Asked(NamedTuple):
    """A batch of requests to new entities.

    ``sensor``: whether the class is within a ``Sensor``, which is asked as Kafka's brokers ask it,
    or alone. ``passes``: how often to measure the time that the batch takes.
    """

    stat: Stat
    quotas: Quotas
    requests: Requests
    sensor: bool = True
    passes: int = 0


class Said(NamedTuple):
    """Answers of Kafka: (n,) each, and (passes,) seconds."""

    admitted: BoolArray
    throttle_ms: IntArray
    value: FloatArray
    """Tokens, or the rate per second."""
    window_ms: IntArray
    """The time that the rate was measured over; 0 for tokens."""
    seconds: FloatArray


def pinned_jar() -> Path:
    """The kafka-clients that Spark's connector uses."""
    (jar,) = (ROOT / ".venv" / "jars").glob("kafka-clients-*.jar")
    return jar


def ask_kafka(jar: Path, batches: Sequence[Asked], *options: str) -> list[Said]:
    """Answer all batches, one after the other, in one JVM with these options.

    Raises:
        RuntimeError: the JVM failed, or there is no compiler beside it; with what it said.
    """
    (slf4j,) = (ROOT / ".venv" / "spark" / "jars").glob("slf4j-api-*.jar")
    asked = b"".join(map(_packed, batches))
    answers = _run("KafkaThrottle.java", f"{jar}:{slf4j}", asked, *options)
    found, at = [], 0
    for batch in batches:
        seconds = np.frombuffer(answers, ">f8", batch.passes, at).astype(np.float64)
        at += seconds.nbytes
        rows = np.frombuffer(answers, _ANSWER, len(batch.requests.entity), at)
        at += rows.nbytes
        found.append(
            Said(
                rows["yes"] == 1,
                rows["ms"].astype(np.int64),
                rows["value"].astype(np.float64),
                rows["window"].astype(np.int64),
                seconds,
            )
        )
    return found


def ask_manager(jars: Path, lines: Sequence[str]) -> list[str]:
    """Answers of ``ClientQuotaManager`` of the server's jars; KafkaScopes.java describes the lines.

    Raises:
        RuntimeError: as ``ask_kafka``.
    """
    asked = "".join(f"{line}\n" for line in lines).encode()
    return _run("KafkaScopes.java", f"{jars}/*", asked).decode().splitlines()


def _run(source: str, classpath: str, asked: bytes, *options: str) -> bytes:
    path = str(Path(__file__).with_name(source))
    return run_jdk("java", *options, "-cp", classpath, path, asked=asked)


def _packed(batch: Asked) -> bytes:
    quotas, requests = batch.quotas, batch.requests
    head = [batch.stat, batch.sensor, batch.passes, len(quotas.hard), len(requests.entity)]
    terms = np.empty(len(quotas.hard), _QUOTA)
    terms["q"], terms["samples"] = quotas.rate_per_s, quotas.samples
    terms["window_ms"], terms["hard"] = quotas.window_ms, quotas.hard
    rows = np.empty(len(requests.entity), _REQUEST)
    rows["entity"], rows["at_ms"], rows["units"] = requests
    return np.array(head, ">i4").tobytes() + terms.tobytes() + rows.tobytes()
