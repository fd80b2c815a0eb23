"""Orders that the executor has not carried out are not under way any more."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path

from quotabalance.agent.action_record import Action, ActionRecord
from quotabalance.planning.bundle_orders import NotMade
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.record.orders_not_made import OrdersNotMade
from quotaplane.errors import HistoryError
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.balance.balance_cases import HOT, bundle, cluster, once
from tests.unit.balance.balance_cluster import message

FULL = "refused: broker b2 would use 90% of its machine"


def test_an_order_that_was_refused_is_missed_at_once_and_tried_again_later() -> None:
    load = cluster(HOT)
    state, decided = once(load, now_s=1000.0)
    first, *others = decided.moves
    refused = NotMade(first.bundle, 1_000_000, True, FULL)
    later = NotMade(others[0].bundle, 999_000, True, "of an earlier plan")
    state, again = once(load, state=state, now_s=1060.0, not_made=[refused, later])
    missed = {skip.subject: skip.reason for skip in again.skips if skip.label == "Missed"}
    assert missed.keys() == {first.bundle}
    assert missed[first.bundle].endswith(f"was missed: the executor says: {FULL}; attempt 1")
    assert first.bundle not in {move.bundle for move in again.moves}
    _, third = once(load, state=state, now_s=1400.0, not_made=[refused, later])
    assert first.bundle in {move.bundle for move in third.moves}


def test_an_order_that_was_not_tried_may_be_given_again_at_once() -> None:
    load = cluster(HOT)
    state, decided = once(load, now_s=1000.0)
    why = "not done: the plan was refused: it is 2000 s old"
    not_made = [NotMade(move.bundle, 1_000_000, False, why) for move in decided.moves]
    state, again = once(load, state=state, now_s=1060.0, not_made=not_made)
    assert again.moves == decided.moves
    missed = [skip.subject for skip in again.skips if skip.reason.endswith(f"{why}; attempt 1")]
    assert missed == sorted(move.bundle for move in decided.moves)
    assert {order.attempts for order in state.orders.values()} == {1}


def test_the_executors_record_says_what_was_not_made(tmp_path: Path) -> None:
    history, said = History(path=str(tmp_path / "history")), list[HistoryError | None]()
    now = datetime.now(timezone.utc)
    orders = OrdersNotMade(history, said.append, 3600.0, lambda: now)
    assert orders.newest() == ()
    assert isinstance(said.pop(), HistoryError)
    make_history(history)
    names = [bundle(2 * n) for n in range(4)]
    plan = message(Decisions([Move(name, "b1", "b2", 1.0, "Overloaded", "") for name in names]))
    record = ActionRecord(history, "", "auto")
    outcomes = ("refused", "done", "failed", "not done")
    rows = [Action("move", outcome, name) for name, outcome in zip(names, outcomes, strict=True)]
    rows[0] = rows[0]._replace(message="it is full")
    try:
        asyncio.run(record.write(plan, Action("plan", "refused", message="x"), *rows))
    finally:
        record.close()
    at_ms = plan.decided_at_ms
    assert orders.newest() == (
        NotMade(names[0], at_ms, True, "refused: it is full"),
        NotMade(names[2], at_ms, True, "failed"),
        NotMade(names[3], at_ms, False, "not done"),
    )
    assert said == [None]
    now += timedelta(hours=2)
    assert orders.newest() == ()
