"""Conditions on the job's state after each batch, compared with the table and the brokers.

* **no quota lost**: the state has exactly the quotas that the table had when the batch was planned.
* **accounted** (strict): a broker never has more in force than the state says: all of a limit of
  this epoch, and of one of an earlier epoch what was counted once.
* **forward**: of each broker, the newest report that counts never gets older, until the broker is
  forgotten.
* **removed**: a group's removal is published to each broker that has a limit of it.
* **handed back** (strict): limits of an earlier epoch that brokers report are published again.
* **accepted**: no report of a broker is refused as malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from quotaplane.model import DIMENSIONS, LIMIT_COLUMNS, FloatArray
from quotaplane.wire.limits import LimitsMessage
from quotaplane.wire.reasons import FUTURE, NOT_BAD
from tests.simulation.obeyed_limits import groups_of
from tests.simulation.scenario import STALE_MS
from tests.simulation.storage import Planned
from tests.state_invariants import check_state

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.job_process import JobProcess
    from tests.simulation.world import World

_ROUNDING = 1e-6
_ALSO_NORMAL = NOT_BAD | {FUTURE}
"""A clock that is ahead makes reports of the future."""


class Accounts:
    """See the module. ``fail`` raises."""

    def __init__(self, world: World, fail: Callable[[str], NoReturn]) -> None:
        self.world, self.fail = world, fail
        self._newest_report: dict[tuple[int, int], dict[str, tuple[int, int]]] = {}
        """(start, sequence) by broker, of each (epoch, shard)."""
        self._published: dict[tuple[int, str, str], FloatArray] = {}
        """(dimensions,) newest limit by (epoch, broker, group)."""
        self._removed: dict[tuple[int, int], set[tuple[str, str]]] = {}
        """(broker, group) by (epoch, seq)."""
        self._expected: dict[tuple[int, int], list[tuple[str, str, FloatArray]]] = {}
        """(broker, group, limits) that a round must hand back, by (epoch, seq)."""
        self._counted: dict[tuple[int, str, int, str, int], float] = {}
        """Most that this epoch counted of a limit of an earlier one, by (epoch, broker, start,
        group, dimension)."""
        self._checks_hand_back = world.scenario.strict and world.scenario.has_plain_hand_back

    # --- what is noted ----------------------------------------------------------------------------

    def published(self, message: LimitsMessage) -> None:
        """A message goes to the limits topic."""
        limited, removed = groups_of(message, self.world.name_of_id)
        for at, name in enumerate(limited):
            self._published[message.epoch, message.broker, name] = message.limits[at]
        found = self._removed.setdefault((message.epoch, message.seq), set())
        found.update((message.broker, group) for group in removed)

    def decoded(self, process: JobProcess, seq: int, planned: Planned, decoded: Any) -> None:
        """A batch's reports were decoded."""
        wrong = set(decoded.rejected["reason"].to_pylist()) - _ALSO_NORMAL
        if wrong:
            self.fail(f"accepted: reports of {process.name}, batch {seq}, are {sorted(wrong)}")
        key = process.checkpoint.epoch, seq
        if self._checks_hand_back and key not in self._expected:
            self._expected[key] = list(self._to_hand_back(process, planned, decoded))

    # --- after a batch ----------------------------------------------------------------------------

    def check(self, process: JobProcess, seq: int, planned: Planned) -> None:
        """Check the states that a batch left, once its limits are published."""
        states = [process.state_after(shard) for shard in range(process.settings.shards)]
        for state in filter(None, states):
            check_state(state)
        self._check_quotas(process, seq, planned, states)
        row = self.world.leaders.row
        if row is None or row.claim_id != process.name or self.world.invariants.clocks_wrong:
            return
        self._check_removals(process, seq)
        if self.world.scenario.repeats:
            self._check_order(process, states)
        if self.world.scenario.strict and not process.checkpoint.fast:
            for state in filter(None, states):
                self._check_in_force(process, seq, state)
            self._check_handed_back(process, seq)

    def _check_quotas(
        self, process: JobProcess, seq: int, planned: Planned, states: list[Any]
    ) -> None:
        known = quotas_of(states)
        table = self.world.groups.versions[planned.changes]
        if known != table:
            self.fail(
                f"no quota lost: after batch {seq} {process.name} has {known}, and the "
                f"table {table}"
            )

    def _check_order(self, process: JobProcess, states: list[Any]) -> None:
        for shard, state in enumerate(states):
            if state is None:
                continue
            brokers = state.brokers
            pairs = zip(brokers.started_at_ms.tolist(), brokers.sequence.tolist(), strict=True)
            newest = dict(zip(brokers.names, pairs, strict=True))
            before = self._newest_report.get((process.checkpoint.epoch, shard), {})
            for name in newest.keys() & before.keys():
                if (-1, -1) != newest[name] < before[name]:
                    self.fail(
                        f"forward: the newest report of {name} was {before[name]}, now "
                        f"{newest[name]}"
                    )
            self._newest_report[process.checkpoint.epoch, shard] = newest

    def _check_in_force(self, process: JobProcess, seq: int, state: Any) -> None:
        names = state.groups.names.to_pylist()
        group_at = {name: at for at, name in enumerate(names)}
        broker_at = {name: at for at, name in enumerate(state.brokers.names)}
        leases = state.leases
        pairs = zip(leases.group.tolist(), leases.broker.tolist(), strict=True)
        lease_at = {pair: at for at, pair in enumerate(pairs)}
        dimension_at = {d: at for at, d in enumerate(leases.dimensions)}
        for broker in self.world.brokers:
            if not broker.alive:
                continue
            in_force = broker.in_force()
            row = broker_at.get(broker.name)
            known = row is not None and state.brokers.started_at_ms[row] == broker.started_at_ms
            for group in names:
                obeyed_epoch = broker.obeyed.epoch_of(group)
                if obeyed_epoch == self.world.invariants.fast_epoch:
                    continue
                if not 0 <= obeyed_epoch <= process.checkpoint.epoch:
                    continue
                lease = lease_at.get((group_at[group], row)) if known else None
                has = lease is not None and bool(leases.has_limit[lease])
                for d in self.world.scenario.dimensions:
                    if d not in dimension_at:
                        continue
                    account = float(leases.max_in_force[dimension_at[d], lease]) if has else 0.0
                    account += _reserved(state, group, d)
                    actual = float(in_force[self.world.place[group], d])
                    counted = self._to_count(process, broker, group, d, actual, account)
                    if counted > account * (1.0 + _ROUNDING):
                        self.fail(
                            f"accounted: {broker.name} may use {actual:g} {DIMENSIONS[d]} of "
                            f"{group}, and batch {seq} of {process.name} counts {account:g}"
                        )

    def _to_count(
        self,
        process: JobProcess,
        broker: BrokerProcess,
        group: str,
        dimension: int,
        actual: float,
        account: float,
    ) -> float:
        """The part of ``actual`` that must be counted: all of it, if it is of this epoch.

        Of a limit of an earlier epoch that is as much as was counted once: it may have been
        unknown, or above a quota, but stays in force until the broker has one of this epoch.
        """
        epoch = process.checkpoint.epoch
        if broker.obeyed.epoch_of(group) == epoch:
            return actual
        key = epoch, broker.name, broker.started_at_ms, group, dimension
        highest = self._counted[key] = max(account, self._counted.get(key, 0.0))
        return min(actual, highest)

    def _check_removals(self, process: JobProcess, seq: int) -> None:
        """Each broker that had a limit of a group deleted in this batch gets a message."""
        removed = self._removed.pop((process.checkpoint.epoch, seq), set())
        begin, end = process.changes_of(seq)
        before, after = self.world.groups.versions[begin], self.world.groups.versions[end]
        # A group that was deleted and put again in one batch is a changed group.
        gone = before.keys() - after.keys()
        if not seq or not gone:
            return
        for state in process.states_before():
            names = state.groups.names.to_pylist()
            leases = state.leases
            for at in np.flatnonzero(leases.has_limit & leases.notified).tolist():
                group = names[leases.group[at]]
                pair = state.brokers.names[leases.broker[at]], group
                if group in gone and pair not in removed:
                    self.fail(f"removed: batch {seq} deletes {group}, unheard by {pair[0]}")

    # --- hand-back --------------------------------------------------------------------------------

    def _to_hand_back(
        self, process: JobProcess, planned: Planned, decoded: Any
    ) -> Iterator[tuple[str, str, FloatArray]]:
        """Limits that this round must hand back: those reported, while all fit the quotas."""
        epoch = process.checkpoint.epoch
        if not self.world.invariants.learns(process, planned.now_ms):
            return
        quotas = self.world.groups.versions[planned.changes]
        before = process.states_before()
        divided = {group for state in before for group in _divided(state)}
        used = _newest_reports(before)
        due: list[tuple[str, str, FloatArray]] = []
        for broker, reported in self._reported(planned, decoded, epoch, used):
            for group, limits in reported.items():
                fits = group in quotas and (epoch, broker, group) not in self._published
                if fits:
                    due.append((broker, group, self._at_most_quotas(group, limits, quotas)))
        for broker, group, limits in due:
            root = self.world.above[group][-1]
            tree = {self.world.scenario.groups[at] for at in self.world.families[root]}
            if not tree & divided and self._fits(epoch, tree, due, quotas):
                yield broker, group, limits

    def _reported(
        self, planned: Planned, decoded: Any, epoch: int, used: dict[str, tuple[int, int]]
    ) -> Iterator[tuple[str, dict[str, FloatArray]]]:
        """Each broker whose newest report is of limits of an earlier epoch, and these, by group.

        ``used``: (start, sequence) of the newest report that was used before, by broker.
        """
        headers = decoded.headers.to_pylist()
        newest: dict[str, tuple[tuple[int, int], int]] = {}
        for at, header in enumerate(headers):
            this = (header["started_at_ms"], header["sequence"]), at
            newest[header["broker"]] = max(this, newest.get(header["broker"], this))
        entries = decoded.entries.to_pylist()
        for broker, (order, at) in newest.items():
            header = headers[at]
            fresh = header["published_at_ms"] > planned.now_ms - STALE_MS + 1
            if (
                not fresh
                or order <= used.get(broker, (-1, -1))
                or not 0 <= header["applied_epoch"] < epoch
            ):
                continue
            limits = {}
            for entry in entries:
                rates = [entry.get(column) for column in LIMIT_COLUMNS]
                own = [np.nan if rate is None else rate for rate in rates]
                if entry["report"] == at and not np.isnan(own).all():
                    name = entry["group"] or self.world.name_of_id.get(entry["group_id"], "")
                    limits[name] = np.nan_to_num(np.array(own), nan=np.inf, posinf=np.inf)
            yield broker, limits

    def _at_most_quotas(
        self, group: str, limits: FloatArray, quotas: dict[str, dict[int, float]]
    ) -> FloatArray:
        most = limits.copy()
        for above in self.world.above[group]:
            for d, rate in quotas.get(above, {}).items():
                most[d] = min(most[d], rate)
        return most

    def _fits(
        self,
        epoch: int,
        tree: set[str],
        due: list[tuple[str, str, FloatArray]],
        quotas: dict[str, dict[int, float]],
    ) -> bool:
        """Whether all that was published and is due fits the quotas of a tree."""
        for top in tree & quotas.keys():
            below = {self.world.scenario.groups[at] for at in self.world.families[top]}
            due_below = (limits for _, group, limits in due if group in below)
            total = sum(due_below, start=np.zeros(len(DIMENSIONS)))
            for (of, _, group), limits in self._published.items():
                if of == epoch and group in below:
                    total = total + limits
            if any(np.take(total, d) > rate for d, rate in quotas[top].items()):
                return False
        return True

    def _check_handed_back(self, process: JobProcess, seq: int) -> None:
        epoch = process.checkpoint.epoch
        for broker, group, limits in self._expected.get((epoch, seq), ()):
            found = self._published.get((epoch, broker, group))
            for d in self.world.scenario.dimensions:
                if found is None or not np.isclose(found[d], limits[d], rtol=1e-6):
                    self.fail(
                        f"handed back: {broker} reports {limits[d]:g} {DIMENSIONS[d]} of {group}, "
                        f"and gets {None if found is None else found[d]} in batch {seq}"
                    )


