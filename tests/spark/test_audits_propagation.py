"""How long quota changes took: on limits and changes made by hand, with the exact answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from quotaplane.history.audit import ask, load_audit, register_views
from quotaplane.model import RATE_COLUMNS
from quotaplane.settings import History
from tests.spark.audit_cases import at, check, write
from tests.unit.history_cases import INF, NAN, limits

Ask = Callable[..., DataFrame]


CHANGES = (
    "version long, changed_at timestamp, changed_by string, change string, "
    "resource_group string, quota double"
)

PROPAGATION = (
    "resource_group string, dimension string, changed_at timestamp, changed_by string, "
    "from_per_s double, to_per_s double, state string, brokers long, first_limit_at timestamp, "
    "in_force_at timestamp, seconds double"
)


@pytest.fixture
def propagation(spark: SparkSession, history: History) -> Ask:
    """Asks the audit of given changes: (version, at, by, change, group, quota).

    Commits have the time of the test's run, so the changes are not taken from the change feed
    (test_change_feed.py has that).
    """

    def propagation(
        *changes: tuple[Any, ...], rate: str = RATE_COLUMNS[0], **parameters: Any
    ) -> DataFrame:
        register_views(spark, history, "limit_values")
        others = [f"DOUBLE(NULL) AS {name}" for name in RATE_COLUMNS if name != rate]
        rows = spark.createDataFrame(list(changes), CHANGES)
        rows = rows.withColumnRenamed("quota", rate).selectExpr("*", *others)
        rows.createOrReplaceTempView("resource_group_changes")
        return ask(spark, load_audit("propagation"), **parameters)

    return propagation


def test_propagation_waits_for_all(spark: SparkSession, history: History, propagation: Ask) -> None:
    write(
        history,
        {
            1: {"limits": limits([("b1", "g", 30.0), ("b2", "g", 30.0)])},
            2.5: {"limits": limits([("b3", "g", 30.0)])},
            100.5: {"limits": limits([("b1", "g", 40.0), ("b2", "g", 40.0)])},
            # said again, as another dimension moved
            101: {"limits": limits([("b3", "g", 30.0)])},
            102: {"limits": limits([("b3", "g", 40.0)])},
            109: {"limits": limits([("b1", "g", 60.0), ("b3", "g", 20.0)])},
        },
    )
    changes = (
        (1, at(0), "ann", "insert", "g", 90.0),
        (2, at(100), "bob", "update_preimage", "g", 90.0),
        (2, at(100), "bob", "update_postimage", "g", 120.0),
    )
    name = ("g", "publish_messages")
    first = (*name, at(0), "ann", None, 90.0, "in force", 3, at(1), at(2.5), 2.5)
    second = (*name, at(100), "bob", 90.0, 120.0, "in force", 3, at(100.5), at(102), 2.0)
    sooner = (*name, at(100), "bob", 90.0, 120.0, "in force", 3, at(100.5), at(100.5), 0.5)
    check(spark, propagation(*changes), [first, second], PROPAGATION)
    rough = propagation(*changes, since=at(50), parameters={"tolerance": 0.1})
    check(spark, rough, [sooner], PROPAGATION)


def test_propagation_of_a_total(spark: SparkSession, history: History, propagation: Ask) -> None:
    given = limits([("b1", "g", 60.0), ("b2", "g", 30.0)], dimension="total_bytes")
    write(history, {3: {"limits": given}})
    change = (1, at(0), "ann", "insert", "g", 90.0)
    row = ("g", "total_bytes", at(0), "ann", None, 90.0, "in force", 2, at(3), at(3), 3.0)
    check(spark, propagation(change, rate="total_bytes_per_s"), [row], PROPAGATION)


def test_propagation_that_never_came(
    spark: SparkSession, history: History, propagation: Ask
) -> None:
    write(
        history,
        {
            1: {"limits": limits([("b1", "g", 100.0)])},
            60: {"limits": limits([("b1", "g", 60.0)])},
            61: {"limits": limits([("b1", "h", 60.0)])},
        },
    )
    answer = propagation(
        (1, at(0), "ann", "insert", "g", 100.0),
        (2, at(10), "ann", "insert", "nobody", 10.0),
        (3, at(20), "ann", "update_preimage", "g", 100.0),
        (3, at(20), "ann", "update_postimage", "g", 50.0),
        (4, at(30), "ann", "update_preimage", "g", 50.0),
        (4, at(30), "ann", "update_postimage", "g", 70.0),
        (4, at(35), "ann", "insert", "h", 50.0),
        # nothing that this audit is about
        (5, at(40), "ann", "update_preimage", "g", 70.0),
        (5, at(40), "ann", "update_postimage", "g", 70.0),
    )
    name = ("g", "publish_messages")
    rows = [
        (*name, at(0), "ann", None, 100.0, "in force", 1, at(1), at(1), 1.0),
        ("nobody", name[1], at(10), "ann", None, 10.0, "no brokers", None, None, None, None),
        (*name, at(20), "ann", 100.0, 50.0, "superseded", None, None, None, None),
        (*name, at(30), "ann", 50.0, 70.0, "below", None, at(60), None, None),
        ("h", name[1], at(35), "ann", None, 50.0, "pending", None, at(61), None, None),
    ]
    check(spark, answer, rows, PROPAGATION)


def test_propagation_of_unlimited_and_of_deletion(
    spark: SparkSession, history: History, propagation: Ask
) -> None:
    gone = limits([("b1", "g", NAN), ("b2", "g", NAN)], ended_because="group_deleted")
    write(
        history,
        {
            1: {"limits": limits([("b1", "g", 40.0), ("b2", "g", 60.0)])},
            11: {"limits": limits([("b1", "g", INF)])},
            13: {"limits": limits([("b2", "g", INF)])},
            24: {"limits": limits([("b1", "g", 5.0), ("b2", "g", 5.0)])},
            35: {"limits": gone},
        },
    )
    answer = propagation(
        (1, at(0), "ann", "insert", "g", 100.0),
        (2, at(10), "bob", "update_preimage", "g", 100.0),
        (2, at(10), "bob", "update_postimage", "g", None),
        (3, at(20), "ann", "update_preimage", "g", None),
        (3, at(20), "ann", "update_postimage", "g", 10.0),
        (4, at(30), "zed", "delete", "g", 10.0),
    )
    name = ("g", "publish_messages")
    rows = [
        (*name, at(0), "ann", None, 100.0, "in force", 2, at(1), at(1), 1.0),
        (*name, at(10), "bob", 100.0, None, "in force", 2, at(11), at(13), 3.0),
        (*name, at(20), "ann", None, 10.0, "in force", 2, at(24), at(24), 4.0),
        (*name, at(30), "zed", 10.0, None, "in force", 0, at(35), at(35), 5.0),
    ]
    check(spark, answer, rows, PROPAGATION)
