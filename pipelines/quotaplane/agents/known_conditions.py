"""All conditions: docs/metrics.md and the label of their metric are made of them.

A new one needs a line here, calls of ``Conditions.set`` or ``note``, and a row of the table of
warnings in docs/runbook.md that says what to do.
"""

from __future__ import annotations

from typing import Final

from quotaplane.agents.conditions import Condition

# Reports, in a job's driver
NO_REPORTS: Final = Condition("no reports", "no usage report arrived for 3 report intervals")
UNUSABLE: Final = Condition("unusable reports", "reports arrive, and none can be used")
BACKLOG: Final = Condition(
    "backlog of reports", "no report can be used as all waited too long; the job catches up"
)
OTHER_TIME: Final = Condition(
    "time of reports", "no report can be used as the clock that stamps them differs from the job's"
)
REFUSED_SHARE: Final = Condition(
    "refused reports",
    "a tenth or more of the reports can't be used, or a twentieth did within the last minute",
    forget_s=60.0,
)
WRONG_CLOCKS: Final = Condition(
    "wrong clocks", "brokers whose reports are, and stay, of another time than the job's host"
)
SLOW_ROUNDS: Final = Condition(
    "slow rounds", "rounds take longer than reports.interval_s", remind_s=600.0
)
UNRECORDED: Final = Condition(
    "unrecorded reports", "reports that rounds left out can't be read again to be recorded"
)
LOST: Final = Condition(
    "lost reports",
    "usage lacks reports, as their topics lost them before they were recorded",
    forget_s=600.0,
    remind_s=60.0,
)


def _refused(reason: str, meaning: str) -> Condition:
    return Condition(reason, f"reports {meaning}", forget_s=60.0)


OTHER_BROKER: Final = _refused("other_broker", "that name another broker than their broker_from")
BROKER_NOT_ALLOWED: Final = _refused(
    "broker_not_allowed", "of brokers that allowed_brokers does not have"
)
TOO_MANY_BROKERS: Final = _refused("too_many_brokers", "of brokers beyond max_brokers")
TOO_MANY_ENTRIES: Final = _refused("too_many_entries", "with more entries than their bytes allow")
TWO_INCARNATIONS: Final = _refused(
    "two_incarnations", "of a second program in the name of a broker"
)

# A Pulsar cluster
ACCESS_REFUSED: Final = Condition(
    "access refused",
    "requests that the cluster refuses for lack of rights (401, 403)",
    forget_s=600.0,
)
LIST_OF_BROKERS: Final = Condition("list of brokers", "the cluster's list can't be read")
ADDRESS_OF_BROKERS: Final = Condition(
    "address of brokers", "brokers of the list whose names can't be found out"
)
GROUP_SYNC: Final = Condition(
    "resource group sync", "groups of the cluster are not copied into the table"
)
LIST_OF_TOPICS: Final = Condition(
    "list of topics", "topic partitions can't be listed; those that are known are read"
)

# The server
HISTORY: Final = Condition("history", "the tables can't be read", unready=True)
ANSWERS: Final = Condition(
    "answers", "requests fail as the history can't be read or written", forget_s=60.0, remind_s=60.0
)
CLOCK_OF_JOB: Final = Condition(
    "clock of the job", "the newest round is of a later time than the server's clock has"
)
CONNECTIONS: Final = Condition("connections", "as many are open as the server admits")
KEYS_OF_TOKENS: Final = Condition("keys of tokens", "the key set can't be fetched")

CONDITIONS: Final = tuple(each for each in globals().values() if isinstance(each, Condition))
"""All of them, in the order of the page."""
UNREADY: Final = frozenset(each.name for each in CONDITIONS if each.unready)
