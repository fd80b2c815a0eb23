"""Conditions after each step of a run, read from outside: from messages, and from brokers.

* **strict**: what all brokers may use of a quota is at most that quota (docs/explain/laws.md has
  the terms: from the beginning of the promise on, and a lowered quota holds two leases later).
* **one content**: a limit of one (epoch, seq), broker and group is always the same.
* **sound**: no published limit is NaN, negative, or above the quotas over its group, unless its
  lease is over: a process that was frozen goes on with what it decided.
* **one leader**: only the process that claimed to lead last writes a round.
* **recorded**: a round's rows are in the history before its limits are published.
* **again**: a batch that runs again on the same input leaves the same state.
* **one epoch**: no two checkpoints have the same, and none leads after a later one.
* **obeyed**: the client library has the limits that the newest messages gave.

``accounts`` compares the job's state with the table and the brokers, ``served`` looks at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, FloatArray, Round
from quotaplane.transport.base import Message
from quotaplane.wire.limits import LimitsMessage, decode_limits
from quotaplane.wire.signatures import SigningKeys
from tests.simulation.accounts import Accounts
from tests.simulation.obeyed_limits import groups_of
from tests.simulation.scenario import STALE_MS
from tests.simulation.storage import Planned, StoredState

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.job_process import JobProcess
    from tests.simulation.world import World

_ROUNDING = 1e-9


class ViolationError(AssertionError):
    """An invariant does not hold."""


class _Ceiling:
    """The quotas that limits in force may still be of: the newest, and earlier ones for a time."""

    def __init__(self) -> None:
        self.values: list[tuple[dict[int, float] | None, int | None, int]] = []
        """(quota, until when it may be in force or None, number of its change)."""

    def most(self, dimension: int, now_ms: int, since: int = -1) -> float:
        """The highest quota that may be in force; ``since``: of that change and later ones."""
        self.values = [each for each in self.values if each[1] is None or each[1] > now_ms]
        return max(
            (
                np.inf if quota is None else quota.get(dimension, np.inf)
                for quota, _, number in self.values
                if number >= since
            ),
            default=np.inf,
        )

    def newest(self, changes: int) -> int:
        """The number of the newest change among the first ``changes``."""
        return max((number for _, _, number in self.values if number <= changes), default=-1)


class Invariants:
    """See the module."""

    def __init__(self, world: World) -> None:
        self.world = world
        scenario = world.scenario
        self._keys = SigningKeys.of(scenario.settings.limits.signing)
        self._contents: dict[tuple[int, int, str, Any], bytes] = {}
        self._ceilings = {group: _Ceiling() for group in world.families}
        self._promised_from_ms: float = np.inf
        """By the clock of the job's host."""
        self._promised = False
        self._epochs: dict[int, str] = {}
        """The checkpoint of each epoch."""
        self._since: dict[str, int] = {}
        """By group: the change that the first batch of this epoch knew; empty before it."""
        self.accounts = Accounts(world, self.fail)
        self.clocks_wrong = False
        """A clock differed by more than strict allows: it promises nothing any more."""
        self._epoch = -1
        self.fast_epoch = -2
        """The epoch of the job that runs under fast before strict ones."""
        self._shards_ran: dict[int, int] = {}
        self._lease_over_ms = 0
        self.in_force: dict[str, FloatArray] = {}

    def fail(self, text: str) -> NoReturn:
        """Report a violation.

        Raises:
            ViolationError: always.
        """
        raise ViolationError(text)

    # --- strict -----------------------------------------------------------------------------------

    def job_started(self, process: JobProcess) -> None:
        """A process leads from now on."""
        checkpoint = process.checkpoint
        other = self._epochs.setdefault(checkpoint.epoch, checkpoint.name)
        if other != checkpoint.name:
            self.fail(f"one epoch: {checkpoint.name} and {other} have epoch {checkpoint.epoch}")
        if checkpoint.epoch < max(self._epochs):
            self.fail(f"one leader: {process.name} leads with an epoch before {max(self._epochs)}")
        if checkpoint.fast:
            self.fast_epoch = checkpoint.epoch
        if checkpoint.epoch != self._epoch:
            self._epoch, self._promised = checkpoint.epoch, False
            self._shards_ran, self._promised_from_ms, self._since = {}, np.inf, {}

    def learns(self, process: JobProcess, now_ms: int) -> bool:
        """Whether a process hands limits back in a batch of this time."""
        first_ms = min(self._shards_ran.values(), default=now_ms)
        lease_ms = self.world.scenario.lease_ms
        return process.checkpoint.epoch == self._epoch and now_ms < first_ms + lease_ms

    def leads(self, process: JobProcess) -> None:
        """A process found that it leads, and is about to write and publish a round."""
        row = self.world.leaders.row
        if row is None or row.claim_id != process.name:
            self.fail(f"one leader: {process.name} goes on, and {row} leads")

    def shard_ran(self, process: JobProcess, shard: int, planned: Planned) -> None:
        """A shard took a step; its promise begins a lease after its first one."""
        now_ms = planned.now_ms
        if process.checkpoint.epoch == self._epoch and not self._since:
            newest = {g: each.newest(planned.changes) for g, each in self._ceilings.items()}
            self._since = newest
        self._lease_over_ms = max(self._lease_over_ms, now_ms + self.world.scenario.lease_ms)
        if process.checkpoint.epoch != self._epoch or shard in self._shards_ran:
            return
        self._shards_ran[shard] = now_ms
        if len(self._shards_ran) == self.world.scenario.settings.shards:
            lease_ms = self.world.scenario.lease_ms
            first_ms = max(self._shards_ran.values()) + lease_ms
            self._promised_from_ms = max(first_ms, self._lease_over_ms) + STALE_MS

    def ran_again(
        self, process: JobProcess, seq: int, before: StoredState, after: StoredState
    ) -> None:
        """A batch ran again on the same input."""
        if before.elements != after.elements:
            self.fail(f"again: batch {seq} of {process.name} left another state the second time")

    def quota_changed(self, group: str) -> None:
        """The table has another quota of a group, or none."""
        ceiling = self._ceilings[group]
        ceiling.values.append(
            (self.world.groups.quotas.get(group), None, len(self.world.groups.changes))
        )

    def batch_done(self, process: JobProcess, seq: int, planned: Planned) -> None:
        """A batch was published: the job knows the quotas that it read."""
        self.accounts.check(process, seq, planned)
        lease = 2 * (self.world.scenario.lease_ms + 2 * STALE_MS)
        over_ms = self.world.timeline.now_ms + lease
        for ceiling in self._ceilings.values():
            if len(ceiling.values) < 2:
                continue
            newest = ceiling.newest(planned.changes)
            ceiling.values = [
                (quota, over_ms if until is None and number < newest else until, number)
                for quota, until, number in ceiling.values
            ]
        self._begin_promise()

    def _begin_promise(self) -> None:
        if self.world.job_clock.now_ms() >= self._promised_from_ms:
            self._promised = True

    def limits_changed(self, broker: BrokerProcess) -> None:
        """A broker may have other limits; the others' can only have become lower."""
        self._check_obeyed(broker)
        self.in_force[broker.name] = self._of(broker)
        if self._too_much():
            self.check_strict()

    def check_strict(self) -> None:
        """Add up the limits in force of all brokers.

        Raises:
            ViolationError: they exceed a quota.
        """
        self._begin_promise()
        for broker in self.world.brokers:
            self.in_force[broker.name] = self._of(broker)
        for text in self._too_much():
            self.fail(text)

    def _of(self, broker: BrokerProcess) -> FloatArray:
        groups = self.world.scenario.groups
        if not broker.alive:
            return np.zeros((len(groups), len(DIMENSIONS)))
        in_force = broker.in_force()
        epochs = np.array([broker.obeyed.epoch_of(group) for group in groups])
        if not self._promised:
            # What an earlier epoch published does not count, but what this one did must fit.
            in_force[epochs != self._epoch] = 0.0
        # A safe limit of fast never ends: a group counts once its broker obeys a strict job.
        in_force[epochs == self.fast_epoch] = 0.0
        return in_force

    def _check_obeyed(self, broker: BrokerProcess) -> None:
        groups = self.world.scenario.groups
        wanted, found = broker.obeyed.in_force(groups, broker.steady_ms()), broker.in_force()
        if not np.array_equal(wanted, found):
            self.fail(f"obeyed: {broker.name} has limits {found.tolist()}, not {wanted.tolist()}")

    def _too_much(self) -> list[str]:
        if not self.world.scenario.strict or self.clocks_wrong:
            return []
        if not self._promised and not self._since:
            return []
        since = {} if self._promised else self._since
        total = sum(self.in_force.values())
        now_ms = self.world.timeline.now_ms
        found = []
        for group, members in self.world.families.items():
            for dimension in self.world.scenario.dimensions:
                most = self._ceilings[group].most(dimension, now_ms, since.get(group, -1))
                sum_ = total[members, dimension].sum()  # type: ignore[index]
                if sum_ > most * (1.0 + _ROUNDING):
                    each = {
                        name: limits[members, dimension].tolist()
                        for name, limits in self.in_force.items()
                    }
                    found.append(
                        f"strict: {DIMENSIONS[dimension]} of {group}: limits in force add up to "
                        f"{sum_:g}, the quota is {most:g}: {each}"
                    )
        return found

    # --- messages ---------------------------------------------------------------------------------

    def published(self, process: JobProcess, stamp: Round, message: Message) -> LimitsMessage:
        """A message goes to the limits topic."""
        try:
            decoded = decode_limits(message.value, self._keys)
        except InputError as error:
            self.fail(f"sound: a message for {message.key} is refused: {error}")
        if (decoded.epoch, decoded.seq) not in self.world.history.complete:
            self.fail(f"recorded: limits of round {stamp} are published before its history")
        names, removed = groups_of(decoded, self.world.name_of_id)
        for at, group in enumerate(names):
            self._check_sound(decoded, at, group)
        if self.world.scenario.repeats:
            contents = {name: decoded.limits[at].tobytes() for at, name in enumerate(names)}
            for name, content in {**contents, **dict.fromkeys(removed, b"removed")}.items():
                self._check_same(decoded, name, content)
        self.accounts.published(decoded)
        return decoded

    def _check_same(self, message: LimitsMessage, name: str, content: bytes) -> None:
        key = message.epoch, message.seq, message.broker, name
        content += f"{message.issued_at_ms} {message.lease_ms}".encode()
        if self._contents.setdefault(key, content) != content:
            self.fail(
                f"one content: epoch {message.epoch} seq {message.seq} has two limits of {name} "
                f"for {message.broker}"
            )

    def _check_sound(self, message: LimitsMessage, at: int, group: str) -> None:
        limits = message.limits[at]
        safe = limits[:0] if message.safe_limits is None else message.safe_limits[at]
        now_ms = self.world.timeline.now_ms
        over = now_ms > message.issued_at_ms + message.lease_ms + STALE_MS
        if not (limits >= 0).all() or not (safe >= 0).all():
            self.fail(f"sound: {group} for {message.broker}: {limits} (safe {safe})")
        for dimension in self.world.scenario.dimensions:
            most = min(
                self._ceilings[each].most(dimension, now_ms) for each in self.world.above[group]
            )
            highest = max(limits[dimension], safe[dimension] if len(safe) else 0.0)
            if highest > most * (1.0 + _ROUNDING) and not over:
                self.fail(
                    f"sound: {group} for {message.broker}: {highest:g} of a quota of {most:g}, in "
                    f"seq {message.seq}"
                )
