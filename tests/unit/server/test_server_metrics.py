"""The server's metrics: each request counts once, under its route."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from quotaplane.metrics.of_programs import HTTP_REQUESTS
from tests.unit.metrics.metrics_cases import Series, parsed
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.unit.server.server_cases import Served, WritableCluster


def counted(served: Served) -> Series:
    answer = served.ask("GET", "/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return parsed(answer.text)


def test_requests_count_under_their_routes_and_not_their_paths(served: Served) -> None:
    for name in ("a", "b", "c"):
        assert served.ask("GET", f"/api/v1/groups/{name}").status_code == 404
    served.token = None
    assert served.ask("GET", "/api/v1/groups").status_code == 401
    assert served.ask("GET", "/healthz").status_code == 200
    assert served.ask("GET", "/nothing/here").status_code in (401, 404)
    found = counted(served)["quotaplane_http_requests_total"]
    assert {route for _, _, route in found} == {
        "/api/v1/groups/{group}",
        "/api/v1/groups",
        "/healthz",
        "none",
    }
    by_code = {code: sum(n for (c, _, _), n in found.items() if c == code) for code, _, _ in found}
    assert by_code["404"] >= 3
    assert found[("200", "GET", "/healthz")] == 1
    assert sum(found.values()) == 6
    seconds = counted(served)["quotaplane_http_request_seconds_count"]
    assert seconds[("/healthz",)] == 1


def test_there_are_fewer_routes_than_the_metrics_declare(served: Served) -> None:
    paths = served.app.openapi()["paths"]
    (most,) = (label.most for label in HTTP_REQUESTS.labels if label.name == "route")
    assert 10 < len(paths) < most


def test_a_request_that_fails_inside_counts_as_500(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("quotaplane.server.system_routes.json_answer", broken)
    with suppress(RuntimeError):
        served.ask("GET", "/api/v1/me")
    found = counted(served)["quotaplane_http_requests_total"]
    assert sum(count for (code, _, _), count in found.items() if code == "500") == 1


def test_a_token_that_expires_while_the_server_runs_is_an_alarm(
    cluster: WritableCluster, beside: Served
) -> None:
    """The server changes groups in the cluster first; nobody else sees that this is refused."""
    path, body = "/admin/v2/resourcegroups/a", {"publishRateInMsgs": 10}
    beside.ok("PUT", path, body)
    assert "quotaplane_condition" not in counted(beside)
    cluster.answers["PUT resourcegroups/a"] = Answer(401, {"reason": "expired"})
    beside.refused(502, "PUT", path, body | {"publishRateInBytes": 7})
    assert counted(beside)["quotaplane_condition"] == {("access refused",): 1}
    (line,) = (line for line in beside.said if "access refused" in line)
    assert "PUT /admin/v2/resourcegroups/a: 401 of Pulsar's REST API" in line
    del cluster.answers["PUT resourcegroups/a"]
    beside.ok("PUT", path, body | {"publishRateInBytes": 8})
    assert "quotaplane_condition" not in counted(beside)
    assert beside.said[-1].startswith("access refused: over after")
