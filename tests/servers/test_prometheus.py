"""Metrics and alert rules with the real Prometheus and promtool."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from quotaplane.metrics.exposition import endpoint, registry_of
from quotaplane.metrics.of_programs import PROGRAMS
from quotaplane.metrics.readings import Distribution, Readings
from quotaplane.settings import load_settings
from quotaplane.transport import open_broker_link
from tests.job import RunningJob, put_quotas, report_of, write_conf
from tests.servers.prometheus_server import DEPLOYED, PrometheusServer, promtool
from tests.servers.tools import free_ports
from tests.waiting import meanwhile, wait_until


def invented(program: str) -> Readings:
    """A number for every metric and every label value of a program."""
    numbers, durations = {}, {}
    for metric in PROGRAMS[program]:
        keys = [tuple(label.values[0] if label.values else "a" for label in metric.labels)]
        if metric.buckets:
            counts = (1,) * (len(metric.buckets) + 1)
            durations[metric.source] = dict.fromkeys(keys, Distribution(counts, 3.5))
        else:
            numbers[metric.source] = dict.fromkeys(keys, 1.0)
    return Readings(numbers, durations)


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    promtool("check", "rules", "rules.yml")
    promtool("check", "config", "prometheus.yml")
    promtool("test", "rules", "rules_test.yml")


@pytest.mark.parametrize("program", PROGRAMS)
def test_promtool_finds_nothing_wrong_with_the_metrics(program: str) -> None:
    text = generate_latest(registry_of(program, lambda: invented(program))).decode()
    for metric in PROGRAMS[program]:
        assert f"# HELP {metric.name} " in text or not metric.source
    assert promtool("check", "metrics", stdin=text) == ""


@pytest.mark.nightly
def test_a_running_quota_job_is_scraped_and_alerts_follow_its_end(tmp_path: Path) -> None:
    job_port, enforcer_port = free_ports(2)
    conf = write_conf(
        tmp_path,
        reports={"interval_s": 1.0},
        brokers={"stale_after_intervals": 30, "expire_after_intervals": 60},
        limits={"lease_s": 30.0, "refresh_rounds": 2},
        trigger={"interval_s": 0.5},
        metrics={"job_port": job_port},
    )
    put_quotas(load_settings(conf), **{"acme/orders": 100.0})
    targets = {"quotaplane-quota": f"127.0.0.1:{job_port}"}
    targets["quotaplane-enforcer"] = f"127.0.0.1:{enforcer_port}"
    enforcer = registry_of("enforcer", lambda: invented("enforcer"))
    with (
        endpoint(enforcer, "127.0.0.1", enforcer_port, "metrics.enforcer_port"),
        PrometheusServer(tmp_path / "prometheus", targets) as prometheus,
        RunningJob(conf) as job,
    ):
        # Reports from before the first round would be too old on a busy machine.
        job.wait_until(lambda: prometheus.value("quotaplane_rounds_total > 0"))

        def report(over: threading.Event) -> None:
            link, sequence = open_broker_link(job.settings.transport), itertools.count(1)
            while not over.wait(1.0):
                now_ms, number = int(time.time() * 1000), next(sequence)
                for broker, used in (("b1", 70.0), ("b2", 10.0)):
                    value = report_of(broker, used, group="acme/orders", sequence=number)
                    link.send_reports([(broker, value, now_ms)])

        with meanwhile(report):
            lease_end = "quotaplane_least_lease_end_timestamp_seconds"
            job.wait_until(lambda: (prometheus.value(f"{lease_end} - time()") or 0) > 15)
            job.wait_until(lambda: prometheus.value("quotaplane_rounds_total > 5"))

            assert prometheus.value('up{job="quotaplane-quota"}') == 1
            shown = {*prometheus.api("label/__name__/values")}
            absent = {metric.name for metric in PROGRAMS["quota"] if not metric.buckets} - shown
            # On a busy machine reports are refused for a while, and rounds are slow.
            busy = {"quotaplane_refused_report_age_seconds", "quotaplane_condition"}
            # The enforcer's conditions are invented.
            ours = 'job="quotaplane-quota",condition!="slow rounds"'
            wrong = f"count(quotaplane_condition{{{ours}}})"
            job.wait_until(lambda: prometheus.value(wrong) is None)
            assert absent - busy == {
                "quotaplane_backlog_messages",  # Kafka's source has it
                "quotaplane_group_overcommit_ratio",  # no group is
            }
            used = prometheus.value('quotaplane_group_quota_used_ratio{group="acme/orders"}')
            assert used == pytest.approx(0.8)
            assert prometheus.value('quotaplane_brokers{status="live"}') == 2
            assert prometheus.value("quotaplane_groups_overcommitted") == 0
            assert prometheus.value("quotaplane_limits_in_force") == 2
            stages = 'quotaplane_round_stage_seconds_count{stage="publish"}'
            assert (prometheus.value(stages) or 0) > 0

            deployed = yaml.safe_load((DEPLOYED / "rules.yml").read_text("utf-8"))["groups"]
            names = {rule["alert"] for group in deployed for rule in group["rules"]}
            wait_until(lambda: {health for _, health in rules_of(prometheus)} == {"ok"})
            assert {name for name, _ in rules_of(prometheus)} == names
            # The enforcer's numbers are invented, with times of long ago.
            wait_until(lambda: "QuotaplaneEnforcerHangs" in prometheus.firing())
            assert all(name.startswith("QuotaplaneEnforcer") for name in prometheus.firing())

        job.kill()
        wait_until(lambda: prometheus.value('up{job="quotaplane-quota"} == 0') == 0)
        # Nothing is renewed any more; 12 s before the end of the first lease there is an alert.
        wait_until(lambda: "QuotaplaneLeasesEndSoon" in prometheus.firing())
        left_s = prometheus.value(f"max(last_over_time({lease_end}[5m])) - time()")
        assert left_s is not None
        assert left_s < 12
        wait_until(lambda: "QuotaplaneQuotaJobDown" in prometheus.firing())


def rules_of(prometheus: PrometheusServer) -> list[tuple[str, str]]:
    """Each rule's name, and whether its expression can be evaluated."""
    groups = prometheus.api("rules")["groups"]
    return [(rule["name"], rule["health"]) for group in groups for rule in group["rules"]]
