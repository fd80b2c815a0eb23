"""The OpenAPI says what is so: generated requests, right and wrong, get answers that it names."""

from __future__ import annotations

from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance

from quotaplane.registry.table import put_groups
from tests.unit.registry.groups_cases import quota
from tests.unit.server.server_cases import TOKENS, Served, settings_with, token
from tests.unit.server.test_server_access import ROUTES

EXAMPLES: Final = 10
"""Requests of each kind for each route: all of them take some ten seconds."""

EXCLUDED: Final = [
    # 503 is what /readyz is for; other tests find errors of the server by its 500.
    not_a_server_error,
    # Names of groups, reasons and conditions have rules that a schema does not express.
    positive_data_acceptance,
]

WITHOUT_TOKENS: Final = ("/healthz", "/readyz", "/metrics")

CASES: Final = [
    (method, path, mode)
    for method, path in ROUTES
    for mode in GenerationMode
    # Nothing can be wrong with a request without parameters.
    if mode is GenerationMode.POSITIVE or path not in WITHOUT_TOKENS
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    served = Served(settings_with(tmp_path_factory.mktemp("served"), TOKENS))
    put_groups(served.history, ["acme", "acme::a"], quota(5.0).repeat(2, axis=0), "x")
    return served


@pytest.fixture(scope="module")
def api(served: Served) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", served.app)


@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_every_answer_is_as_the_openapi_says(
    api: Any, method: str, path: str, mode: GenerationMode
) -> None:
    operation = api[path][method]
    headers = {"Authorization": f"Bearer {token('admin')}"}

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        answer = case.call_and_validate(headers=headers, excluded_checks=EXCLUDED)
        assert answer.status_code in (*range(500), 503), answer.text

    check()


def test_every_operation_names_its_errors_and_every_field_says_what_it_is(served: Served) -> None:
    document = served.app.openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["description"], where
            if path not in WITHOUT_TOKENS:
                assert {"400", "401", "403", "503"} <= set(operation["responses"]), where
                assert operation["security"], where
            # No path has a name with a line break.
            if "{" in path:
                assert "404" in operation["responses"], where
    schemas = document["components"]["schemas"]
    assert "ValidationError" not in schemas
    assert (
        "in bytes per second"
        in schemas["Group"]["properties"]["publish_bytes_per_s"]["description"]
    )
    for name in ("GroupBody", "PulsarGroup", "RollbackBody", "WhatIfBody"):
        assert schemas[name]["additionalProperties"] is False
