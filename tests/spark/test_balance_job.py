"""The balance job end to end: reports in, a plan out, killed between, and its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quotabalance.job.job import BalanceSpec
from quotaplane.transport.delta import DeltaTopics
from tests.job import settings_in
from tests.spark.loops import BalanceLoop, cut_off, running
from tests.waiting import wait_beside

TABLES = ("load", "balance_decisions", "balance_rounds", "rejected_reports")


@pytest.mark.nightly
def test_a_job_that_is_killed_after_it_published_decides_the_same_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"confirm_samples": 1, "confirm_window_samples": 1, "noise_z": 0.0}
    settings = settings_in(
        tmp_path,
        trigger={"interval_s": 0.1},
        balance={"round_interval_s": 0.5, "cluster": "east", "options": options},
    )
    loop = BalanceLoop(settings)
    loop.report(b"junk")
    with monkeypatch.context() as patch:
        cut_off(patch, DeltaTopics, "publish")
        with (
            running(spark, BalanceSpec(settings)) as job,
            pytest.raises(Exception, match="CutOffError"),
        ):
            wait_beside(job, lambda: False)
    (plan,) = loop.decided()

    def of_the_plan(table: str) -> list[dict[str, Any]]:
        """Rows that its round wrote."""
        return [row for row in loop.rows(table) if row["seq"] == plan.seq]

    before = {name: len(of_the_plan(name)) for name in TABLES}
    assert len(loop.rows("balance_rounds")) == 1

    with running(spark, BalanceSpec(settings)) as job:
        loop.report()
        wait_beside(job, lambda: len(loop.decided()) > 1 and len(loop.rows("balance_rounds")) > 1)
    first, again = loop.plans[:2]
    assert first == again, "the same bytes: the batch that ran again decided the same"
    assert {name: len(of_the_plan(name)) for name in TABLES} == before
    assert [row["reason"] for row in loop.rows("rejected_reports")] == ["wrong_protobuf"]
    moves = [row for row in of_the_plan("balance_decisions") if row["kind"] == "move"]
    moves.sort(key=lambda row: row["place"])
    assert [(m["subject"], m["source"], m["target"]) for m in moves] == [
        move[:3] for move in plan.decisions.moves
    ]
    assert moves
    assert {row["cluster"] for row in loop.rows("load")} == {"east"}
