"""Executes a plan: checks it against the cluster, then makes its splits and moves, paced."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from quotabalance.agent.action_record import Action, ActionRecord
from quotabalance.agent.bundle_mover import BundleMover, MoveResult
from quotabalance.agent.bundle_splitter import split_bundle
from quotabalance.agent.cluster_view import ClusterView, read_cluster
from quotabalance.agent.plan_rows import counted_as, move_row, rows_without_work, split_row
from quotabalance.balancer_conditions import OWN_BALANCING
from quotabalance.planning.approval import ClusterNow, PlanCheck, Tolerance, check_plan
from quotabalance.planning.decisions import Move, Split
from quotabalance.planning.options import read_options
from quotabalance.planning.placement_rules import PlacementRules
from quotabalance.planning.policies import read_policies
from quotabalance.record import outcomes
from quotabalance.settings import Balance
from quotabalance.wire.balance_plans import PlanMessage
from quotaplane.agents.conditions import Say
from quotaplane.errors import ClusterError, HistoryError
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.texts import first_few
from quotaplane.topics.bundle_names import parse_bundle

_NAMED: Final = 3
"""Reasons that a refusal of a whole plan names."""
TOLERANCE: Final = Tolerance()
MOST_FAILURES: Final = 3
"""After this many missed or failed moves in a row the executor begins no further move."""
SLOW_MOVE_S: Final = 2.0
"""A move that takes longer halves the number of moves at once."""
_MOST_TIMES: Final = 1000
"""Durations of moves that the status line is made from."""


class PlanVerdict(NamedTuple):
    """Whether a plan may be executed now."""

    view: ClusterView
    check: PlanCheck
    refusals: tuple[str, ...]
    """Why nothing of it may be done, a sentence each."""

    @property
    def whole(self) -> tuple[str, ...]:
        """Why nothing is done: ``refusals``, or the reasons of all moves and splits."""
        reasons = (*self.check.of_moves, *self.check.of_splits)
        if self.refusals or not reasons or not all(reasons):
            return self.refusals
        return tuple(dict.fromkeys(reasons))[:_NAMED]


class Executor:
    """Executes plans on one cluster.

    Args:
        balance: pace, what is balanced, and capacity weights.
        rest: client of the cluster's REST API.
        cluster: the cluster's name.
        record: where every action is recorded; None = nowhere.
        say: prints a line for the administrator.
        tolerance: how far the load may have moved on since a plan.
    """

    def __init__(
        self,
        balance: Balance,
        rest: Rest,
        cluster: str,
        record: ActionRecord | None,
        say: Say,
        tolerance: Tolerance = TOLERANCE,
    ) -> None:
        settings = balance.execute
        self._settings, self._rest, self._cluster = settings, rest, cluster
        self._resources = read_options(balance.options).resources
        self._policies = read_policies(balance.policies)
        self._drained = self._policies.drained_brokers.union(balance.collect.draining)
        self._record, self._say = record, say
        self._tolerance = tolerance
        self.pace = MovePace(settings.max_moves_at_once)
        self.counts: Counter[str] = Counter()
        self.moved_bytes_per_s = 0.0
        self.took_s: deque[float] = deque(maxlen=_MOST_TIMES)
        self._unrecorded = ""
        """Why nothing may be begun any more; "" = all actions of this plan are recorded."""

    async def check(self, plan: PlanMessage) -> PlanVerdict:
        """Check a plan against the cluster as it is now; changes nothing.

        Raises:
            ClusterError: the cluster can't be read, so nothing may be done.
        """
        view = await read_cluster(self._rest, self._cluster)
        self._note_own_balancing(view)
        check = check_plan(plan.decisions, self._now(view), self._tolerance)
        refusals = list(check.refusals)
        age_s = time.time() - plan.decided_at_ms / 1000.0
        if age_s > self._settings.max_plan_age_s:
            limit = self._settings.max_plan_age_s
            refusals.insert(0, f"it is {age_s:.0f} s old; at most {limit:g} s are allowed")
        return PlanVerdict(view, check, tuple(refusals))

    def _note_own_balancing(self, view: ClusterView) -> None:
        on = {name: one.switched_on for name, one in view.settings.items() if one.switched_on}
        switches = sorted(set().union(*on.values()))
        self._rest.conditions.set(
            OWN_BALANCING,
            on,
            f"brokers {first_few(sorted(on))} move or split bundles themselves"
            f" ({', '.join(f'{name}=true' for name in switches)}), so that moves may be undone or"
            " missed; set it to false",
        )

    def _now(self, view: ClusterView) -> ClusterNow:
        load = view.load
        drained = np.array([name in self._drained for name in load.brokers], np.bool_)
        where = (load.brokers, ~drained, load.bundles, load.owner)
        rules = (
            PlacementRules(self._policies, *where),
            # Pulsar itself checks no policy when a bundle is unloaded to a broker.
            PlacementRules(view.policies, *where, ports=False),
        )
        weights = self._policies.weights(load.brokers)
        return ClusterNow(load, rules, weights, drained, self._resources)

    async def execute(
        self, plan: PlanMessage, verdict: PlanVerdict, ended: Callable[[], str]
    ) -> Counter[str]:
        """Make those splits and moves that are not refused; returns how many ended how.

        Args:
            plan: the plan.
            verdict: without refusals.
            ended: why nothing more may be begun; "" = go on. Moves under way end first.
        """
        assert not verdict.whole
        self._unrecorded = ""
        moves, splits, check = plan.decisions.moves, plan.decisions.splits, verdict.check
        size = f"{len(moves)} moves, {len(splits)} splits"
        rows = rows_without_work(plan.decisions, check)
        await self._note(plan, Action("plan", "begun", message=size), *rows)
        counts = Counter(counted_as(row) for row in rows)
        # A split is no use before its time: all splits first, as moves may follow from them later.
        for split, refusal in zip(splits, check.of_splits, strict=True):
            if not refusal:
                counts[await self._split(plan, split, verdict.view, ended)] += 1
        settled = zip(moves, check.done.tolist(), check.of_moves, strict=True)
        pending = [move for move, done, refusal in settled if not done and not refusal]
        self._say_refusals(plan, check)
        counts += await self._moves(plan, pending, verdict.view, ended)
        summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        await self._note(plan, Action("plan", "ended", message=summary))
        self.counts += counts
        return counts

    async def refuse(self, plan: PlanMessage, verdict: PlanVerdict) -> str:
        """Record that nothing of the plan is done; returns why."""
        why = "; ".join(verdict.whole)
        whole = f"the plan was refused: {why}" if verdict.refusals else ""
        rows = rows_without_work(plan.decisions, verdict.check, whole)
        await self._note(plan, Action("plan", outcomes.REFUSED, message=why), *rows)
        return why

    def _say_refusals(self, plan: PlanMessage, check: PlanCheck) -> None:
        reasons = [why for why in (*check.of_splits, *check.of_moves) if why]
        if reasons:
            named = "; ".join(dict.fromkeys(reasons[:_NAMED]))
            self._say(f"plan {plan.plan_hash}: {len(reasons)} moves and splits refused: {named}")

    def status(self) -> dict[str, Any]:
        """Counts since the start, for a status line."""
        took = sorted(self.took_s)
        return {
            **{outcome.replace(" ", "_"): self.counts[outcome] for outcome in sorted(self.counts)},
            "moved_bytes_per_s": round(self.moved_bytes_per_s, 1),
            "moves_at_once": self.pace.at_once,
            "conditions": self._rest.conditions.active(),
            "move_ms_median": round(1000.0 * took[len(took) // 2], 1) if took else None,
            "move_ms_max": round(1000.0 * took[-1], 1) if took else None,
        }

    async def _moves(
        self, plan: PlanMessage, pending: list[Move], view: ClusterView, ended: Callable[[], str]
    ) -> Counter[str]:
        mover = BundleMover(
            self._rest, self._cluster, view.addresses, self._settings.unload_timeout_s
        )
        counts: Counter[str] = Counter()
        made: list[Move] = []
        under_way: dict[asyncio.Task[MoveResult], Move] = {}
        self.pace.failures_in_a_row = 0

        def stopped() -> str:
            if self._unrecorded:
                return self._unrecorded
            if self.pace.failures_in_a_row >= MOST_FAILURES:
                return f"{self.pace.failures_in_a_row} moves in a row failed"
            return ended()

        while pending or under_way:
            while not stopped() and (move := self._next(pending, under_way.values())):
                pending.remove(move)
                task = asyncio.create_task(mover.move(move, lambda: not ended()))
                under_way[task] = move
            if not under_way:
                break
            finished, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                move, result = under_way.pop(task), task.result()
                counts[result.outcome] += 1
                if result.outcome == outcomes.DONE:
                    made.append(move)
                await self._moved(plan, move, result)
        undone = await self._undone(plan, made, mover)
        counts[outcomes.DONE] -= undone
        counts[outcomes.MOVED_ON] += undone
        if pending:
            why, failing = stopped(), self.pace.failures_in_a_row >= MOST_FAILURES
            outcome = outcomes.REFUSED if failing else outcomes.NOT_DONE
            result = MoveResult(outcome, "", 0, 0.0, why)
            await self._note(plan, *(move_row(move, result) for move in pending))
            counts[outcome] += len(pending)
            self._say(f"plan {plan.plan_hash}: {len(pending)} moves not done: {why}")
        return +counts

    async def _undone(self, plan: PlanMessage, made: list[Move], mover: BundleMover) -> int:
        """Look once more where the moved bundles are, and record those that somebody else has
        moved since; returns their number.
        """
        owners = await mover.owners([move.bundle for move in made])
        undone = [move for move in made if owners.get(move.bundle, move.target) != move.target]
        for move in undone:
            owner = owners[move.bundle]
            where = f"is at {owner}" if owner else "has no owner"
            why = f"it {where} by now: somebody else unloaded it after this move"
            await self._moved(plan, move, MoveResult(outcomes.MOVED_ON, owner, 0, 0.0, why))
        if undone:
            names = first_few(move.bundle for move in undone)
            self._say(
                f"plan {plan.plan_hash}: {len(undone)} of {len(made)} moved bundles were unloaded"
                f" by somebody else since: {names}; they are left where they are"
            )
        return len(undone)

    def _next(self, pending: list[Move], under_way: Any) -> Move | None:
        """The first move that may begin now, if any.

        Two bundles of one range never move at once: Pulsar 4.0 would mix up their targets.
        """
        if len(under_way) >= self.pace.at_once:
            return None
        ranges = {parse_bundle(move.bundle).range for move in under_way}
        room = self._settings.max_bytes_at_once_per_s - sum(m.bytes_per_s for m in under_way)
        for move in pending:
            fits = move.bytes_per_s <= room or not under_way
            if fits and parse_bundle(move.bundle).range not in ranges:
                return move
        return None

    async def _moved(self, plan: PlanMessage, move: Move, result: MoveResult) -> None:
        if result.outcome == outcomes.DONE:
            self.pace.note(result.took_s)
            self.took_s.append(result.took_s)
            self.moved_bytes_per_s += move.bytes_per_s
        elif result.outcome in (outcomes.MISSED, outcomes.FAILED):
            self.pace.note(None)
            self._say(f"move of {move.bundle} to {move.target}: {result.outcome}: {result.message}")
        await self._note(plan, move_row(move, result))

    async def _split(
        self, plan: PlanMessage, split: Split, view: ClusterView, ended: Callable[[], str]
    ) -> str:
        boundaries, begun_s = split.boundaries, time.monotonic()
        outcome, message = outcomes.NOT_DONE, self._unrecorded or ended()
        if not message:
            try:
                boundaries = await split_bundle(
                    self._rest, split, view, self._settings.unload_timeout_s
                )
                outcome = outcomes.DONE
            except ClusterError as error:
                outcome, message = outcomes.FAILED, str(error)
                self._say(f"split of {split.bundle}: {message}")
        made = split._replace(boundaries=boundaries)
        row = split_row(made, outcome, message, time.monotonic() - begun_s)
        await self._note(plan, row)
        return counted_as(row)

    async def _note(self, plan: PlanMessage, *rows: Action) -> None:
        if self._record is None:
            return
        try:
            await self._record.write(plan, *rows)
        except HistoryError as error:
            if not self._unrecorded:
                self._say(f"plan {plan.plan_hash}: {error}; no further move is begun")
            self._unrecorded = "actions can't be recorded"


class MovePace:
    """The number of moves under way at once, between 1 and ``most``.

    >>> pace = MovePace(most=8)
    >>> for _ in range(3):
    ...     pace.note(0.1)
    >>> pace.at_once
    3
    >>> pace.note(5.0)
    >>> pace.at_once
    1
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._good = 0
        self._ignored = 0
        """Moves that began before the last decrease; they say nothing about the new pace."""
        self.at_once = 1
        self.failures_in_a_row = 0

    def note(self, took_s: float | None) -> None:
        """A move ended: how long it took; None = it failed.

        One more is allowed once all of the present number went well. Half is allowed after one that
        was slow or failed; others that were under way then don't halve it again.
        """
        self.failures_in_a_row = self.failures_in_a_row + 1 if took_s is None else 0
        ignored, self._ignored = self._ignored > 0, max(self._ignored - 1, 0)
        if took_s is not None and took_s <= SLOW_MOVE_S:
            self._good += 1
            if self._good >= self.at_once and self.at_once < self._most:
                self.at_once, self._good = self.at_once + 1, 0
        elif not ignored:
            self._ignored = self.at_once - 1
            self.at_once, self._good = max(self.at_once // 2, 1), 0