def quotas_of(states: list[Any]) -> dict[str, dict[int, float]]:
    """The quotas in the states of all shards, by group and dimension."""
    known: dict[str, dict[int, float]] = {}
    for state in filter(None, states):
        names = state.groups.names.to_pylist()
        for at, name in enumerate(names):
            rates = state.groups.quota[:, at]
            known[name] = {int(d): float(rates[d]) for d in np.flatnonzero(np.isfinite(rates))}
    return known


def _reserved(state: Any, group: str, dimension: int) -> float:
    """Quota reserved for a group that was deleted and put again, while brokers may use it."""
    of_group = np.array([name == group for name in state.deleted.names], np.bool_)
    return float(state.deleted.held[dimension, of_group].sum())


def _newest_reports(states: list[Any]) -> dict[str, tuple[int, int]]:
    """(start, sequence) of the newest report by broker; all shards have all reports' headers."""
    newest: dict[str, tuple[int, int]] = {}
    for state in states:
        brokers = state.brokers
        pairs = zip(brokers.started_at_ms.tolist(), brokers.sequence.tolist(), strict=True)
        for name, pair in zip(brokers.names, pairs, strict=True):
            newest[name] = max(pair, newest.get(name, pair))
    return newest


def _divided(state: Any) -> set[str]:
    """Groups of which this epoch has divided a quota."""
    names = state.groups.names.to_pylist()
    leases = state.leases
    return {names[at] for at in leases.group[leases.issued_seq >= 0].tolist()}
