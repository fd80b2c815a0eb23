"""The balancer's tables of the history: reported load, decisions, rounds."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from quotabalance.planning.reported_loads import (
    COUNT_COLUMNS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    USAGE_COLUMNS,
)
from quotabalance.record.outcomes import ALREADY, DONE, NOT_MADE
from quotaplane.history.table_parts import TIMESTAMP, appended, column, columns, list_of

_CLUSTER: Final = column("cluster", pa.string(), "the setting balance.cluster")


LOAD: Final = appended(
    "load",
    "Brokers' load reports as the balancer used them: one row per broker and round in which it had "
    "a new report. In a round with every_broker, all brokers have a row.",
    [
        _CLUSTER,
        column("broker", pa.string(), "name of the broker"),
        column("started_at", TIMESTAMP, "when the broker or its collector started"),
        column("sequence", pa.int64(), "number of the report since then"),
        column("measured_at", TIMESTAMP, "when the numbers were measured"),
        column("published_at", TIMESTAMP, "when the report was published", null=True),
        column("position", pa.string(), "where the report stood in its topic"),
        column("draining", pa.bool_(), "the report says that the broker is to be taken out"),
        *columns(USAGE_COLUMNS, "use, in the unit of its limit", null=False),
        *columns(LIMIT_COLUMNS, "what the machine has; 0 = not known", null=False),
        column("bundles", list_of(pa.string()), "the bundles that it serves"),
        *columns(RATE_COLUMNS, "of each bundle", list_of(pa.float32()), null=False),
        *columns(COUNT_COLUMNS, "of each bundle; -1 = not known", list_of(pa.int32()), null=False),
    ],
    by_date=True,
)

BALANCE_DECISIONS: Final = appended(
    "balance_decisions",
    "What the balancer decided, and why: one row per move, split, refusal or skip.",
    [
        _CLUSTER,
        column("kind", pa.string(), "move, split or skip"),
        column("place", pa.int64(), "its place in the round: moves are made in this order"),
        column("subject", pa.string(), "the bundle; of a skip also a broker; empty: the cluster"),
        column("source", pa.string(), "the broker that has the bundle; empty for a skip"),
        column("target", pa.string(), "the broker that is to get it; empty: placement chooses"),
        column("bytes_per_s", pa.float64(), "a move's load, in and out together", null=True),
        column("boundaries", list_of(pa.int64()), "first hashes of the new bundles of a split"),
        column("label", pa.string(), "the reason as one word"),
        column("reason", pa.string(), "the reason as a sentence with numbers"),
        column("bundles", pa.int64(), "how many bundles the row is about"),
        column("plan_hash", pa.string(), "the plan that the row belongs to; empty: no plan"),
        column("enforced", pa.bool_(), "false: proposed, executed only if somebody approved it"),
    ],
    by_date=True,
)

BALANCE_ROUNDS: Final = appended(
    "balance_rounds",
    "One row per round of the balancer, written after everything else of it. With load, it is all "
    "that a replay needs.",
    [
        _CLUSTER,
        column("positions", pa.string(), "JSON: where its batch's input began and ended"),
        column("strategy", pa.string(), "quotaplane, or Pulsar's class"),
        column("settings", pa.string(), "JSON: options and policies in force"),
        column("brokers", list_of(pa.string()), "the brokers of the round"),
        column("not_made", pa.string(), "JSON: orders that the executor has not carried out"),
        column("first", pa.bool_(), "the first round of its epoch: all memories are empty"),
        column("every_broker", pa.bool_(), "the table load has a row for each broker"),
        column("bundles", pa.int64(), "bundles on these brokers"),
        column("bytes_per_s", pa.float64(), "of all bundles, in and out together"),
        column("max_mean", pa.float64(), "bytes of the most loaded broker, divided by the mean"),
        column("oldest_s", pa.float64(), "age of the oldest broker's numbers"),
        column("moves", pa.int64(), "moves decided"),
        column("moved_bytes_per_s", pa.float64(), "load of the bundles to be moved"),
        column("splits", pa.int64(), "splits decided"),
        column("skips", pa.int64(), "refusals and skips"),
        column("plan_hash", pa.string(), "identifies moves and splits; empty: there are none"),
        column("mode", pa.string(), "propose or auto"),
    ],
    by_date=True,
)

BALANCE_ACTIONS: Final = appended(
    "balance_actions",
    "What `quotaplane balance execute` did: begin and end of each plan, each move, each split.",
    [
        column("plan_hash", pa.string(), "identifies the plan's moves and splits"),
        column("plan_epoch", pa.int64(), "epoch of the plan"),
        column("plan_seq", pa.int64(), "round of the balancer that decided the plan"),
        column("decided_at", TIMESTAMP, "when the plan was decided"),
        column("mode", pa.string(), "manual (approved by hash) or auto"),
        column("why", pa.string(), "the administrator's reason; empty in mode auto"),
        column("executed_by", pa.string(), "user and host of the executor"),
        column("action", pa.string(), "plan, move or split"),
        column(
            "outcome",
            pa.string(),
            f"plan: begun, ended, refused; otherwise: {', '.join((DONE, ALREADY, *NOT_MADE))}",
        ),
        column("bundle", pa.string(), "the bundle; empty for a plan"),
        column("source", pa.string(), "its owner before"),
        column("target", pa.string(), "the broker that was to get it; of a split: boundaries"),
        column("owner", pa.string(), "its owner afterwards; empty if not known"),
        column("bytes_per_s", pa.float64(), "the bundle's traffic in the plan"),
        column("attempts", pa.int64(), "unloads that were made"),
        column("took_ms", pa.float64(), "from the last unload until the new owner answered"),
        column("message", pa.string(), "why it failed or was not done"),
    ],
    by_date=True,
)

TABLES: Final = (LOAD, BALANCE_DECISIONS, BALANCE_ROUNDS, BALANCE_ACTIONS)
"""All of the balancer's tables."""
