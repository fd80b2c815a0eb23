"""One broker of its own kind: the real client library, with demand and a link to the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quotaplane.client.agent import FORGET_AFTER_MS, BrokerClient
from quotaplane.model import DIMENSIONS, UNLIMITED, FloatArray
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.limits import LimitsMessage
from quotaplane.wire.signatures import SigningKeys
from tests.simulation.obeyed_limits import ObeyedLimits
from tests.simulation.scenario import INTERVAL_MS
from tests.simulation.virtual_time import Clock

if TYPE_CHECKING:
    from tests.simulation.world import World


class BrokerProcess:
    """A broker, over all of its restarts.

    It uses of each group what it wants, as far as its limits let it.
    """

    def __init__(self, world: World, name: str, clock: Clock, phase_ms: int) -> None:
        self.world, self.name, self.clock = world, name, clock
        self.alive = True
        self.frozen = False
        self.cut_off_until_ms = 0
        """Nothing reaches the broker, or leaves it, before this time."""
        self.deaf_until_ms = 0
        """No limits reach the broker before this time."""
        self.mute_until_ms = 0
        """No report leaves the broker before this time."""
        self.slow_until_ms = self.slow_by_ms = 0
        """Limits that are published before this time reach the broker so much later."""
        scenario = world.scenario
        self.attached = np.ones(len(scenario.groups), np.bool_)
        self.demand: FloatArray = np.zeros((len(scenario.groups), len(DIMENSIONS)))
        self._uses_ids = world.rng.random() < 0.3
        # Where messages are slow, limits of brokers that don't count it swing
        # (docs/explain/simulation.md).
        self._counts_refused = world.rng.random() < 0.75 or scenario.network.least_delay_ms > 0
        self._keys = SigningKeys.of(scenario.settings.limits.signing)
        # Half of the brokers have a clock that nobody sets, the others have only the one above.
        self.steady_ms = (lambda: world.timeline.now_ms) if phase_ms % 2 else clock.now_ms
        self._inbox: list[Polled] = []
        self._waiting: list[tuple[Polled, LimitsMessage]] = []
        """Messages that arrived while the process was frozen."""
        self.restart()
        world.timeline.after(phase_ms, self._tick)

    def restart(self) -> None:
        """Start anew: the process knows no limits."""
        groups, scenario = self.world.scenario.groups, self.world.scenario
        self.alive, self._waiting, self._inbox = True, [], []
        self.started_at_ms = self.clock.now_ms()
        self._used_until_ms = self.world.timeline.now_ms
        unset = 0.0 if scenario.strict else UNLIMITED
        self.obeyed = ObeyedLimits(self.world.name_of_id, self.started_at_ms, unset)
        self.client = BrokerClient(
            self,
            self.name,
            now_ms=self.clock.now_ms,
            groups=[name for name, here in zip(groups, self.attached, strict=True) if here],
            strict=scenario.strict,
            safe_limit=UNLIMITED,
            counts_refused=self._counts_refused,
            uses_ids=self._uses_ids,
            dimensions=[DIMENSIONS[at] for at in scenario.dimensions],
            keys=self._keys,
            steady_ms=self.steady_ms,
        )

    def attach(self, group: int, here: bool) -> None:
        """A group's topics come to this broker, or leave it."""
        self.attached[group] = here
        name = self.world.scenario.groups[group]
        (self.client.attach if here else self.client.detach)([name])

    def in_force(self) -> FloatArray:
        """(groups, dimensions) what the broker may use now; of groups that it does not have, too:
        their topics may come to it at any time."""
        limits = self.client._received
        ids = self.world.group_ids
        return limits.of(0, limits.columns(ids), self.steady_ms())

    def reached_by_now(self) -> bool:
        """Whether messages get through to the broker and from it."""
        return self.alive and self.world.timeline.now_ms >= self.cut_off_until_ms

    def limits_late_ms(self) -> int:
        """How much later limits that are published now reach the broker."""
        return self.slow_by_ms if self.world.timeline.now_ms < self.slow_until_ms else 0

    def deliver(self, message: Polled, decoded: LimitsMessage) -> None:
        """A limits message arrives."""
        if not self.reached_by_now() or self.world.timeline.now_ms < self.deaf_until_ms:
            return
        if self.frozen:
            self._waiting.append((message, decoded))
            return
        self._inbox.append(message)
        self.client.poll()
        self.obeyed.apply(decoded, self.clock.now_ms(), self.steady_ms())
        if self.client.refused:
            self.world.invariants.fail(f"{self.name} refused: {self.client.refused_because}")
        self.world.invariants.limits_changed(self)

    def thaw(self) -> None:
        """Go on after a time without processor time."""
        self.frozen = False
        waiting, self._waiting = self._waiting, []
        for message, decoded in waiting:
            self.deliver(message, decoded)

    def _tick(self) -> None:
        self.world.timeline.after(INTERVAL_MS, self._tick)
        if self.alive and not self.frozen:
            self.report()

    def report(self) -> None:
        """Use what the limits allow in the window that ends now, and report it."""
        if len(self.client._ids) == 0:
            return
        # By true time: what is used does not depend on what the clock shows.
        window_s = (self.world.timeline.now_ms - self._used_until_ms) / 1000
        self._used_until_ms = self.world.timeline.now_ms
        order = [self.world.place[group] for group in self.client.groups]
        demand = self.demand[order]
        if noise := self.world.scenario.demand_noise:
            demand = demand * self.world.rng.uniform(1.0 - noise, 1.0 + noise)
        used = np.minimum(demand, self.client.limits())
        self.client.use_all(used * window_s, (demand - used) * window_s)
        self.client.report()
        self._forget()

    def _forget(self) -> None:
        """Forget in the plain rules, too, what the client forgot with its report."""
        groups = self.world.scenario.groups
        known = self.client._received.columns(self.world.group_ids) >= 0
        for group, is_known, hosted in zip(groups, known, self.attached, strict=True):
            if not is_known and not hosted:
                self.obeyed.forget(group, self.steady_ms() - FORGET_AFTER_MS)

    # --- the link -------------------------------------------------------------------------------

    def send_reports(self, reports: list[tuple[str, bytes, int]]) -> None:
        """``BrokerLink.send_reports``."""
        for _, value, published_at_ms in reports:
            self.world.send_report(self, value, published_at_ms)

    def poll_limits(self) -> Portion:
        """``BrokerLink.poll_limits``."""
        messages, self._inbox = self._inbox, []
        return Portion(messages, more=False, caught_up=True)

    def close(self) -> None:
        """``BrokerLink.close``."""
