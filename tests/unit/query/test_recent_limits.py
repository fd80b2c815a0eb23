"""Reports of a time are compared with the same limits whether earlier ones are read or not."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from quotaplane.query.audit import load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.views import BEGINNING
from quotaplane.settings import History
from tests.unit.history.history_cases import NAN
from tests.unit.query.audit_cases import given, used, write
from tests.unit.sim.recorded_history import at

HOUR: Final = 3600.0
PAIRS: Final = tuple((broker, group) for broker in ("b1", "b2", "b3") for group in ("g", "h"))
ROWS: Final = """
SELECT
  broker, resource_group, dimension, reported_at, used_per_s, limit_per_s, enforced, ended,
  limit_at, limit_epoch, limit_seq, ended_because
FROM usage_and_limits
WHERE reported_at >= :since_h AND (ended OR limit_per_s < CAST('Infinity' AS DOUBLE))
ORDER BY broker, resource_group, dimension, reported_at
"""


def record(history: History) -> None:
    """Twelve hours of two epochs; the clock of the second one begins half an hour back."""
    random = np.random.default_rng(7)
    for epoch, begin, end in ((1, 0.0, 6.0), (2, 5.5, 12.0)):
        happened: dict[float, dict[str, Any]] = {}
        for hour in np.sort(random.uniform(begin, end, 25)):
            second = float(round(hour * HOUR, 3))
            some = [pair for pair in PAIRS if random.random() < 0.3]
            # b3 has no limit after the first hours, and a limit may end.
            limited = [pair for pair in some if pair[0] != "b3" or hour < 2.0]
            rates = [(*pair, float(random.choice([20.0, 50.0, NAN]))) for pair in limited]
            ended = "gone" if random.random() < 0.2 else None
            tables = used(second, *((*pair, float(random.uniform(0, 60))) for pair in some))
            if rates:
                tables |= given(*rates, ended_because=ended)
            happened[second] = tables
        write(history, happened, epoch=epoch)


@pytest.mark.nightly
def test_views_and_audits_find_the_same(history: History) -> None:
    record(history)
    exceeded = load_audit("exceeded")
    values = exceeded.values({"tolerance": 0.01, "settle_s": 600})
    compared = 0
    with DuckDBEngine(history) as engine:
        for hours in (3.0, 5.7, 10.0):
            since = at(hours * HOUR)
            wanted = {"since_h": since}
            rows = engine.ask(ROWS, wanted, since=since).rows
            assert rows == engine.ask(ROWS, wanted, since=BEGINNING).rows
            assert {row[5] for row in rows} & {20.0, 50.0}
            assert any(row[8] is not None and row[8] < at((hours - 1) * HOUR) for row in rows)
            found = engine.ask(exceeded.sql, values, since=since).rows
            # A run that began before is longer with the reports from then.
            all_runs = engine.ask(exceeded.sql, values, since=BEGINNING).rows
            whole = [row for row in found if row in all_runs]
            assert whole == [row for row in all_runs if row[3] >= since]
            compared += len(whole)
    assert compared > 0
