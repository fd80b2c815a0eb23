"""Which tests run together in a process of pytest-xdist, in which order, and which are slow."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

SLOW: Final = (
    # every file of these folders
    "tests/closed_loop/",
    "tests/simulation/",
    # whole files: they start the job or other processes, wait for a real clock, or sync disks
    "tests/faults/test_points.py",
    "tests/servers/test_standalone.py",
    "tests/spark/test_job_output.py",
    "tests/spark/test_stop.py",
    "tests/unit/group_sync/test_cluster_follower.py",
    "tests/unit/pulsar_admin/test_cluster_placement.py",
    "tests/unit/group_sync/test_cluster_silence.py",
    "tests/unit/group_sync/test_deletion_check.py",
    "tests/unit/deltalog/test_doctor.py",
    "tests/unit/throttle/test_dry_run.py",
    "tests/unit/enforce/test_enforce_defaults.py",
    "tests/unit/enforce/test_enforce_edges.py",
    "tests/unit/enforce/test_enforce_exit.py",
    "tests/unit/enforce/test_enforce_pulsar.py",
    "tests/unit/enforce/test_enforce_takeover.py",
    "tests/unit/registry/test_groups.py",
    "tests/unit/registry/test_groups_answers.py",
    "tests/unit/registry/test_groups_apply.py",
    "tests/unit/registry/test_groups_files.py",
    "tests/unit/registry/test_groups_restore.py",
    "tests/unit/history/test_history_maintenance.py",
    "tests/unit/history/test_history_writer.py",
    "tests/unit/deltalog/test_power_loss.py",
    "tests/unit/quota/test_step_repeats.py",
    # single tests: much data, or a number of examples of their own
    "tests/unit/quota/test_control.py::test_whatever_happens_",
    "tests/unit/deltalog/test_deltalog_read.py::test_short_processes_do_not_abort",
    "tests/unit/quota/test_dimensions.py::test_the_total_kept_is_always_",
    "tests/unit/enforce/test_enforce_limits_received.py::test_invented_brokers_and_groups_",
    "tests/unit/enforce/test_enforce_plan.py::test_constant_demands_come_to_rest",
    "tests/unit/enforce/test_enforce_plan.py::test_limits_are_kept_on_the_way_",
    "tests/unit/quota/test_redefine.py::test_changes_one_by_one_",
    "tests/unit/quota/test_terms.py::test_row_terms_are_",
    "tests/unit/quota/test_transitions.py::test_deletions_in_a_tree_",
    "tests/unit/quota/test_undefined.py::test_an_ordinary_first_day_is_small",
    "tests/unit/wire/test_wire_caps.py::test_a_few_huge_reports_",
    "tests/unit/wire/test_wire_caps.py::test_brokers_with_5000_idle_groups_",
    "tests/unit/wire/test_wire_hostile.py::test_a_bomb_costs_few_objects_",
    "tests/unit/wire/test_wire_reports.py::test_damaged_reports_never_raise",
    "tests/unit/wire/test_wire_reports.py::test_random_bytes_never_raise",
    "tests/unit/wire/test_wire_stock.py::test_damaged_reports_are_read_",
    "tests/unit/wire/test_wire_stock.py::test_plain_reports_need_no_protobuf_library",
)
"""How their ids begin. ``make test`` starts with them, and ``make quick`` leaves them out; of other
properties it tries few examples.

``pytest --durations=25`` shows what belongs here: what takes half a second or more, or a file
whose tests do so on average.
"""


def group_of(nodeid: str) -> str:
    """The tests that one process runs: of the contract those of a server, else those of a file.

    >>> group_of("tests/contract/test_transport.py::test_positions[kafka]")
    'kafka'
    >>> group_of("tests/unit/laws/test_laws.py::test_reasons")
    'tests/unit/laws/test_laws.py'
    """
    file = nodeid.partition("::")[0]
    server = re.search("kafka|pulsar", nodeid) if file.startswith("tests/contract/") else None
    return server[0] if server else file


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, and begin with it: at the end no process has a long file left."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    slow = {group_of(item.nodeid) for item in items if item.get_closest_marker("slow")}
    rank = {"pulsar": 0, "kafka": 1} | dict.fromkeys(slow - {"pulsar", "kafka"}, 2)
    items.sort(key=lambda item: rank.get(group_of(item.nodeid), 3))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile`` files are kept together by ``group_of``.

    pytest-xdist 3.8 has ``loadgroup`` for that, which does nothing under pytest 9.2.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByGroup(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)
