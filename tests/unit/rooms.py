"""The rooms of the package: what is in each, and which others it may import.

The test of layers holds the code to this, and the table in docs/architecture.md is made of it.
``GROUND`` may be imported by all: it is the files in the package's root.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Room(NamedTuple):
    """A folder of the package, by its dotted name."""

    holds: str
    imports: tuple[str, ...] = ()
    """Rooms; a room never needs to name the ground."""
    pure: bool = False
    """It runs without Spark, a server, a clock or a disk; a test imports it and looks."""


GROUND: Final = "(root)"

ROOMS: Final = {
    GROUND: Room(
        "dimensions, ids, arrays, errors, tables as bytes and as text; what everybody may import",
        ("cli",),  # __main__ only
    ),
    "settings": Room("the settings file: what may be in it, defaults, checks"),
    "laws": Room("division laws: demands and a quota to limits, with reasons", pure=True),
    "throttle": Room(
        "throttle laws: requests and a quota to answers; the step of the throttle job", pure=True
    ),
    "groups": Room(
        "what a resource group is: name, tree, policy, scope, quotas as text", ("throttle",), True
    ),
    "quota": Room(
        "the quota step: (state, events, round) to (state, outcome)",
        ("laws", "groups", "throttle"),
        True,
    ),
    "wire": Room(
        "bytes to Arrow tables and back: two report formats, the limits message",
        ("groups", "settings"),
    ),
    "client": Room(
        "a broker's side: makes usage reports, applies limits, and says what may be used now",
        ("groups", "transport", "wire"),
        True,
    ),
    "deltalog": Room("Delta tables in local folders: safe reads, durable commits, mending"),
    "agents": Room("what long-running programs share: pacing, failures told once"),
    "pulsar_admin": Room(
        "a Pulsar cluster's REST API: groups, bundles, placement, rates, use of topics",
        ("agents", "settings"),
    ),
    "pulsar": Room(
        "a Spark data source for Pulsar, usable by itself", ("pulsar_admin", "settings")
    ),
    "transport": Room(
        "where reports come from and limits go: embedded Delta tables, Kafka, Pulsar",
        ("deltalog", "pulsar", "settings"),
    ),
    "history": Room(
        "the Delta tables, the writer, audits, maintenance", ("deltalog", "groups", "settings")
    ),
    "registry": Room(
        "quotas as data: the table resource_groups, read and changed without a JVM",
        ("deltalog", "groups", "history", "settings", "throttle"),
    ),
    "enforce": Room(
        "limits of brokers to rates of topics: what to write, and when",
        ("client", "groups", "laws", "wire"),
        True,
    ),
    "enforce.agent": Room(
        "the enforcer of a Pulsar cluster: the program around `enforce`",
        (
            *("agents", "enforce", "history", "pulsar_admin", "registry"),
            *("settings", "transport", "wire"),
        ),
    ),
    "group_sync": Room(
        "keeps the table resource_groups as a Pulsar cluster's groups are",
        ("agents", "groups", "pulsar_admin", "registry", "settings"),
    ),
    "streams": Room(
        "the one stream mechanism: a program by shard, operator, sink, checkpoint, life cycle",
        ("groups", "history", "settings", "transport", "wire"),
    ),
    "streams.quota": Room(
        "the quota job: its program, and what it makes of outputs",
        (
            *("group_sync", "groups", "history", "laws", "quota", "settings", "streams"),
            *("transport", "wire"),
        ),
    ),
    "streams.throttle": Room(
        "the throttle job, and dry runs",
        (
            *("groups", "history", "registry", "settings", "streams"),
            *("throttle", "transport", "wire"),
        ),
    ),
    "sim": Room(
        "a simulated cluster and loop, without Spark",
        ("client", "groups", "laws", "quota", "throttle", "wire"),
    ),
    "demo": Room(
        "`./spark-submit.sh demo`: the real job against the simulated cluster, and its report",
        (
            *("history", "laws", "registry", "settings", "sim", "streams", "streams.quota"),
            "transport",
        ),
    ),
    "cli": Room(
        "the command `quotaplane`, and what the scripts in jobs/ start",
        (
            *("deltalog", "enforce.agent", "groups", "history", "laws", "pulsar_admin", "quota"),
            *("registry", "settings", "sim", "streams", "throttle", "transport"),
        ),
    ),
}
