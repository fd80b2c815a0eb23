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

# The enforcer
ENFORCER: Final = Condition("enforcer", "parts of its loop, or its election, fail")
NAMESPACES: Final = Condition("namespaces", "namespaces that can't be read")
TOPICS: Final = Condition("topics", "namespaces whose topics can't be read")
BROKERS: Final = Condition("brokers", "brokers, or their bundles, can't be read")
ATTACHMENTS: Final = Condition("attachments", "many namespaces seem to have lost their groups")
USE_OF_TOPICS: Final = Condition("use of topics", "brokers whose use of topics can't be read")
READING_RATES: Final = Condition("reading rates", "topics whose rates can't be read")
WRITING_RATES: Final = Condition("writing rates", "topics whose rates can't be written")
READING_NAMESPACES: Final = Condition(
    "reading rates of namespaces", "namespaces whose rates can't be read"
)
WRITING_NAMESPACES: Final = Condition(
    "writing rates of namespaces", "namespaces whose rates can't be written"
)
FOREIGN_RATES: Final = Condition(
    "rates of namespaces", "namespaces with rates that the enforcer did not set: these stay"
)
ADMINISTRATORS_RATES: Final = Condition(
    "rates of administrators", "the table of administrators' rates can't be read or written"
)
QUOTAS: Final = Condition("quotas in the history", "the quotas can't be read")
EPOCHS: Final = Condition("epochs in the history", "the newest epoch can't be read")
MUTED_PRODUCERS: Final = Condition("muted producers", "producers that can't be checked")
TAKE_OVER: Final = Condition("take over", "groups whose publish quotas can't be read or written")
IGNORED_LIMITS: Final = Condition(
    "ignored limits", "limits of dimensions, or throttle terms, that stock brokers do not enforce"
)
UNVERIFIED_LIMITS: Final = Condition(
    "unverified limits", "limits are signed, and limits.signing is not set here"
)
REFUSED_LIMITS: Final = Condition(
    "limits topic", "messages that are no valid limits", forget_s=60.0, remind_s=60.0
)
CUT_GROUPS: Final = Condition("cut limits", "groups whose limits exceed their quotas, and are cut")
CLOCK_OF_LIMITS: Final = Condition(
    "clock of limits", "limits arrive too late or too early for their leases"
)
MISSING_GROUPS: Final = Condition("missing groups", "groups that the table does not have")
CROWDED_GROUPS: Final = Condition("crowded groups", "groups with more topics than units")
STUCK_GROUPS: Final = Condition("stuck groups", "groups whose quotas can't be given back")
JOB_GONE: Final = Condition("quota job", "it is gone: the cluster limits by itself")

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
