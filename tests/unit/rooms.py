"""The rooms of the package: what is in each, and which others it may import.

tests/unit/test_rooms.py compares the code's imports with this, and generates the table in
docs/architecture.md from it. Every room may import ``GROUND``, the files in the package's root.
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
        "groups laws throttle",
        pure=True,
    ),
    "balance": Room(
        "the load balancer: from the load of brokers and bundles to moves and splits",
        "parsing topics",
        pure=True,
    ),
    "balance.stock": Room(
        "Pulsar's own shedders, placements, splits and report rule, bit for bit",
        "balance parsing topics",
        pure=True,
    ),
    "balance.agent": Room(
        "the balancer's programs beside the job: the collector of load, the executor of plans",
        "agents balance console history pulsar_admin settings topics transport wire",
    ),
    "balance.record": Room(
        "recorded rounds, decided again by quotaplane or a strategy of Pulsar's",
        "balance balance.stock",
        pure=True,
    ),
    "wire": Room(
        "the bytes on the topics: reports, limits, load reports, plans, to and from Arrow",
        "balance groups parsing settings topics",
    ),
    "metrics": Room(
        "what running programs show to a monitoring system: Prometheus metrics, traces of rounds",
        "balance settings wire",
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
        "what long-running programs share: request budgets, a log of failures, programs "
        "that run together"
    ),
    "pulsar_admin": Room(
        "client of a Pulsar cluster's REST API: groups, bundles, owners, rates and "
        "usage of topics, and the quotas that follow from rates",
        "agents groups parsing settings topics",
    ),
    "pulsar": Room(
        "a Spark data source for Pulsar, usable without the jobs",
        "console parsing pulsar_admin settings",
    ),
    "transport": Room(
        "topics of reports and limits: embedded Delta tables, Kafka, Pulsar",
        "deltalog pulsar settings",
    ),
    "history": Room(
        "the history: its Delta tables, writer, maintenance",
        "balance console deltalog groups settings",
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
        "agents console groups pulsar_admin registry settings",
    ),
    "streams": Room(
        "the stream mechanism of all jobs: operator, sink, checkpoint, life cycle",
        "console deltalog groups history metrics pulsar_admin settings transport wire",
    ),
    "streams.quota": Room(
        "the quota job: its program, its messages and history rows",
        "group_sync groups history laws metrics quota settings streams transport wire",
    ),
    "streams.balance": Room(
        "the balance job: load reports in, plans of moves and splits out",
        "balance history metrics settings streams transport wire",
    ),
    "replay": Room(
        "recorded rounds of the quota job, run again: exactly, or with something "
        "changed; the quick what-if",
        "deltalog groups history laws query quota settings streams streams.quota wire",
    ),
    "sim": Room(
        "a simulated cluster and control loop, without Spark",
        "client groups laws parsing quota throttle wire",
    ),
    "demo": Room(
        "`./spark-submit.sh demo`: the real job with a simulated cluster, and its report page",
        "console laws query registry settings sim streams streams.quota transport",
    ),
    "server": Room(
        "`quotaplane serve`: groups, attachments and their history over HTTP",
        "agents console deltalog groups history laws metrics parsing pulsar_admin query "
        "registry replay settings",
    ),
    "cli": Room(
        "the command `quotaplane`, and the entry points of the scripts in `jobs/`",
        "agents balance balance.agent balance.record balance.stock console deltalog "
        "enforce.agent groups history laws metrics parsing pulsar_admin query quota "
        "registry replay server settings sim streams throttle topics transport",
    ),
}
