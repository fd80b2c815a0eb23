"""No audit accuses anybody in a fair run of the simulator, whatever its noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.query.answer import Answer
from quotaplane.query.audit import Audit, list_audits, load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History
from quotaplane.sim.broker_fleet import BrokerSpec
from tests.unit.sim.fair_runs import FairRun
from tests.unit.sim.recorded_history import Recording, at

pytestmark = pytest.mark.slow


def played(folder: Path, seed: int) -> FairRun:
    return FairRun(History(path=str(folder / "history")), seed).play()


def ask(run: FairRun) -> dict[str, tuple[Audit, Answer]]:
    with DuckDBEngine(run.history) as engine:
        return {
            audit.name: (
                audit,
                engine.ask(
                    audit.sql,
                    audit.values(audit.of_settings(run.settings.limits)),
                    until=at(run.second),
                ),
            )
            for audit in list_audits()
        }


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100))
def test_no_audit_accuses_anybody(tmp_path: Path, seed: int) -> None:
    run = played(tmp_path, seed)
    answers = ask(run)
    accused = {n: answer.rows for n, (audit, answer) in answers.items() if audit.violations(answer)}
    assert not accused
    changes = answers["changes"][1]
    changed = {row[changes.columns.index("resource_group")] for row in changes.rows}
    assert changed == set(run.groups)
    if not run.lost:
        _top_consumers_used_what_the_simulator_knows(run, answers["top_consumers"][1])


def _top_consumers_used_what_the_simulator_knows(run: FairRun, answer: Answer) -> None:
    """Check groups that stock brokers do not use: these leave out small changes, and do not report
    that a group's use ended, so that the last rate counts until they are silent."""
    usage = sum(interval.usage for interval in run.intervals)
    is_stock = [spec.format == "stock" for spec in run.world.brokers.specs]
    for dimension, _, group, used, *_ in answer.rows:
        at = run.groups.index(group), DIMENSIONS.index(dimension)
        if at[1] < BASIC and not usage[is_stock, at[0]].any():
            really = usage[:, at[0], at[1]].sum() * run.settings.reports.interval_s
            assert used == pytest.approx(really, rel=0.1), (dimension, group)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [{"format": "stock"}, {"throttled": True}, {"uses_ids": True}])
def test_a_law_that_starves_idle_brokers_is_accused(tmp_path: Path, kind: dict[str, Any]) -> None:
    """The law of stock Pulsar: a broker that wakes is given what it uses, and can't use more."""
    wants = {"g": {"b1": [(0, 80)], "b2": [(0, 80)], "b3": [(0, 0), (20, 60)]}}

    def starving(law: str) -> list[str]:
        run = Recording(
            History(path=str(tmp_path / law)),
            wants,
            loop={
                "specs": {name: BrokerSpec(name, **kind) for name in wants["g"]},
                "poisson": ["g"],
            },
            law={"name": law},
            shards=1,
        )
        run.put("g", 120.0).run(60).write()
        audit = load_audit("starvation")
        with DuckDBEngine(run.history) as engine:
            found = engine.ask(audit.sql, audit.values(), until=at(60))
        return [row[found.columns.index("broker")] for row in found.rows]

    assert set(starving("proportional")) == {"b3"}
    assert starving("max_min") == []
