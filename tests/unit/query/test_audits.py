"""Each audit on a small history made by hand, with the exact answer, by DuckDB."""

from __future__ import annotations

import pytest

from quotaplane.query.audit import list_audits, load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.query.audit_cases import BY_HAND, Built, Case, equal


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Histories that several cases ask are made once."""
    return Built(tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: f"{case.audit}: {case.name}")
def test_an_audit_answers(case: Case, built: Built) -> None:
    audit = load_audit(case.audit)
    with DuckDBEngine(built.history(case.build)) as engine:
        found = engine.ask(
            audit.sql, audit.values(case.parameters), since=case.since, until=case.until
        )
    equal(found, case.columns, case.rows)


def test_an_empty_history_has_no_answers(history: History) -> None:
    make_history(history)
    with DuckDBEngine(history) as engine:
        for audit in list_audits():
            assert engine.ask(audit.sql, audit.values()).rows == [], audit.name
