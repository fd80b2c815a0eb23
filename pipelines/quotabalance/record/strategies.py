"""Strategies in force: quotaplane's own and Pulsar's, with their settings, round after round."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from quotabalance.planning.decisions import OURS, Decisions
from quotabalance.planning.options import BalanceOptions, read_options
from quotabalance.planning.planner import BalanceRound, BalanceState, decide
from quotabalance.planning.policies import Policies, read_policies
from quotabalance.stock.stock_leader import StockLeader
from quotabalance.stock.stock_settings import StockSettings, stock_settings
from quotaplane.errors import InputError


class Strategy(Protocol):
    """One strategy in a run: an instance remembers. Every move has a target."""

    def decide(self, round_: BalanceRound, *, proposed: bool = False) -> Decisions:
        """Decide the next round; ``proposed``: moves and splits wait for an approval."""

    def to_bytes(self) -> bytes:
        """Its memory."""


class OurStrategy:
    """quotaplane's own."""

    def __init__(self, options: BalanceOptions, policies: Policies, state: BalanceState) -> None:
        self._options, self._policies, self._state = options, policies, state

    def decide(self, round_: BalanceRound, *, proposed: bool = False) -> Decisions:
        """See ``Strategy``."""
        state, decided = decide(self._state, round_, self._options, self._policies)
        self._state = state.as_proposed() if proposed else state
        return decided

    def to_bytes(self) -> bytes:
        """See ``Strategy``."""
        return self._state.to_bytes()


@dataclass(frozen=True)
class StrategyInForce:
    """A strategy's name and settings, as the record of a round has them."""

    name: str = OURS
    options: BalanceOptions = field(default_factory=BalanceOptions)
    """Options of quotaplane's strategy; the balance job has some of them with every strategy."""
    policies: Policies = field(default_factory=Policies)
    stock: StockSettings = field(default_factory=StockSettings)
    """Settings of Pulsar's strategies."""

    def run(self, memory: bytes | None = None) -> Strategy:
        """An instance; without a memory it remembers nothing.

        Raises:
            InputError: Pulsar has no such strategy, or no such placement.
            ConfigError: another version wrote the memory.
        """
        if self.name == OURS:
            state = BalanceState.empty() if memory is None else BalanceState.from_bytes(memory)
            return OurStrategy(self.options, self.policies, state)
        if memory is None:
            return StockLeader(self.name, self.stock, self.policies)
        return StockLeader.from_bytes(memory, self.stock, self.policies)

    def settings_text(self) -> str:
        """The settings as JSON, the same text for the same settings."""
        policies = self.policies.model_dump(mode="json")
        policies["drained_brokers"] = sorted(policies["drained_brokers"])
        settings = {"options": self.options.model_dump(mode="json"), "policies": policies}
        if self.name != OURS:
            settings["stock"] = asdict(self.stock)
        return json.dumps(settings, sort_keys=True)

    @classmethod
    def of_record(cls, name: str, settings: Mapping[str, Any]) -> StrategyInForce:
        """The strategy of a recorded round.

        Raises:
            InputError: it was recorded by a version with other settings.
        """
        try:
            return cls(
                name,
                read_options(settings["options"]),
                read_policies(settings["policies"]),
                stock_settings(settings.get("stock", {})),
            )
        except InputError as error:
            raise InputError(f"the recorded settings are of another version: {error}") from None
