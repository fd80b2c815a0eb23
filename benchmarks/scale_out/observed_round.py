"""Looks at the rounds of a quota job from inside its driver: processor time, and what passes it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from benchmarks.process_family import ProcessorTime, processor_time
from quotaplane.streams import sink
from quotaplane.streams.sink import BatchSink, written_by_tasks
from quotaplane.streams.task_files import FILES, NOT_WRITTEN
from quotaplane.transport.base import Message
from quotaplane.transport.kafka import KafkaTopics

_BATCH: Final = re.compile(r"batch = (\d+)")
_OF_STAGES: Final = ("resultSize", "shuffleReadBytes", "numTasks", "jvmGcTime")


DRIVER_PYTHON, DRIVER_JVM = "driver, Python", "driver, JVM"
EXECUTOR_JVM, EXECUTOR_PYTHON = "executors, JVM", "executors, Python"
PARTS: Final = (DRIVER_PYTHON, DRIVER_JVM, EXECUTOR_JVM, EXECUTOR_PYTHON)
KERNEL, WRITTEN = "in the kernel", "bytes written by the driver's Python"
GROWING: Final = {*PARTS, KERNEL, WRITTEN}


def used_by(driver: int, workers: Sequence[int]) -> dict[str, float]:
    """``GROWING``: processor seconds of each part since its start, and bytes written.

    Args:
        driver: the driver's Python.
        workers: Spark's workers; each is the parent of executors. None: tasks run in the driver's
            JVM.
    """
    of_driver = processor_time(driver)
    none = ProcessorTime()
    jvm, python = none, of_driver.get("workers", none)
    for worker in workers:
        of_worker = processor_time(worker)
        jvm, python = _sum(jvm, of_worker.get("jvm")), _sum(python, of_worker.get("workers"))
    times = (of_driver["driver"], of_driver.get("jvm", none), jvm, python)
    return {
        **{part: time.total_s for part, time in zip(PARTS, times, strict=True)},
        KERNEL: sum(time.system_s for time in times),
        WRITTEN: _bytes_written(driver),
    }


def _sum(*times: ProcessorTime | None) -> ProcessorTime:
    user_s, system_s = (sum(time[at] for time in times if time is not None) for at in (0, 1))
    return ProcessorTime(user_s, system_s)


def _bytes_written(process: int) -> int:
    """Into files, pipes and streams, but not those that are sent by sockets."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@contextmanager
def observed(look: Callable[[], dict[str, float]]) -> Iterator[dict[int, dict[str, float]]]:
    """Collect figures of each batch in this context, by its number.

    They are what ``look`` returned at the batch's end, ``passed`` of the outputs of its tasks, and
    ``published``.
    """
    found: dict[int, dict[str, float]] = {}
    of_batch: dict[str, float] = {}
    end, collect, publish = BatchSink.__call__, sink._collected, KafkaTopics.publish

    def ended(self: BatchSink, outputs: Any, seq: int) -> None:
        of_batch.clear()
        end(self, outputs, seq)
        found[seq] = {**of_batch, **look()}

    def collected(outputs: Any) -> dict[str, list[bytes]]:
        packed = collect(outputs)
        of_batch.update(passed(packed))
        return packed

    def sent(self: KafkaTopics, messages: Sequence[Message]) -> None:
        of_batch.update(published(messages))
        publish(self, messages)

    with (
        patch.object(BatchSink, "__call__", ended),
        patch.object(sink, "_collected", collected),
        patch.object(KafkaTopics, "publish", sent),
    ):
        yield found


def passed(packed: Mapping[str, Sequence[bytes]]) -> dict[str, float]:
    """The sizes of a batch's outputs.

    >>> found = passed({"messages": [b"abc", b"de"], "counts": [b"f"]})
    >>> found["to Python: messages"], found["to Python"], found["files of tasks"]
    (5, 6, 0)
    """
    sizes = {f"to Python: {kind}": sum(map(len, each)) for kind, each in packed.items()}
    files = [file for each in written_by_tasks(packed.get(FILES, ())).values() for file in each[0]]
    return {
        **sizes,
        "to Python": sum(sizes.values()),
        "files of tasks": len(files),
        "bytes of files": sum(file.size for file in files),
        "rows of files": sum(_rows(file.stats) for file in files),
        "tasks that could not write": len(packed.get(NOT_WRITTEN, ())),
    }


def _rows(stats: str) -> int:
    found = re.search(r'"numRecords": (\d+)', stats)
    return int(found[1]) if found else 0


def published(messages: Sequence[Message]) -> dict[str, float]:
    """Sizes of a round's limits.

    >>> published([Message("broker", b"abc")])
    {'messages': 1, 'bytes of messages': 3}
    """
    return {
        "messages": len(messages),
        "bytes of messages": sum(len(message.value) for message in messages),
    }


def stages(spark: Any) -> dict[int, dict[str, float]]:
    """Sums over the stages of each batch, by its number: Spark's own figures.

    ``resultSize``: the bytes of the results that tasks sent to the driver's JVM.
    """
    context = spark.sparkContext
    store, jvm = context._jsc.sc().statusStore(), context._jvm
    none = context._gateway.new_array(jvm.double, 0)
    found = store.stageList(None, False, False, none, jvm.java.util.ArrayList())
    of_batch: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for at in range(found.size()):
        stage = found.apply(at)
        described = stage.description()
        number = _BATCH.search(described.get()) if described.isDefined() else None
        if number is not None:
            sums = of_batch[int(number[1])]
            for name in _OF_STAGES:
                sums[name] = sums.get(name, 0) + getattr(stage, name)()
    return dict(of_batch)
