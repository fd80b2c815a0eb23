"""The dashboard and the alert rules in deploy/: of metrics that exist, with a way on for people."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest
import yaml

from quotabalance.balancer_conditions import CONDITIONS as OF_THE_BALANCER
from quotaplane.agents.conditions import Condition
from quotaplane.agents.known_conditions import CONDITIONS
from quotaplane.metrics.declaration import Kind, Metric
from quotaplane.metrics.of_programs import METRICS
from tests.unit.repo.pages import ROOT, load_script

RUNBOOK: Final = ROOT / "docs" / "operate" / "runbook"
DEPLOY: Final = ROOT / "deploy"
RULES: Final = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text("utf-8"))
ALERTS: Final = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD: Final = DEPLOY / "grafana" / "dashboard.json"

_SELECTOR: Final = re.compile(r"\b(quotaplane_[a-z0-9_]+)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r'(\w+)(=~|=|!=|!~)"([^"]*)"')
_OF_PROMETHEUS: Final = {"up", "process_start_time_seconds"}
_OF_TARGETS: Final = {"job", "instance"}


def _declared(name: str) -> Metric:
    """The metric that a series is of.

    Raises:
        KeyError: there is none.
    """
    for ending in ("_bucket", "_sum", "_count"):
        metric = METRICS.get(name.removesuffix(ending))
        if name.endswith(ending) and metric is not None and metric.kind is Kind.HISTOGRAM:
            return metric
    assert METRICS[name].kind is not Kind.HISTOGRAM, f"{name} has no value of its own"
    return METRICS[name]


def selected(expr: str) -> set[str]:
    """The metrics in an expression; their labels and values are checked."""
    found = set()
    for name, matchers in _SELECTOR.findall(expr):
        metric = _declared(name)
        labels = {label.name: label.values for label in metric.labels}
        for label, operator, value in _MATCHER.findall(matchers):
            if label in _OF_TARGETS:
                continue
            assert label in labels, f"{name} has no label {label}"
            values = value.split("|") if operator in ("=~", "!~") else [value]
            assert not labels[label] or {*values} <= {*labels[label]}, (name, label, value)
        found.add(metric.name)
    return found


# Alerts


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_is_on_metrics_that_exist_and_says_what_to_do(alert: dict[str, Any]) -> None:
    bare = re.sub(r'"[^"]*"', '""', alert["expr"])
    others = {*re.findall(r"\b(\w+)\{", bare)} - _OF_PROMETHEUS
    assert all(name.startswith("quotaplane_") for name in others)
    assert selected(alert["expr"]) or any(name in bare for name in _OF_PROMETHEUS)
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["description"].endswith(".")
    page = ROOT / alert["annotations"]["runbook_url"]
    assert page.parent == RUNBOOK
    assert f"`{alert['alert']}`" in page.read_text("utf-8")
    assert _symptoms()[alert["alert"]] == page.name


def _symptoms() -> dict[str, str]:
    """Alerts, conditions and others in the runbook's table, and the page of each."""
    text = (RUNBOOK / "index.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+) \| \[.+?\]\((.+?)\) \|$", text, re.MULTILINE)
    return {symptom: page for cell, page in rows for symptom in re.findall(r"`(.+?)`", cell)}


@pytest.mark.parametrize("condition", [*CONDITIONS, *OF_THE_BALANCER], ids=lambda each: each.name)
def test_the_runbook_has_a_page_for_each_condition(condition: Condition) -> None:
    page = RUNBOOK / _symptoms()[condition.name]
    assert f"`{condition.name}" in page.read_text("utf-8")


def test_the_runbook_names_each_of_its_pages() -> None:
    text = (RUNBOOK / "index.md").read_text("utf-8")
    pages = {page.name for page in RUNBOOK.glob("*.md")} - {"index.md"}
    assert not sorted(page for page in pages if f"({page})" not in text)


def test_every_alert_fires_in_a_test_of_the_rules() -> None:
    tests = yaml.safe_load((DEPLOY / "prometheus" / "rules_test.yml").read_text("utf-8"))["tests"]
    fires = set()
    for test in tests:
        for expected in test.get("alert_rule_test", []):
            fires |= {expected["alertname"]} if expected["exp_alerts"] else set()
        for expected in test.get("promql_expr_test", []):
            fires |= {*re.findall(r'alertname="(\w+)"', json.dumps(expected).replace("\\", ""))}
    names = [alert["alert"] for alert in ALERTS]
    assert fires == {*names}
    assert len(names) == len({*names})


def test_prometheus_scrapes_the_jobs_that_the_rules_name() -> None:
    conf = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    scraped = {job["job_name"] for job in conf["scrape_configs"]}
    named = {name for alert in ALERTS for name in re.findall(r'job="([^"]+)"', alert["expr"])}
    assert named == scraped


# The dashboard


def _panels() -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return panels


def test_the_dashboard_is_what_the_script_writes() -> None:
    text = DASHBOARD.read_text("utf-8")
    made = load_script(DEPLOY / "grafana" / "make_dashboard.py").text()
    assert text == made, "run `python deploy/grafana/make_dashboard.py`"


def test_every_panel_is_explained_and_shows_metrics_that_exist() -> None:
    shown = set()
    for panel in _panels():
        if panel["type"] == "row":
            continue
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        for target in panel["targets"]:
            names = selected(target["expr"])
            assert len(names) == 1, target["expr"]
            shown |= names
    assert shown == METRICS.keys(), "every metric is in a panel"


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in _panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    assert len({panel["id"] for panel in _panels()}) == len(_panels())
