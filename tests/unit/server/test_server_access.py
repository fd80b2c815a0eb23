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
"""Whom a route is for: everybody; whoever has a token; whoever has one, and the answer is cut down
to the tenants; who has the role for the tenant that the path names; who has it for all tenants."""


class Route(NamedTuple):
    needs: Role | None
    scope: str
    path: str
    """An example; ``T`` is the tenant."""
    body: Any = None


V, O, A = Role.VIEWER, Role.OPERATOR, Role.ADMIN  # noqa: E741
GROUPS, NS, TEN = "/admin/v2/resourcegroups", "/admin/v2/namespaces", "/admin/v2/tenants"

ROUTES: Final = {
    ("GET", "/healthz"): Route(None, OPEN, "/healthz"),
    ("GET", "/readyz"): Route(None, OPEN, "/readyz"),
    ("GET", "/metrics"): Route(None, OPEN, "/metrics"),
    ("GET", GROUPS): Route(V, FILTERED, GROUPS),
    ("GET", GROUPS + "/{group}"): Route(V, TENANT, f"{GROUPS}/T::a"),
    ("PUT", GROUPS + "/{group}"): Route(O, TENANT, f"{GROUPS}/T::a", {"publishRateInMsgs": 7}),
    ("DELETE", GROUPS + "/{group}"): Route(O, TENANT, f"{GROUPS}/T::a"),
    ("GET", NS + "/{tenant}/{namespace}/resourcegroup"): Route(
        V, TENANT, f"{NS}/T/ns/resourcegroup"
    ),
    ("POST", NS + "/{tenant}/{namespace}/resourcegroup/{group}"): Route(
        O, TENANT, f"{NS}/T/ns/resourcegroup/T::a"
    ),
    ("DELETE", NS + "/{tenant}/{namespace}/resourcegroup"): Route(
        O, TENANT, f"{NS}/T/ns/resourcegroup"
    ),
    ("GET", TEN + "/{tenant}/resourcegroup"): Route(V, TENANT, f"{TEN}/T/resourcegroup"),
    ("POST", TEN + "/{tenant}/resourcegroup/{group}"): Route(
        O, TENANT, f"{TEN}/T/resourcegroup/T::a"
    ),
    ("DELETE", TEN + "/{tenant}/resourcegroup"): Route(O, TENANT, f"{TEN}/T/resourcegroup"),
    ("GET", "/api/v1/groups"): Route(V, FILTERED, "/api/v1/groups"),
    ("GET", "/api/v1/groups/{group}"): Route(V, TENANT, "/api/v1/groups/T::a"),
    ("PUT", "/api/v1/groups/{group}"): Route(O, TENANT, "/api/v1/groups/T::a", {"weight": 2}),
    ("PATCH", "/api/v1/groups/{group}"): Route(O, TENANT, "/api/v1/groups/T::a", {"weight": 3}),
    ("DELETE", "/api/v1/groups/{group}"): Route(O, TENANT, "/api/v1/groups/T::a"),
    ("GET", "/api/v1/changes"): Route(V, FILTERED, "/api/v1/changes"),
    ("POST", "/api/v1/rollback"): Route(
        O, TENANT, "/api/v1/rollback", {"groups": ["T::a"], "version": 1}
    ),
    ("GET", "/api/v1/resolve"): Route(V, ALL, "/api/v1/resolve?user=u"),
    ("GET", "/api/v1/attachments"): Route(V, FILTERED, "/api/v1/attachments"),
    ("GET", "/api/v1/status"): Route(V, FILTERED, "/api/v1/status"),
    ("GET", "/api/v1/heat-map"): Route(V, FILTERED, "/api/v1/heat-map"),
    ("GET", "/api/v1/series"): Route(V, TENANT, "/api/v1/series?group=T::a"),
    ("GET", "/api/v1/rejected/summary"): Route(V, ALL, "/api/v1/rejected/summary"),
    ("GET", "/api/v1/limits"): Route(V, TENANT, "/api/v1/limits?group=T::a"),
    ("GET", "/api/v1/why"): Route(V, TENANT, "/api/v1/why?group=T::a"),
    ("POST", "/api/v1/what-if"): Route(
        V, TENANT, "/api/v1/what-if", {"group": "T::a", "since": "1h", "changes": {"weight": 2}}
    ),
    ("GET", "/api/v1/brokers"): Route(V, ALL, "/api/v1/brokers"),
    ("GET", "/api/v1/rounds"): Route(V, ALL, "/api/v1/rounds"),
    ("GET", "/api/v1/rejected"): Route(V, ALL, "/api/v1/rejected"),
    ("GET", "/api/v1/balance"): Route(V, ALL, "/api/v1/balance"),
    ("GET", "/api/v1/audits"): Route(V, ALL, "/api/v1/audits"),
    ("GET", "/api/v1/audits/{name}"): Route(V, ALL, "/api/v1/audits/changes"),
    ("GET", "/api/v1/version"): Route(None, ANY, "/api/v1/version"),
    ("GET", "/api/v1/me"): Route(None, ANY, "/api/v1/me"),
    ("GET", "/api/v1/config"): Route(A, ALL, "/api/v1/config"),
    ("GET", "/api/v1/tables"): Route(A, ALL, "/api/v1/tables"),
}
"""A route that is added without a line here fails ``test_every_route_is_in_the_table``."""

