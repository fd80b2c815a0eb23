"""The rooms of the two packages: what is in each, and which others it may import.

tests/unit/repo/test_rooms.py compares the code's imports with this, and generates the table in
docs/explain/architecture.md from it. Every room may import ``GROUND``, the files in the package's
root.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Room(NamedTuple):
    """What is known of one folder of the package."""

    holds: str
    imports: str = ""
    """Names of the rooms it may import, with spaces between; ``GROUND`` is never listed."""
    pure: bool = False
    """It uses no Spark, server, clock or disk; a test imports it in a fresh interpreter."""


GROUND: Final = "(root)"
BALANCE: Final = "quotabalance"
"""The files in the root of the second package."""

ROOMS: Final = {
    GROUND: Room(
        "basic types that every room may import: dimensions, rounds, errors, files, "
        "Arrow tables as bytes",
        "cli",
    ),  # __main__ only
    "parsing": Room("values from outside, read strictly: JSON, YAML, numbers, times and paths"),
    "console": Room("the terminal: tables, JSON and lines, and the parser of options", "parsing"),
    "topics": Room(
        "topics of a Pulsar cluster: bundles, layout on brokers, marks in their rates", pure=True
    ),
    "settings": Room("the settings file: keys, defaults, checks", "parsing"),
    "laws": Room("division laws: from a quota and demands to limits with reasons", pure=True),
    "throttle": Room(
        "throttle laws: from a quota and requests to answers; dry runs",
        pure=True,
    ),
    "groups": Room(
        "what a resource group is: name, id, tree, policy, scope, quotas written as text",
        "parsing throttle",
        pure=True,
    ),
    "quota": Room(
        "the step of the quota job: `(state, events, round) -> (state, outcome)`",
        "groups laws quota.estimate throttle",
        pure=True,
    ),
    "quota.estimate": Room(
        "the estimator: from what reports measured to what brokers would use if nothing limited "
        "them",
        "groups",
        pure=True,
    ),
    "wire": Room(
        "the bytes on the topics: reports and limits, to and from Arrow",
        "groups settings",
    ),
    "metrics": Room(
        "what running programs show to a monitoring system: Prometheus metrics, traces of rounds",
        "agents settings wire",
    ),
    "client": Room(
        "a broker's side: makes usage reports, keeps limits, says what may be used now",
        "groups transport wire",
        pure=True,
    ),
    "deltalog": Room(
        "Delta tables in local folders: reading, commits that survive a power loss, repair",
        "parsing",
    ),
    "agents": Room(
        "what long-running programs share: conditions, clocks, request budgets, programs "
        "that run together"
    ),
    "pulsar_admin": Room(
        "client of a Pulsar cluster's REST API: groups, bundles, owners, rates and "
        "usage of topics, and the quotas that follow from rates",
        "agents groups parsing settings topics",
    ),
    "pulsar": Room(
        "a Spark data source for Pulsar, usable without the jobs",
        "agents console parsing pulsar_admin settings",
    ),
    "transport": Room(
        "topics of reports and limits: embedded Delta tables, Kafka, Pulsar",
        "agents deltalog pulsar settings",
    ),
    "history": Room(
        "the history: its Delta tables, writer, maintenance",
        "console deltalog groups settings",
    ),
    "registry": Room(
        "the tables `resource_groups`, `attachments` and `administrator_rates`, read "
        "and changed without a JVM",
        "console deltalog groups history parsing settings throttle",
    ),
    "query": Room(
        "questions to the history in SQL: audits, status, reasons; DuckDB in process, or Spark",
        "deltalog groups history laws parsing registry settings",
    ),
    "enforce": Room(
        "from limits of brokers to rates of topics: which rates to write, and when",
        "client groups laws topics wire",
        pure=True,
    ),
    "enforce.agent": Room(
        "the enforcer: the program around `enforce/` that reads limits and writes rates",
        "agents enforce history metrics parsing pulsar pulsar_admin registry settings "
        "topics transport wire",
    ),
    "group_sync": Room(
        "copies a Pulsar cluster's resource groups into `resource_groups`",
        "agents enforce enforce.agent groups pulsar_admin registry settings",
    ),
    "streams": Room(
        "the stream mechanism of all jobs: operator, sink, checkpoint, life cycle",
        "agents console deltalog groups history metrics pulsar_admin settings transport wire",
    ),
    "streams.quota": Room(
        "the quota job: its program, its messages and history rows",
        "agents group_sync groups history laws metrics quota settings streams transport wire",
    ),
    "replay": Room(
        "recorded rounds of the quota job, run again: exactly, or with something "
        "changed; the quick what-if",
        "deltalog groups history laws query quota quota.estimate settings streams streams.quota "
        "wire",
    ),
    "sim": Room(
        "a simulated cluster and control loop, without Spark",
        "client groups laws parsing quota throttle wire",
    ),
    "demo": Room(
        "`./spark-submit.sh demo`: the real job with a simulated cluster, and its report page",
        "agents console laws query registry settings sim streams streams.quota transport",
    ),
    "server": Room(
        "`quotaplane serve`: groups, attachments and their history over HTTP",
        "agents console deltalog enforce groups history laws metrics parsing pulsar_admin query "
        "registry replay settings",
    ),
    "cli": Room(
        "the command `quotaplane`, and the entry points of the scripts in `jobs/`",
        "agents console deltalog enforce.agent groups history laws metrics parsing pulsar_admin "
        "query quota quota.estimate registry replay server settings sim streams throttle topics "
        "transport",
    ),
    BALANCE: Room(
        "how quotaplane finds the balancer (`extension.py`), its settings, metrics, conditions "
        "and routes",
        "agents metrics quotabalance.planning quotabalance.record server settings",
    ),
    "quotabalance.planning": Room(
        "quotaplane's strategy: from the load of brokers and bundles to moves and splits; what "
        "every strategy gets and returns",
        "parsing topics",
        True,
    ),
    "quotabalance.stock": Room(
        "Pulsar's own shedders, placements, splits and report rule, bit for bit",
        "parsing quotabalance.planning topics",
        True,
    ),
    "quotabalance.wire": Room(
        "the bytes on the topics: load reports and plans, to and from Arrow",
        "parsing quotabalance.planning topics wire",
    ),
    "quotabalance.record": Room(
        "the balancer's tables, rounds read from them, and other decisions for these",
        "deltalog history quotabalance.planning quotabalance.stock settings",
    ),
    "quotabalance.pulsar_admin": Room(
        "requests to a cluster's REST API about bundles, brokers' load and isolation",
        "parsing pulsar_admin topics",
    ),
    "quotabalance.agent": Room(
        "the programs beside the job: the collector of load, the executor of plans",
        "agents console history pulsar_admin quotabalance quotabalance.planning "
        "quotabalance.pulsar_admin quotabalance.record quotabalance.wire settings topics transport "
        "wire",
    ),
    "quotabalance.job": Room(
        "the balance job: load reports in, plans of moves and splits out",
        "agents history metrics quotabalance quotabalance.planning quotabalance.record "
        "quotabalance.wire streams transport wire",
    ),
    "quotabalance.cli": Room(
        "the commands `quotaplane balance ...`",
        "agents cli console history parsing pulsar_admin quotabalance quotabalance.agent "
        "quotabalance.planning quotabalance.record quotabalance.stock settings transport",
    ),
}
