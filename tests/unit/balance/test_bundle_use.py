"""Namespaces with many idle bundles: counted from the record of load reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotabalance.cli import bundles
from quotabalance.job.job import BalanceSpec
from quotabalance.job.round_rows import load_rows
from quotabalance.planning.options import BalanceOptions
from quotabalance.record.bundle_use import bundle_use, too_many
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.errors import InputError
from quotaplane.history.store import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.unit.balance.load_report_cases import NOW_MS, bundle_of, decoded, load_of
from tests.unit.balance.test_balance_record import options_of

LIMITS = BalanceOptions(max_bundle_bytes_per_s=1e6).bundle_limits


def rows(*rounds: tuple[BrokerLoad, ...]) -> pa.Table:
    found = []
    for number, reports in enumerate(rounds, 1):
        loads = decoded(*map(encode_load_report, reports)).loads
        table = load_rows(loads, "east")
        found.append(
            table.append_column("epoch", pa.array([7] * len(table))).append_column(
                "seq", pa.array([number] * len(table))
            )
        )
    return pa.concat_tables(found)


def idle(broker: str, count: int, *, first: int = 0, busy: int = 0, **more: Any) -> BrokerLoad:
    """A broker with bundles of acme/orders, of which the first ones have traffic."""
    return load_of(broker, [1e6] * busy + [0.0] * (count - busy), first=first, **more)


def of(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["namespace"]: row for row in bundle_use(table, LIMITS).to_pylist()}


def test_a_bundle_that_was_ever_busy_is_not_idle_and_one_that_is_gone_does_not_count() -> None:
    first = (idle("b1", 20, busy=2), idle("b2", 10, first=100))
    split = (idle("b1", 19, first=1, sequence=2), idle("b2", 10, first=100, sequence=2))
    use = of(rows(first, split))["acme/orders"]
    assert (use["bundles"], use["idle"]) == (29, 28)
    assert (use["topics"], use["sessions"], use["needed"]) == (29 * 3, 29 * 5, 4)


def test_the_needed_bundles_are_those_that_no_limit_forbids() -> None:
    busy = rows((load_of("b1", [3e6, 3e6, 3e6, 500_000.0]),))
    assert of(busy)["acme/orders"]["needed"] == 10
    many = rows((idle("b1", 2, topics=np.array([4000, 3001])),))
    assert of(many)["acme/orders"]["needed"] == 8


@pytest.mark.parametrize(
    ("count", "busy", "is_found"), [(16, 0, True), (15, 0, False), (64, 31, True), (64, 32, False)]
)
def test_only_many_bundles_that_are_mostly_idle_are_too_many(
    count: int, busy: int, is_found: bool
) -> None:
    few_bytes = [1000.0] * busy + [0.0] * (count - busy)
    use = bundle_use(rows((load_of("b1", few_bytes),)), LIMITS)
    assert bool(too_many(use).num_rows) == is_found


def test_namespaces_are_counted_by_themselves() -> None:
    names = [bundle_of(0, "acme/a"), bundle_of(1, "acme/a"), bundle_of(0, "acme/ab")]
    use = of(rows((load_of("b1", [1.0, 2.0, 4.0], bundles=names),)))
    assert {name: (row["bundles"], row["bytes_per_s"]) for name, row in use.items()} == {
        "acme/a": (2, 3.0),
        "acme/ab": (1, 4.0),
    }


def test_the_command_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = History(path=str(tmp_path / "history"))
    ensure_tables(history)
    table = rows((idle("b1", 40, busy=1),)).drop(["epoch", "seq"])
    with HistoryWriter(history, "one", BalanceSpec.tables, BalanceSpec.last_table) as writer:
        writer.append_round(Round(7, 1, NOW_MS), {"load": table})
    words = ("--history", history.path)
    assert bundles.run(options_of(bundles, *words, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["namespaces"], told["bundles"]) == (1, 40)
    assert [(row["namespace"], row["idle"]) for row in told["too_many"]] == [("acme/orders", 39)]
    assert bundles.run(options_of(bundles, *words, "--table")) == 0
    assert "acme/orders" in capsys.readouterr().out
    with pytest.raises(InputError, match="no load reports in that time"):
        bundles.run(options_of(bundles, *words, "--until", "2020-01-01"))