CALLERS: Final[dict[str, tuple[str, ...]]] = {
    "nobody's": (),
    "viewer": ("viewer:acme",),
    "operator": ("operator:acme",),
    "admin": ("admin:acme",),
    "viewer of all": ("viewer",),
    "operator of all": ("operator:*",),
    "admin of all": ("admin",),
    "viewer of all, operator of one": ("viewer:*", "operator:acme"),
    "cook": (
        "cook:acme",
        "administrator",
        "ADMIN",
        "admin:",
        ":acme",
        "operator:acme:x",
        "operator:acme/x",
    ),
}
RIGHTS: Final[dict[str, tuple[int, int]]] = {
    "nobody's": (0, 0),
    "viewer": (V, 0),
    "operator": (O, 0),
    "admin": (A, 0),
    "viewer of all": (V, V),
    "operator of all": (O, O),
    "admin of all": (A, A),
    "viewer of all, operator of one": (O, V),
    "cook": (0, 0),
}
"""What each caller may do for the tenant acme, and for others and all."""


@pytest.fixture
def served(tmp_path: Path) -> Served:
    served = Served(settings_with(tmp_path, TOKENS))
    put_groups(
        served.history, ["acme::a", "globex::a", "user=u"], quota(100.0).repeat(3, axis=0), "x"
    )
    for tenant in ("acme", "globex"):
        attach(served.history, "namespace", f"{tenant}/other", "user=u", "x")
    return served


def operations(served: Served) -> set[tuple[str, str]]:
    return {
        (method.upper(), path)
        for path, operations in served.app.openapi()["paths"].items()
        for method in operations
    }


def test_every_route_is_in_the_table(served: Served) -> None:
    assert operations(served) == set(ROUTES)
    # Nothing is served that OpenAPI does not show.
    assert served.ask("GET", "/docs").status_code == 404
    assert served.ask("GET", "/redoc").status_code == 404


def expected(route: Route, may_acme: int, may_all: int, tenant: str) -> bool:
    if route.needs is None or route.scope in (OPEN, ANY, FILTERED):
        return True
    here = may_acme if tenant == "acme" else may_all
    return (may_all if route.scope == ALL else here) >= route.needs


@pytest.mark.parametrize("tenant", ["acme", "globex"])
@pytest.mark.parametrize("caller", CALLERS)
def test_who_may_do_what(served: Served, caller: str, tenant: str) -> None:
    served.token = token(*CALLERS[caller])
    table = open_table(served.history, "resource_groups").version()
    for (method, _), route in ROUTES.items():
        body = json.loads(json.dumps(route.body).replace("T::", f"{tenant}::"))
        answer = served.ask(method, route.path.replace("T", tenant), body)
        where = f"{caller}: {method} {route.path} of {tenant}: {answer.status_code} {answer.text}"
        if expected(route, *RIGHTS[caller], tenant):
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
    for (method, _), route in ROUTES.items():
        answer = served.ask(method, route.path, route.body, **headers)
        if route.scope == OPEN:
            assert answer.status_code in (200, 503)
        else:
            assert answer.status_code == 401, route
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert "token" in answer.json()["reason"]


def test_lists_have_what_belongs_to_the_callers_tenants(served: Served) -> None:
    served.token = token("viewer:acme", "operator:initech")
    assert served.ok("GET", GROUPS) == ["acme::a"]
    groups = served.ok("GET", "/api/v1/groups")
    assert (groups["total"], [g["group"] for g in groups["groups"]]) == (1, ["acme::a"])
    changes = served.ok("GET", "/api/v1/changes")
    assert (changes["total"], [c["group"] for c in changes["changes"]]) == (1, ["acme::a"])
    assert [a["name"] for a in served.ok("GET", "/api/v1/attachments")["attachments"]] == [
        "acme/other"
    ]
    served.token = token("viewer")
    assert served.ok("GET", GROUPS) == ["acme::a", "globex::a", "user=u"]
    served.token = token()
    assert served.ok("GET", GROUPS) == []


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
            reason = served.refused(503, "GET", GROUPS)
            assert (served.history.path in reason) == shown, roles
        served.token = token("viewer:acme")
        for _ in range(5):
            served.refused(503, "GET", GROUPS)
    finally:
        away.rename(log)
    # For those who do not see all, and not for every request.
    [line] = [said for said in served.said if GROUPS in said]
    assert line.startswith(f"{ANSWERS.name}: GET {GROUPS}: ")
    assert served.history.path in line


def test_a_grant_for_a_namespace_is_refused(tmp_path: Path) -> None:
    """It would give nobody anything: roles are for tenants."""
    auth = {"hs256_secret": SECRET, "grants": {"team-a": ["operator:acme/x"]}}
    with pytest.raises(
        ConfigError, match=r"server\.auth\.grants: team-a: 'operator:acme/x' must be"
    ):
        settings_with(tmp_path, {"auth": auth})
