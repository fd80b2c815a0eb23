"""Every role, every route, every tenant: who may do what, and what the others are answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from quotaplane.agents.known_conditions import ANSWERS
from quotaplane.errors import ConfigError
from quotaplane.history.store import open_table
from quotaplane.registry.attachments import attach
from quotaplane.registry.table import put_groups
from quotaplane.server.access import Role
from tests.unit.registry.groups_cases import quota
from tests.unit.server.server_cases import SECRET, TOKENS, Served, settings_with, token

OPEN, ANY, FILTERED, TENANT, ALL = "open", "any", "filtered", "tenant", "all"
"""Callers of a route: everybody; all with a token; the same, and the answer is cut down to their
tenants; those with the role for the tenant that the path names; those with it for all tenants."""


class Route(NamedTuple):
    needs: Role | None
    scope: str
    query: str = ""
    body: Any = None
    """``T`` in both is the tenant."""


V, O, A = Role.VIEWER, Role.OPERATOR, Role.ADMIN  # noqa: E741
ADMIN = "/admin/v2"
RG, NS, TEN = f"{ADMIN}/resourcegroups", f"{ADMIN}/namespaces", f"{ADMIN}/tenants"
GROUP, OF_NS = f"{RG}/{{group}}", f"{NS}/{{tenant}}/{{namespace}}/resourcegroup"
OF_TENANT = f"{TEN}/{{tenant}}/resourcegroup"
API = "/api/v1"

ROUTES: Final = {
    ("GET", "/healthz"): Route(None, OPEN),
    ("GET", "/readyz"): Route(None, OPEN),
    ("GET", "/metrics"): Route(None, OPEN),
    ("GET", RG): Route(V, FILTERED),
    ("GET", GROUP): Route(V, TENANT),
    ("PUT", GROUP): Route(O, TENANT, body={"publishRateInMsgs": 7}),
    ("DELETE", GROUP): Route(O, TENANT),
    ("GET", OF_NS): Route(V, TENANT),
    ("POST", OF_NS + "/{group}"): Route(O, TENANT),
    ("DELETE", OF_NS): Route(O, TENANT),
    ("GET", OF_TENANT): Route(V, TENANT),
    ("POST", OF_TENANT + "/{group}"): Route(O, TENANT),
    ("DELETE", OF_TENANT): Route(O, TENANT),
    ("GET", f"{API}/groups"): Route(V, FILTERED),
    ("GET", API + "/groups/{group}"): Route(V, TENANT),
    ("PUT", API + "/groups/{group}"): Route(O, TENANT, body={"weight": 2}),
    ("PATCH", API + "/groups/{group}"): Route(O, TENANT, body={"weight": 3}),
    ("DELETE", API + "/groups/{group}"): Route(O, TENANT),
    ("GET", f"{API}/changes"): Route(V, FILTERED),
    ("POST", f"{API}/rollback"): Route(O, TENANT, body={"groups": ["T::a"], "version": 1}),
    ("GET", f"{API}/resolve"): Route(V, ALL, "?user=u"),
    ("GET", f"{API}/attachments"): Route(V, FILTERED),
    ("GET", f"{API}/status"): Route(V, FILTERED),
    ("GET", f"{API}/heat-map"): Route(V, FILTERED),
    ("GET", f"{API}/series"): Route(V, TENANT, "?group=T::a"),
    ("GET", f"{API}/rejected/summary"): Route(V, ALL),
    ("GET", f"{API}/limits"): Route(V, TENANT, "?group=T::a"),
    ("GET", f"{API}/why"): Route(V, TENANT, "?group=T::a"),
    ("POST", f"{API}/what-if"): Route(
        V, TENANT, body={"group": "T::a", "since": "1h", "changes": {"weight": 2}}
    ),
    ("GET", f"{API}/brokers"): Route(V, ALL),
    ("GET", f"{API}/rounds"): Route(V, ALL),
    ("GET", f"{API}/rejected"): Route(V, ALL),
    ("GET", f"{API}/balance"): Route(V, ALL),
    ("GET", f"{API}/audits"): Route(V, ALL),
    ("GET", API + "/audits/{name}"): Route(V, ALL),
    ("GET", f"{API}/version"): Route(None, ANY),
    ("GET", f"{API}/me"): Route(None, ANY),
    ("GET", f"{API}/config"): Route(A, ALL),
    ("GET", f"{API}/tables"): Route(A, ALL),
}
"""A route that is added without a line here fails ``test_every_route_is_in_the_table``."""


class Caller(NamedTuple):
    may_acme: int
    may_all: int
    """Highest role for the tenant acme, and for others and all."""
    roles: tuple[str, ...]


COOKS: Final = ("cook:acme", "administrator", "ADMIN", "admin:", ":acme")
CALLERS: Final = {
    "nobody's": Caller(0, 0, ()),
    "viewer": Caller(V, 0, ("viewer:acme",)),
    "operator": Caller(O, 0, ("operator:acme",)),
    "admin": Caller(A, 0, ("admin:acme",)),
    "viewer of all": Caller(V, V, ("viewer",)),
    "operator of all": Caller(O, O, ("operator:*",)),
    "admin of all": Caller(A, A, ("admin",)),
    "viewer of all, operator of one": Caller(O, V, ("viewer:*", "operator:acme")),
    "cook": Caller(0, 0, (*COOKS, "operator:acme:x", "operator:acme/x")),
}


def ask(served: Served, method: str, path: str, tenant: str = "T", **headers: str) -> Any:
    """Use a route for a tenant."""
    route = ROUTES[method, path]
    names = {"group": f"{tenant}::a", "tenant": tenant, "namespace": "ns", "name": "changes"}
    body = json.loads(json.dumps(route.body).replace("T::", f"{tenant}::"))
    path = path.format(**names) + route.query.replace("T", tenant)
    return served.ask(method, path, body, **headers)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    served = Served(settings_with(tmp_path, TOKENS))
    put_groups(
        served.history, ["acme::a", "globex::a", "user=u"], quota(100.0).repeat(3, axis=0), "x"
    )
    for tenant in ("acme", "globex"):
        attach(served.history, "namespace", f"{tenant}/other", "user=u", "x")
        attach(served.history, "topic", f"{tenant}/topics", "user=u", "x")
    return served


def test_every_route_is_in_the_table(served: Served) -> None:
    paths = served.app.openapi()["paths"].items()
    assert {(method.upper(), path) for path, methods in paths for method in methods} == set(ROUTES)
    # Nothing is served that OpenAPI does not show.
    assert served.ask("GET", "/docs").status_code == 404
    assert served.ask("GET", "/redoc").status_code == 404


def expected(route: Route, caller: Caller, tenant: str) -> bool:
    if route.needs is None or route.scope in (OPEN, ANY, FILTERED):
        return True
    here = caller.may_acme if tenant == "acme" else caller.may_all
    return (caller.may_all if route.scope == ALL else here) >= route.needs


@pytest.mark.parametrize("tenant", ["acme", "globex"])
@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
def test_who_may_do_what(served: Served, caller: Caller, tenant: str) -> None:
    served.token = token(*caller.roles)
    table = open_table(served.history, "resource_groups").version()
    for (method, path), route in ROUTES.items():
        answer = ask(served, method, path, tenant)
        where = f"{method} {path} of {tenant}: {answer.status_code} {answer.text}"
        if expected(route, caller, tenant):
            assert answer.status_code not in (401, 403), where
        else:
            assert answer.status_code == 403, where
            assert "role" in answer.json()["reason"]
        # What a route before it deleted is there again.
        version = open_table(served.history, "resource_groups").version()
        if answer.status_code == 403:
            assert version == table, where
        if version != table:
            put_groups(served.history, [f"{tenant}::a"], quota(100.0), "x")
            table = open_table(served.history, "resource_groups").version()


@pytest.mark.parametrize("authorization", ["", "Bearer", "Basic YTpi", "Bearer x.y.z", "bearer "])
def test_without_a_token_only_health(served: Served, authorization: str) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    for (method, path), route in ROUTES.items():
        answer = ask(served, method, path, **headers)
        if route.scope == OPEN:
            assert answer.status_code in (200, 503)
        else:
            assert answer.status_code == 401, route
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert "token" in answer.json()["reason"]


def test_lists_have_what_belongs_to_the_callers_tenants(served: Served) -> None:
    served.token = token("viewer:acme", "operator:initech")
    assert served.ok("GET", RG) == ["acme::a"]
    groups = served.ok("GET", "/api/v1/groups")
    assert (groups["total"], [g["group"] for g in groups["groups"]]) == (1, ["acme::a"])
    changes = served.ok("GET", "/api/v1/changes")
    assert (changes["total"], [c["group"] for c in changes["changes"]]) == (1, ["acme::a"])
    assert [a["name"] for a in served.ok("GET", "/api/v1/attachments")["attachments"]] == [
        "acme/other"
    ]
    served.token = token("viewer")
    assert served.ok("GET", RG) == ["acme::a", "globex::a", "user=u"]
    served.token = token()
    assert served.ok("GET", RG) == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{NS}/acme/ns/resourcegroup/globex::a", None),
        ("POST", f"{TEN}/acme/resourcegroup/globex::a", None),
        ("POST", f"{TEN}/acme/resourcegroup/user=u", None),
        ("POST", "/api/v1/rollback", {"groups": ["acme::a", "globex::a"], "version": 1}),
        ("POST", "/api/v1/rollback", {"groups": [], "version": 1}),
        ("PUT", "/api/v1/groups/user=u", {}),
        ("GET", "/api/v1/changes?group=globex::a", None),
        ("GET", "/api/v1/attachments?group=globex::a", None),
    ],
)
def test_an_operator_does_not_reach_another_tenant_by_way_of_their_own(
    served: Served, method: str, path: str, body: object
) -> None:
    served.token = token("operator:acme")
    served.refused(403, method, path, body)


def test_whether_a_group_exists_is_told_to_no_stranger(served: Served) -> None:
    served.token = token("viewer:acme")
    there = served.refused(403, "GET", "/api/v1/groups/globex::a")
    assert served.refused(403, "GET", "/api/v1/groups/globex::none") == there


@pytest.mark.parametrize("anonymous", ["viewer", "admin-without-authentication"])
def test_anonymous_may_what_the_settings_say(tmp_path: Path, anonymous: str) -> None:
    served = Served(settings_with(tmp_path, {"anonymous": anonymous}))
    assert served.ok("GET", "/api/v1/groups")["total"] == 0
    answer = served.ask("PUT", "/api/v1/groups/a", {"weight": 2})
    assert answer.status_code == (403 if anonymous == "viewer" else 201)
    assert served.ok("GET", "/api/v1/me") == {
        "name": "anonymous",
        "anonymous": True,
        "roles": {"*": "viewer" if anonymous == "viewer" else "admin"},
    }


def test_beside_tokens_an_anonymous_viewer_is_asked_for_one(tmp_path: Path) -> None:
    served = Served(settings_with(tmp_path, {**TOKENS, "anonymous": "viewer"}))
    assert served.ok("GET", "/api/v1/groups")["total"] == 0
    assert "token is needed" in served.refused(401, "PUT", "/api/v1/groups/a", {})
    # A token that is refused does not make its bearer anonymous.
    assert "no JWT" in served.refused(401, "GET", "/api/v1/groups", Authorization="Bearer x")
    served.token = token("operator:a")
    assert served.ask("PUT", "/api/v1/groups/a", {}).status_code == 201


def test_errors_of_the_history_show_paths_to_those_who_see_all(served: Served) -> None:
    log = Path(served.history.path) / "resource_groups" / "_delta_log"
    away = log.with_name("away")
    log.rename(away)
    try:
        for roles, shown in ((("viewer:acme",), False), (("viewer",), True), (("admin",), True)):
            served.token = token(*roles)
            reason = served.refused(503, "GET", RG)
            assert (served.history.path in reason) == shown, roles
        served.token = token("viewer:acme")
        for _ in range(5):
            served.refused(503, "GET", RG)
    finally:
        away.rename(log)
    # For those who do not see all, and not for every request.
    [line] = [said for said in served.said if RG in said]
    assert line.startswith(f"{ANSWERS.name}: GET {RG}: ")
    assert served.history.path in line


def test_a_grant_for_a_namespace_is_refused(tmp_path: Path) -> None:
    """It would give nobody anything: roles are for tenants."""
    auth = {"hs256_secret": SECRET, "grants": {"team-a": ["operator:acme/x"]}}
    with pytest.raises(
        ConfigError, match=r"server\.auth\.grants: team-a: 'operator:acme/x' must be"
    ):
        settings_with(tmp_path, {"auth": auth})
