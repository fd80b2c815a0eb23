"""The conditions of the balancer's programs; see ``quotaplane.agents.known_conditions``."""

from __future__ import annotations

from typing import Final

from quotaplane.agents.conditions import Condition

NO_LOAD_REPORTS: Final = Condition(
    "no load reports", "no load report arrived for half of balance.options.stale_after_s"
)
LOAD_OF_BROKERS: Final = Condition("load of brokers", "brokers whose load can't be read")
LOADS_TOPIC: Final = Condition("loads topic", "load reports can't be published")
PLANS_TOPIC: Final = Condition("plans topic", "plans can't be read")
REFUSED_PLANS: Final = Condition(
    "refused plans", "messages that are no valid plans", forget_s=60.0, remind_s=60.0
)
ACTIONS: Final = Condition(
    "actions of the executor", "the table balance_actions can't be read, so orders wait longer"
)
OWN_BALANCING: Final = Condition(
    "own balancing", "brokers that move or split bundles by themselves, besides the plans"
)
CHECK_OF_PLAN: Final = Condition("check of the plan", "a plan can't be compared with the cluster")

CONDITIONS: Final = tuple(each for each in globals().values() if isinstance(each, Condition))
