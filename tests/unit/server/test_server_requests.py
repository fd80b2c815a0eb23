"""A request that programs could read differently is refused, and nothing is changed."""

from __future__ import annotations

import gzip
from typing import Any

import httpx
import pytest

from quotaplane.registry.table import get_group
from tests.unit.server.server_cases import Served

G = "/api/v1/groups/"
JSON = ("Content-Type", "application/json")


@pytest.fixture(autouse=True)
def acme(served: Served) -> None:
    served.ok("PUT", G + "acme", {"weight": 2})


def patched(served: Served, *headers: tuple[str, str]) -> httpx.Response:
    """The answer to a change of ``acme``, in which a header may be there several times."""
    sent = [("Authorization", f"Bearer {served.token}"), *headers]
    return served.request("PATCH", G + "acme", b'{"weight": 3}', sent)


def unchanged(served: Served) -> bool:
    return bool(get_group(served.history, "acme")["weight"] == 2)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("acme%0a", "control character"),
        ("acme%0A?dry_run=false", "control character"),
        ("acme%", "two hex digits"),
        ("ac%6", "two hex digits"),
        ("ac%zzme", "two hex digits"),
        ("acme?dry_run=%ff", "UTF-8"),
        ("acme?dry_run=%00", "control character"),
    ],
)
def test_a_url_has_one_meaning(served: Served, method: str, name: str, reason: str) -> None:
    body: Any = {"weight": 3} if method in ("PUT", "PATCH") else None
    assert reason in served.refused(400, method, G + name, body)
    assert unchanged(served)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("limit=1_0", "limit: must be a whole number, not '1_0'"),
        ("limit=007", "limit: must be a whole number"),
        ("limit=", "limit: must not be empty"),
        ("search=", "search: must not be empty"),
    ],
)
def test_a_number_in_a_query_has_one_spelling(served: Served, query: str, reason: str) -> None:
    assert reason in served.refused(400, "GET", f"/api/v1/groups?{query}")
    # An empty name would stand for all.
    assert "broker: must not be empty" in served.refused(400, "GET", "/api/v1/limits?broker=")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("dry_run=True", "dry_run: must be true or false, not 'True'"),
        ("dry_run=1", "dry_run: must be true or false, not '1'"),
        ("dryrun=true", "dryrun: is not known here"),
        ("dry_run=true&dry_run=false", "dry_run: is given twice"),
    ],
)
def test_what_is_nearly_a_dry_run_is_not_done(served: Served, query: str, reason: str) -> None:
    said = served.refused(400, "PATCH", f"{G}acme?{query}", {"weight": 3})
    assert said == f"query parameter {reason}"
    assert unchanged(served)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("If-Match", '"x"', "*"),
        ("If-None-Match", '"x"', "*"),
        ("Content-Type", "text/plain", "application/json"),
        ("Quotaplane-Why", "a", "b"),
        ("Authorization", "Bearer x", "Bearer y"),
    ],
)
def test_a_header_is_given_once(served: Served, name: str, first: str, second: str) -> None:
    headers = [(name, first), (name, second)]
    if name != "Content-Type":
        headers.append(JSON)
    answer = patched(served, *headers)
    assert (answer.status_code, answer.json()["reason"]) == (400, f"header {name}: is given twice")
    assert unchanged(served)


def test_conditions_that_hold_or_are_none(served: Served) -> None:
    tag = served.ask("GET", G + "acme").headers["etag"]
    body = {"weight": 3}
    exists = served.refused(412, "PATCH", G + "acme", body, If_None_Match=f'"x", W/{tag}')
    assert "exists" in exists
    for header in (f"*, {tag}", tag.strip('"'), "", f"{tag},", f"'{tag}'"):
        for name in ("If-Match", "If-None-Match"):
            said = served.refused(400, "PATCH", G + "acme", body, **{name: header})
            assert said.startswith(f"header {name}: must be * or ETags")
    # A weak tag says nothing about bytes (RFC 9110, 13.1.1).
    served.refused(412, "PATCH", G + "acme", body, If_Match=f"W/{tag}")
    assert unchanged(served)
    served.ok("PATCH", G + "acme", body, If_Match=f'"x", {tag}')


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("DELETE", G + "acme", "If-None-Match"),
        ("DELETE", G + "acme", "If-Unmodified-Since"),
        ("PATCH", G + "acme", "If-Unmodified-Since"),
        ("POST", "/api/v1/rollback", "If-Match"),
        ("PUT", "/admin/v2/resourcegroups/acme", "If-Match"),
        ("DELETE", "/admin/v2/resourcegroups/acme", "If-Match"),
    ],
)
def test_a_condition_that_a_route_has_not(
    served: Served, method: str, path: str, name: str
) -> None:
    body: Any = None if method == "DELETE" else {}
    said = served.refused(400, method, path, body, **{name: '"x"'})
    assert said == f"header {name}: is not known here; nothing was done"
    assert unchanged(served)


def test_a_body_where_none_is_read(served: Served) -> None:
    said = served.refused(400, "DELETE", G + "acme", {"dry_run": True})
    assert said == "a body is not known here; nothing was done"
    assert unchanged(served)
    served.ok("DELETE", "/admin/v2/resourcegroups/acme", "")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Content_Type": "application/json; charset=latin-1"}, "must be UTF-8, not 'latin-1'"),
        ({"Content_Type": 'application/json;CHARSET="UTF-16"'}, "must be UTF-8, not 'UTF-16'"),
        ({"Content_Encoding": "gzip"}, "must not be compressed (Content-Encoding: gzip)"),
    ],
)
def test_a_body_is_what_its_labels_say(
    served: Served, headers: dict[str, str], reason: str
) -> None:
    for body in (b'{"weight": 3}', gzip.compress(b'{"weight": 3}')):
        answer = served.ask("PATCH", G + "acme", raw=body, **headers)
        assert (answer.status_code, answer.json()["reason"]) == (415, f"the body {reason}")
    assert unchanged(served)


def test_a_reason_is_given_once_and_in_ascii(served: Served) -> None:
    body = {"weight": 3}
    raw = patched(served, JSON, ("Quotaplane-Why", "caf\u00e9"))
    assert "percent-encoded" in raw.json()["reason"]
    both = {**body, "why": "a"}
    said = served.refused(400, "PATCH", G + "acme", both, Quotaplane_Why="b")
    assert said == "why is in the body and in the header Quotaplane-Why: keep one"
    assert unchanged(served)
    served.ok("PATCH", G + "acme?dry_run=true", body, Quotaplane_Why="caf%C3%A9")
