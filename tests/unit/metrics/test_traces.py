"""Traces of rounds: spans on OpenTelemetry's API, and nothing without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from quotaplane.errors import ConfigError
from quotaplane.metrics.traces import RoundTraces, round_traces
from quotaplane.settings import Tracing
from tests.unit.streams.shard_cases import job_settings
from tests.unit.streams.test_sink import Job


class Recorded:
    """A tracer that keeps (parent, name, attributes, failure) of each span."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, Any, str | None]] = []
        self.open: list[str] = [""]

    @contextmanager
    def start_as_current_span(self, name: str, *, attributes: Any = None) -> Iterator[None]:
        parent, failure = self.open[-1], None
        self.open.append(name)
        try:
            yield
        except Exception as error:
            failure = str(error)
            raise
        finally:
            self.open.pop()
            self.spans.append((parent, name, attributes, failure))


def traced(job: Job) -> Recorded:
    """Let a job's sink make spans."""
    tracer = Recorded()
    job.sink._traces = RoundTraces(tracer)
    return tracer


def test_a_round_is_a_span_with_its_stages_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)
    tracer = traced(job)
    monkeypatch.setattr("quotaplane.streams.quota.finisher._messages", lambda table: ["a"])
    job.round(job.report())
    stages = ("decide", "prepare", "history", "publish")
    numbers = {"quotaplane.epoch": 1, "quotaplane.seq": 1}
    assert tracer.spans == [
        *(("round", stage, None, None) for stage in stages),
        ("", "round", numbers, None),
    ]


def test_a_stage_that_fails_is_recorded_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)
    tracer = traced(job)

    def fail(*given: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(job.written, "append_round", fail)
    with pytest.raises(OSError, match="disk full"):
        job.round(job.report())
    failures = {name: failure for _, name, _, failure in tracer.spans}
    assert failures == {
        "decide": None,
        "prepare": None,
        "history": "disk full",
        "round": "disk full",
    }


def test_there_are_none_by_default() -> None:
    with round_traces(Tracing(), "quota") as traces:
        assert traces._tracer is None


def test_the_setting_without_the_sdk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    settings = Tracing(endpoint="http://127.0.0.1:4318/v1/traces")
    with (
        pytest.raises(ConfigError, match=r"pip install 'quotaplane\[tracing\]'") as failed,
        round_traces(settings, "quota"),
    ):
        pass
    assert failed.value.exit_code == 2


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tracing\.endpoint"):
        job_settings(tracing={"endpoint": "localhost:4318"})
