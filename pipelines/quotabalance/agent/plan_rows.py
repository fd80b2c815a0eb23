"""Rows of ``balance_actions`` about the moves and splits of a plan."""

from __future__ import annotations

from quotabalance.agent.action_record import Action
from quotabalance.agent.bundle_mover import MoveResult
from quotabalance.planning.approval import PlanCheck
from quotabalance.planning.decisions import Decisions, Move, Split
from quotabalance.record import outcomes


def move_row(move: Move, result: MoveResult) -> Action:
    """The row of a move."""
    return Action(
        action="move",
        outcome=result.outcome,
        bundle=move.bundle,
        source=move.source,
        target=move.target,
        owner=result.owner,
        bytes_per_s=move.bytes_per_s,
        attempts=result.attempts,
        took_ms=result.took_s * 1000.0,
        message=result.message,
    )


def split_row(split: Split, outcome: str, message: str, took_s: float = 0.0) -> Action:
    """The row of a split at the boundaries of ``split``."""
    return Action(
        action="split",
        outcome=outcome,
        bundle=split.bundle,
        source=split.owner,
        target=" ".join(f"0x{boundary:08x}" for boundary in split.boundaries),
        took_ms=took_s * 1000.0,
        message=message,
    )


def rows_without_work(plan: Decisions, check: PlanCheck, whole: str = "") -> list[Action]:
    """Rows of the moves that are done already, and of what is refused.

    ``whole`` says why nothing of the plan is tried: all other moves and splits are not done then.
    """
    outcome = outcomes.NOT_DONE if whole else outcomes.REFUSED
    rows = [
        split_row(split, outcome, whole or why)
        for split, why in zip(plan.splits, check.of_splits, strict=True)
        if whole or why
    ]
    for move, done, why in zip(plan.moves, check.done.tolist(), check.of_moves, strict=True):
        if done:
            rows.append(move_row(move, MoveResult(outcomes.ALREADY, move.target, 0, 0.0, "")))
        elif whole or why:
            rows.append(move_row(move, MoveResult(outcome, "", 0, 0.0, whole or why)))
    return rows


def counted_as(row: Action) -> str:
    """The name under which a row is counted; a split's has the word in front.

    >>> counted_as(Action("split", "done")), counted_as(Action("move", "refused"))
    ('split done', 'refused')
    """
    return f"split {row.outcome}" if row.action == "split" else row.outcome
