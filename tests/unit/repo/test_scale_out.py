"""The benchmark of scaling out: what its page says of given figures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from deltalake.transaction import AddAction

from benchmarks.scale_out.load import Load
from benchmarks.scale_out.model import Line, Size, fitted
from benchmarks.scale_out.observed_round import (
    DRIVER_JVM,
    DRIVER_PYTHON,
    EXECUTOR_JVM,
    EXECUTOR_PYTHON,
    WRITTEN,
    passed,
)
from benchmarks.scale_out.page import page
from benchmarks.scale_out.runs import ACTIVE, ALL, Run
from quotaplane.history.data_files import Written
from quotaplane.model import BASIC, group_id
from quotaplane.streams.task_files import FILES
from quotaplane.wire.intake import DenseEntries, Intake
from quotaplane.wire.report_own import decode_own

TASKS_S = Line(0.5, 1e-6, 2e-6, 4e-6)
DRIVER_S = Line(0.2, 0.0, 0.0, 1e-6)


def kept(run: Run) -> dict[str, Any]:
    """Figures of a run by the lines above."""

    def of_round(share: float) -> dict[str, float]:
        size = Size(run.groups, run.groups * run.spread, share * run.groups * run.spread)
        tasks_s, driver_s = TASKS_S.at(size), DRIVER_S.at(size)
        return {
            DRIVER_PYTHON: 0.25 * driver_s,
            DRIVER_JVM: 0.75 * driver_s,
            EXECUTOR_PYTHON: 0.5 * tasks_s,
            EXECUTOR_JVM: 0.5 * tasks_s,
            "round, s": driver_s + tasks_s,
            "resultSize": 31.0 * size.reported,
            "to Python": 10_000 + 30.0 * size.reported,
            "to Python: messages": 30.0 * size.reported,
            "bytes of messages": 43.0 * size.reported,
            WRITTEN: 25_000,
            "files of tasks": 6,
            "rows of files": 2 * size.reported,
            "bytes of files": 60 * size.reported,
        }

    return {
        **vars(run),
        "shards": run.shards,
        "entries": run.groups * run.spread,
        "whole": of_round(1.0),
        "active": of_round(ACTIVE),
        "peak_gb": {
            DRIVER_PYTHON: 0.5 + 1e-7 * run.groups * run.spread,
            DRIVER_JVM: 0.5 + 1e-7 * run.groups * run.spread,
            EXECUTOR_PYTHON: 0.2 + 1e-6 * run.groups * run.spread / run.shards,
            EXECUTOR_JVM: 0.5 + 5e-7 * run.groups * run.spread / run.executors,
            ALL: 3.0,
        },
    }


RUNS = [Run(100_000, 2), Run(300_000, 2), Run(100_000, 2, spread=20), Run(1_000_000, 2)]


def test_the_model_on_the_page_is_that_of_the_figures() -> None:
    text = " ".join(page([kept(run) for run in RUNS], None, "Machine: one.").split())
    assert "| executors, processor time | 0.50 s | 1.00 µs | 2.00 µs | 4.00 µs |" in text
    assert "| driver, processor time | 0.20 s | 0.00 µs | 0.00 µs | 1.00 µs |" in text
    assert "executors +0 %, driver +0 % where all report" in text
    assert "memory of an executor +0 %, of the driver +0 %" in text
    # Of 10 million groups: 310.5 s of tasks, and 50.2 s of the driver
    assert "| 100 % | 30 | 50.2 | 310 | 1.50 | the driver alone takes longer | | 11.0 |" in text
    assert "| 100 % | 60 | 50.2 | 310 | 1.50 | 32 | 67 | 11.0 |" in text


def test_a_run_that_did_not_fit_is_said_to_be_one() -> None:
    stopped = {**vars(Run(3_000_000, 2)), "stopped": "memory was used up", "peak_gb": {ALL: 20.0}}
    text = page([*(kept(run) for run in RUNS), stopped], None, "Machine: one.")
    assert "3,000,000 groups on 2 executors did not fit: memory was used up" in text
    assert "| 3,000,000 | 2 | 2 | 0.00 |" in text


def test_too_few_sizes_make_no_model() -> None:
    with pytest.raises(ValueError, match="3 sizes"):
        fitted([Size(1, 1, 1)] * 3, [1.0] * 3)


def test_only_active_groups_are_reported() -> None:
    load = Load(groups=200, brokers=4, spread=2, shares=(1.0, ACTIVE))
    ids = [group_id(name) for name in load.names()]
    all_of_it, active = ([value for _, value in reports] for reports in load.rounds(2))
    found = [_ids(value) for value in all_of_it]
    assert sum(map(len, found)) == load.entries(0) == 400
    assert {*np.concatenate(found).tolist()} == {*ids}
    found = [_ids(value) for value in active]
    assert sum(map(len, found)) == load.entries(1) == 40
    assert {*np.concatenate(found).tolist()} == {*ids[:20]}


def _ids(value: bytes) -> Any:
    _, block = decode_own(value, 0, DenseEntries(Intake(), 1), 1 << 62)
    assert block.rates.shape == (BASIC, len(block.ids))
    return block.ids


def test_rows_and_files_of_tasks_are_counted() -> None:
    file = AddAction("f", 7, {}, 0, data_change=True, stats=json.dumps({"numRecords": 5}))
    files = json.dumps({"usage": Written((file, file)).to_json()}).encode()
    found = passed({FILES: [files], "counts": [b"ab"]})
    assert found["files of tasks"] == 2
    assert found["rows of files"] == 10
    assert found["bytes of files"] == 14
    assert found["to Python"] == len(files) + 2
