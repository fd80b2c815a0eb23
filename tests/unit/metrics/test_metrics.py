"""Metrics: what is declared holds for what Prometheus reads, and nothing keeps it from reading."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from quotabalance.job.job import BalanceSpec
from quotaplane import __version__
from quotaplane.errors import ConfigError
from quotaplane.metrics.declaration import OTHER, Kind, Label, Metric
from quotaplane.metrics.exposition import endpoint, registry_of
from quotaplane.metrics.of_jobs import LOAD_REASONS, REPORT_REASONS, STAGE_SECONDS, STAGES
from quotaplane.metrics.of_programs import METRICS, PROGRAMS
from quotaplane.metrics.reference import tables
from quotaplane.round_counts import MOST_NAMED, RoundCounts
from quotaplane.streams.job import JobSpec
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.quota.dead_letters import BAD_DEFINITION, UNKNOWN_GROUP
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.report_watch import DUPLICATE, OUTDATED
from quotaplane.streams.run_job import run_stream_job, served
from quotaplane.streams.status import JobStatus, StatusUpdate
from quotaplane.wire import reasons
from tests.unit.metrics.metrics_cases import Series, parsed, scraped
from tests.unit.repo.pages import ROOT
from tests.unit.streams.shard_cases import SETTINGS, job_settings
from tests.unit.streams.test_sink import Job


def read(url: str) -> Series:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return parsed(answer.read().decode())


# What is declared


def test_every_metric_is_named_as_prometheus_asks_and_explained() -> None:
    for metric in METRICS.values():
        assert metric.help[0].islower() or metric.help.startswith("Spark"), metric.name
        assert not metric.help.endswith("."), metric.name
        assert len({label.name for label in metric.labels}) == len(metric.labels), metric.name


def test_a_program_has_a_bounded_number_of_series() -> None:
    """Groups are named only where so many of them are; nothing has a label for brokers."""
    for program, metrics in PROGRAMS.items():
        assert len({metric.name for metric in metrics}) == len(metrics), program
        assert sum(metric.series for metric in metrics) < 15_000, program
        for label in (label for metric in metrics for label in metric.labels):
            assert label.name != "broker"
            assert label.name != "group" or label.most == MOST_NAMED == 20


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "reports_total"}, "not a name like"),
        ({"name": "quotaplane_reports"}, "must end with _total"),
        ({"name": "quotaplane_lag_seconds", "kind": Kind.GAUGE}, "the unit is not declared"),
        ({"name": "quotaplane_lag_ms", "kind": Kind.GAUGE, "unit": "ms"}, "no base unit"),
        ({"name": "quotaplane_x_seconds", "kind": Kind.HISTOGRAM, "unit": "seconds"}, "buckets"),
        ({"name": "quotaplane_x_total", "labels": (Label("group"),)}, "how many there may be"),
    ],
)
def test_a_name_or_label_against_the_conventions_is_refused(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        Metric(**{"kind": Kind.COUNTER, "help": "x", **given})


NOT_METRICS: Final = {
    "soft_exceeded": "groups_over_quota has it by mode",
    "messages_sent": "published_messages has the messages of all jobs",
    "reports": "reports_by_result",
    "duplicates": "reports_by_result",
    "outdated": "reports_by_result",
    "uncounted": "reports_by_result",
    "rejected_by_reason": "rejected",
    "brokers_live": "brokers",
    "brokers_stale": "brokers",
    "old_reports_s": "worst_clock_s",
    "newest_report_ms": "report_age_s, newest_report",
    "oldest_report_ms": "report_age_s",
    "oldest_renewal_ms": "least_lease_end",
    "shard": "no count",
}
"""Counts of a round that are in no metric by their own name, and where they are."""


def test_every_count_of_a_round_is_in_a_metric() -> None:
    sources = {metric.source for metric in PROGRAMS["quota"]}
    assert {each.name for each in fields(RoundCounts)} - sources == NOT_METRICS.keys()


def test_the_reasons_are_those_that_programs_give() -> None:
    also = (UNKNOWN_GROUP, BAD_DEFINITION, DUPLICATE, OUTDATED)
    assert {*REPORT_REASONS} == {
        *reasons.REASONS,
        *reasons.BATCH_REASONS,
        *reasons.BROKER_REASONS,
        *also,
    }
    assert {*LOAD_REASONS} >= {*reasons.LOAD_REASONS}


def test_the_page_has_the_tables() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    assert tables() in page, "copy what `python -m quotaplane.metrics.reference` prints"


# What Prometheus reads


def test_a_quota_job_after_some_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)
    status = job.lines.status
    for _ in range(3):
        status.round_began(1)
        job.round(job.report("b1"), job.report("b2"), b"\xff\xffjunk")
        status.round_ended()
    found = scraped(registry_of("quota", status.readings))
    assert found["quotaplane_build_info"] == {("quota", __version__): 1}
    assert found["quotaplane_rounds_total"] == {(): 3}
    results = {"used": 6, "rejected": 3, "duplicate": 0, "outdated": 0, "uncounted": 0}
    assert found["quotaplane_reports_total"] == {(key,): count for key, count in results.items()}
    rejected = found["quotaplane_rejected_total"]
    assert {*REPORT_REASONS} <= {reason for (reason,) in rejected}
    assert {reason: count for (reason,), count in rejected.items() if count} == {"not_protobuf": 3}
    assert found["quotaplane_dead_letters_total"] == {(): 3}
    assert found["quotaplane_brokers"] == {("live",): 2, ("stale",): 0}
    assert found["quotaplane_groups"] == {("hard",): 0, ("soft",): 0, ("shadow",): 0}
    assert found["quotaplane_lag_seconds"] == {(): pytest.approx(0.1)}
    ages = found["quotaplane_report_age_seconds"]
    assert ages == {("newest",): pytest.approx(0.1), ("oldest",): pytest.approx(0.1)}
    assert found["quotaplane_newest_report_timestamp_seconds"] == {(): job.now_ms / 1000 - 0.1}
    assert found["quotaplane_lease_seconds"] == {(): SETTINGS.limits.lease_s}
    counts = found["quotaplane_round_stage_seconds_count"]
    assert counts == {("decide",): 3, ("prepare",): 3, ("history",): 3}, "nothing was published"
    assert found["quotaplane_publish_failures_total"] == {(): 0}
    assert "process_start_time_seconds" in found


def test_a_publish_that_fails_is_counted_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch)

    def fail(messages: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(job.written, "publish", fail)
    monkeypatch.setattr("quotaplane.streams.quota.finisher._messages", lambda table: ["a"])
    with pytest.raises(ConnectionError):
        job.round(job.report("b1"))
    found = scraped(registry_of("quota", job.lines.status.readings))
    assert found["quotaplane_publish_failures_total"] == {(): 1}
    assert found["quotaplane_published_messages_total"] == {(): 0}
    assert found["quotaplane_reports_total"][("used",)] == 0, "the round did not succeed"


def test_what_a_job_did_before_its_first_round() -> None:
    status = JobStatus((), ("lag_s",), clock=lambda: 5.0, wall=lambda: 1000.0)
    found = scraped(registry_of("quota", status.readings))
    assert found["quotaplane_round_ended_timestamp_seconds"] == {(): 1000.0}
    assert found["quotaplane_rounds_total"] == {(): 0}
    for unknown in ("round_started_timestamp_seconds", "lag_seconds", "groups", "epoch"):
        assert f"quotaplane_{unknown}" not in found


def test_invented_label_values_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    status = JobStatus((), (), clock=lambda: 0.0)
    invented = {f"reason {number}": 2 for number in range(500)}
    names = {(f'acme::"{number:03d}"\\\u202e{{}}\u00e4',): 1.0 for number in range(500)}
    status.add(StatusUpdate({}, invented, {}, 1, gauges_by={"shares": names}))
    found = scraped(registry_of("quota", status.readings))
    assert found["quotaplane_rejected_total"][(OTHER,)] == 1000
    assert len(found["quotaplane_rejected_total"]) < 50
    assert found["quotaplane_group_quota_used_ratio"] == dict([*names.items()][:MOST_NAMED])


def test_the_histogram_counts_all_rounds_and_each_once() -> None:
    now_s = iter([0.0, 1.0, 1.07, 2.0, 2.0 + 0.25, 3.0, 3.0 + 500.0])
    status = JobStatus((), (), clock=lambda: next(now_s))
    for seq in range(3):
        status.round_began(seq)
        status.round_ended()
    for stage in STAGES:
        status.stage_ended(stage, 0.3)
    found = scraped(registry_of("balance", status.readings))
    buckets = {key[0]: count for key, count in found["quotaplane_round_seconds_bucket"].items()}
    assert (buckets["0.05"], buckets["0.1"], buckets["0.25"]) == (0, 1, 2)
    assert (buckets["120.0"], buckets["+Inf"]) == (2, 3)
    assert found["quotaplane_round_seconds_sum"][()] == pytest.approx(500.32)
    assert len(found["quotaplane_round_stage_seconds_count"]) == len(STAGES)
    assert len(found[f"{STAGE_SECONDS.name}_bucket"]) == 4 * (len(STAGE_SECONDS.buckets) + 1)


# The endpoint


def a_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def test_the_endpoint_answers_while_a_batch_runs_and_no_longer() -> None:
    status = JobStatus((), (), clock=lambda: 0.0, wall=iter(range(10, 20)).__next__)
    status.round_began(7)
    with endpoint(registry_of("quota", status.readings), "127.0.0.1", a_port(), "k") as url:
        for _ in range(2):
            found = read(url)
            (started,) = found["quotaplane_round_started_timestamp_seconds"].values()
            (ended,) = found["quotaplane_round_ended_timestamp_seconds"].values()
            assert started > ended
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_job_is_ready_once_rounds_run() -> None:
    status = JobStatus((), (), clock=lambda: 0.0)
    served = endpoint(
        registry_of("quota", status.readings), "127.0.0.1", a_port(), "k", status.start_waits_for
    )
    with served as metrics:
        url = metrics.replace("/metrics", "/readyz")
        status.waits_for("spark")
        with pytest.raises(HTTPError, match="503") as refused:
            urllib.request.urlopen(url, timeout=60)
        assert refused.value.read() == b"waits for spark\n"
        refused.value.close()
        read(metrics)
        status.waits_for("leader")
        urllib.request.urlopen(url, timeout=60).close()
        status.waits_for("checkpoint")
        with pytest.raises(HTTPError, match="503") as refused:
            urllib.request.urlopen(url, timeout=60)
        refused.value.close()
        status.round_began(0)
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == b"ready\n"


@pytest.mark.parametrize(("spec", "key"), [(QuotaSpec, "job_port"), (BalanceSpec, "balance_port")])
def test_a_port_that_is_taken_ends_a_job_before_it_does_anything(
    spec: type[JobSpec], key: str, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = job_settings(tmp_path, metrics={key: port})
        with pytest.raises(ConfigError) as failed:
            run_stream_job(spec(settings), pytest.fail)
    assert str(failed.value) == (
        f"metrics.{key}: can't serve metrics at 127.0.0.1, port {port}: Address already in use; "
        "choose another port, or null for none"
    )
    assert failed.value.exit_code == 2
    assert not [*tmp_path.iterdir()]


def test_a_standby_beside_its_leader_serves_its_metrics_once_the_port_is_free(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken, ExitStack() as held:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        spec = QuotaSpec(job_settings(tmp_path, metrics={"job_port": port}))
        said: list[str] = []
        lines = JobLines(spec.status(), write=said.append)
        assert not served(held, spec, lines, standby=True)
        assert len(said) == 1
        assert "Address already in use" in said[0]
        taken.close()
        assert served(held, spec, lines, standby=True)
        answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read()
    assert b"quotaplane_standby 0.0" in answer


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_a_host_that_is_not_ours_is_one_line(host: str) -> None:
    with (
        pytest.raises(ConfigError, match=f"^metrics.job_port: can't serve metrics at {host}, "),
        endpoint(registry_of("quota"), host, a_port(), "metrics.job_port"),
    ):
        pass


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"port": 9464}, "metrics.port: unknown key"),
        ({"job_port": 0}, "metrics.job_port: must be at least 1"),
        ({"job_port": 70_000}, "metrics.job_port: must be at most 65535"),
        ({"job_port": 9464, "enforcer_port": 9464}, "the ports of two programs are the same"),
        ({"host": ""}, "metrics.host"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        job_settings(metrics=given)
