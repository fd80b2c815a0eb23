"""All conditions: docs/reference/metrics.md and the label of their metric are made of them.

A new one needs a line here, calls of ``Conditions.set`` or ``note``, and a place in the table of
docs/operate/runbook/index.md, which names the page that says what to do.
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

ATTACHMENTS_TOPIC: Final = Condition(
    "attachments topic", "attachments can't be published: brokers go by the earlier ones"
)
STORE: Final = Condition("store", "the history's store gives no answer: rounds wait for it")
SPARK_LOG: Final = Condition("log of Spark", "it can't be written: its lines are lost meanwhile")
HISTORY_BY_TASKS: Final = Condition(
    "history by tasks", "executors can't write the history's files: the driver writes them"
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
LEFT_OUT_GROUPS: Final = Condition(
    "left out groups", "groups of the cluster whose names or ids the table can't have"
)
WAITING_TENANTS: Final = Condition(
    "tenants", "tenants of cluster.tenants that do not exist, or whose groups do not"
)
VANISHED_GROUPS: Final = Condition(
    "vanished groups", "so many groups are not in the cluster's list that they are kept for now"
)
UNLISTED_GROUPS: Final = Condition(
    "unlisted groups",
    "groups that the cluster does not list, and yet has",
    text="the cluster does not list the resource groups {}, and yet has them: they are not deleted "
    "from the table",
)
ZERO_QUOTAS: Final = Condition(
    "zero quotas",
    "groups with a quota of 0 in the cluster, which Pulsar's brokers do not apply as such",
    text="resource groups {}: have a quota of 0 in the cluster: Pulsar's brokers treat it as "
    "unlimited first, and later as 1 per second and broker; quotaplane treats it as -1 "
    "(unlimited); set at least 1, or -1",
)
NO_COPIES: Final = Condition(
    "quotas without a copy",
    "groups whose quota only the table has, though no enforcer took it over",
    text="resource groups {}: the cluster has no publish quota of them (-1), and no copy of it "
    "(GROUP.taken-over), so no enforcer took it over: the table's quotas stay; if the groups are "
    "to be unlimited, say so there (`quotaplane groups put GROUP --publish-messages-per-s "
    "unlimited --publish-bytes-per-s unlimited`), else set their quotas in the cluster "
    "(`pulsar-admin resourcegroups update -mp MESSAGES -bp BYTES GROUP`)",
)
OTHER_CLUSTERS: Final = Condition(
    "other clusters",
    "clusters whose quotas were written into the same history within the last hour",
    forget_s=3600.0,
)
NO_ENFORCER: Final = Condition(
    "no enforcer",
    "none leads, so publish quotas are given back to the cluster",
    text="none has led for enforce.give_back_after_s: the publish quotas that were taken over are "
    "written to the cluster again, so that its brokers limit by themselves; start an enforcer",
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
OBSERVED_USAGE: Final = Condition(
    "observed usage",
    "brokers whose metrics take so long to read that their own reports count",
    forget_s=600.0,
)
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
MISSING_GROUPS: Final = Condition(
    "missing groups",
    "groups that the table does not have",
    # The cluster may have no quota of them either, so their rates stay as they are.
    text="resource groups {}: not in the table any more, while namespaces are attached to them in "
    "the cluster: their topics' rates stay as they are; bring the groups back (`quotaplane groups "
    "restore --from-history`), detach the namespaces, or make the groups unlimited (`quotaplane "
    "groups put GROUP --publish-messages-per-s unlimited --publish-bytes-per-s unlimited`)",
)
CROWDED_GROUPS: Final = Condition(
    "crowded groups",
    "groups with more topics than units in their limits, which rates can't limit",
    text="resource groups {}: have more topics and partitions than units in their limits, and the "
    "lowest rate of a topic is 1 per second: rates can't limit them; their publish quotas stay in "
    "the cluster, or are written there again, and the brokers' own calculator limits as well; "
    "their dispatch limits can be exceeded",
)
STUCK_GROUPS: Final = Condition(
    "stuck groups",
    "groups whose quotas can't be given back",
    text="resource groups {}: their publish quotas can't be given back to the cluster: the rates "
    "of their topics stay",
)
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
