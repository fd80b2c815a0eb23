"""Which tests run together in a process of pytest-xdist, in which order, and which are too slow."""

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
    "tests/unit/quota/test_terms.py::test_row_terms_are_",
    "tests/unit/quota/test_transitions.py::test_deletions_in_a_tree_",
    "tests/unit/quota/test_undefined.py::test_an_ordinary_first_day_is_small",
    "tests/unit/wire/test_wire_caps.py::test_brokers_with_5000_idle_groups_",
    "tests/unit/wire/test_wire_hostile.py::test_a_bomb_costs_few_objects_",
    "tests/unit/wire/test_wire_reports.py::test_damaged_reports_never_raise",
    "tests/unit/wire/test_wire_reports.py::test_random_bytes_never_raise",
    "tests/unit/wire/test_wire_stock.py::test_damaged_reports_are_read_",
)
"""How their ids begin. ``make test`` starts with them, and ``make quick`` leaves them out; of other
properties it tries few examples.

``pytest --durations=25`` shows what belongs here: what takes half a second or more, or a file
whose tests do so on average.
"""


NIGHTLY: Final = (
    "tests/browser/test_access.py",
    "tests/closed_loop/test_arena.py",
    "tests/closed_loop/test_enforcement.py::test_a_law_that_looks_back_further_than_a_report_is_no_lie",
    "tests/closed_loop/test_enforcement.py::test_through_bytes_and_back",
    "tests/closed_loop/test_estimate.py::test_a_broker_that_claims_more_than_it_uses_gains_nothing_lasting",
    "tests/closed_loop/test_estimate.py::test_steady_demand_gives_steady_limits",
    "tests/closed_loop/test_estimate.py::test_to_exceed_the_limit_buys_no_trust",
    "tests/closed_loop/test_invented_brokers.py::test_invented_brokers_take_nothing",
    "tests/closed_loop/test_late_rounds.py::test_no_lease_ends_and_limits_move_while_rounds_are_slow",
    "tests/closed_loop/test_late_rounds.py::test_no_lease_ends_while_the_job_is_killed_and_started_again",
    "tests/closed_loop/test_network.py::test_a_limit_that_is_still_on_its_way_does_not_mislead",
    "tests/closed_loop/test_observed.py::test_a_noisy_broker_that_wants_more_gets_its_share_and_keeps_it",
    "tests/closed_loop/test_observed.py::test_a_woken_producer_has_its_rate_sooner",
    "tests/closed_loop/test_observed.py::test_both_end_at_the_same_limits",
    "tests/closed_loop/test_observed.py::test_noise_causes_no_more_writes_than_without",
    "tests/closed_loop/test_observed.py::test_noise_of_small_brokers_leaves_a_large_one_alone",
    "tests/closed_loop/test_pip82_cases.py::test_noise_bounds_how_soon_a_quota_of_100_is_used",
    "tests/closed_loop/test_pip82_cases.py::test_the_limits_in_force_never_add_up_to_more_than_the_quota",
    "tests/closed_loop/test_quick_what_if.py::test_it_agrees_with_the_exact_one",
    "tests/closed_loop/test_quick_what_if.py::test_limits_are_those_of_a_loop_that_really_has_the_change",
    "tests/closed_loop/test_replay.py::test_limits_over_the_quota_are_replayed_and_can_be_tried",
    "tests/closed_loop/test_replay.py::test_the_same_settings_change_nothing_and_others_do",
    "tests/closed_loop/test_strict.py::test_a_lowered_quota_holds_two_leases_later_at_the_latest",
    "tests/closed_loop/test_strict.py::test_that_holds_in_a_dimension_that_comes_with_its_quota",
    "tests/closed_loop/test_strict.py::test_use_in_any_time_is_at_most_the_quotas_and_one_burst",
    "tests/closed_loop/test_strict_starts.py::test_after_a_fast_job",
    "tests/closed_loop/test_strict_starts.py::test_after_a_strict_job_without_its_state",
    "tests/closed_loop/test_two_incarnations.py::test_a_lost_report_of_the_broker_lets_nobody_take_its_place",
    "tests/closed_loop/test_two_incarnations.py::test_a_restarted_broker_has_limits_again_an_interval_later",
    "tests/closed_loop/test_two_incarnations.py::test_reports_with_a_later_start_take_nothing_from_a_broker",
    "tests/contract/test_kafka_backlog.py",
    "tests/contract/test_pulsar_strict.py",
    "tests/jvm/",
    "tests/servers/test_enforce_administrators.py",
    "tests/servers/test_enforce_observed.py",
    "tests/servers/test_import_pulsar.py",
    "tests/servers/test_kafka_rights.py",
    "tests/spark/test_checkpoint_modes.py",
    "tests/spark/test_deposed.py",
    "tests/spark/test_recorded_whole.py",
    "tests/spark/test_skip_batch.py",
    "tests/unit/enforce/test_muted_producers.py::test_a_check_that_never_succeeds_is_not_tried_for_ever",
    "tests/unit/history/test_group_order.py::test_a_sorted_day_is_left_and_a_new_day_is_only_compacted",
    "tests/unit/history/test_group_order.py::test_late_rounds_of_a_sorted_day_are_sorted_in",
    "tests/unit/history/test_history_maintenance.py::test_of_two_runs_at_once_one_refuses_and_no_row_is_doubled",
    "tests/unit/history/test_history_maintenance.py::test_with_the_settings_it_keeps_the_embedded_topics_small_too",
    "tests/unit/history/test_recorder.py::test_each_report_is_recorded_once_wherever_the_job_ends",
    "tests/unit/laws/test_headroom.py::test_nobody_pays_more_than_the_price_in_groups_by_themselves",
    "tests/unit/laws/test_headroom.py::test_nobody_pays_more_than_the_price_with_trees_floors_ceilings_and_priorities",
    "tests/unit/laws/test_simulate.py::test_noise_can_be_said_in_counts_and_dispersion",
    "tests/unit/pulsar_admin/test_namespace_rates.py::test_namespaces_and_topics_have_half_of_the_write_budget_each",
    "tests/unit/query/test_audit_violations.py::test_limits_over_the_quota_are_violations_without_their_setting_only",
    "tests/unit/query/test_audit_violations.py::test_noise_hides_no_planted_violation",
    "tests/unit/query/test_audit_violations.py::test_strict_limits_are_never_more_than_the_quotas",
    "tests/unit/query/test_fair_runs.py::test_a_law_that_starves_idle_brokers_is_accused",
    "tests/unit/query/test_fair_runs.py::test_no_audit_accuses_anybody",
    "tests/unit/query/test_query_engine.py::test_rounds_are_written_meanwhile",
    "tests/unit/query/test_recent_limits.py::test_views_and_audits_find_the_same",
    "tests/unit/quota/test_intake.py::test_in_whatever_order_and_however_often_reports_come_each_is_recorded_once",
    "tests/unit/quota/test_late_rounds.py::test_a_broker_whose_clock_is_behind_keeps_its_service",
    "tests/unit/quota/test_late_rounds.py::test_a_clock_that_is_corrected_forward_ends_no_lease",
    "tests/unit/quota/test_late_rounds.py::test_a_round_after_a_pause_that_finds_no_reports_takes_nobody_for_dead",
    "tests/unit/quota/test_late_rounds.py::test_no_lease_ends_while_rounds_are_slow",
    "tests/unit/quota/test_late_rounds.py::test_the_first_round_after_a_pause_publishes_all_limits",
    "tests/unit/quota/test_overuse.py::test_a_debt_is_the_same_after_a_restart_and_older_versions_have_none",
    "tests/unit/quota/test_overuse.py::test_no_stretch_uses_more_than_its_quotas_and_x_of_one",
    "tests/unit/quota/test_overuse.py::test_reports_that_are_a_round_late_or_lost_cost_as_much_again",
    "tests/unit/quota/test_overuse.py::test_the_bound_is_attained",
    "tests/unit/quota/test_redefine.py::test_changes_one_by_one_end_where_all_at_once_does",
    "tests/unit/quota/test_standing.py::test_no_limit_was_published_before_the_oldest_renewal",
    "tests/unit/quota/test_step_repeats.py::test_events_have_the_same_outcome_in_any_order_and_any_payloads",
    "tests/unit/quota/test_step_repeats.py::test_stories_have_all_that_could_make_a_difference",
    "tests/unit/repo/test_bombs.py::test_bombs_that_were_over_the_budget",
    "tests/unit/server/test_server_process.py::test_concurrent_writers_lose_nothing",
    "tests/unit/server/test_server_process.py::test_idle_connections_are_bounded_and_said_once",
    "tests/unit/server/test_server_process.py::test_init_creates_the_history_and_says_so",
    "tests/unit/server/test_server_process.py::test_slow_huge_and_ambiguous_requests_end",
    "tests/unit/server/test_server_status.py::test_groups_that_nobody_reports_are_marked_after_a_day",
    "tests/unit/sim/test_sim_enforcer.py::test_in_the_long_run_a_limit_is_used_and_not_exceeded",
    "tests/unit/streams/test_recorded_whole.py::test_5_kills_at_any_step_leave_every_report_in_usage_once",
    "tests/unit/streams/test_recorded_whole.py::test_a_job_that_is_always_late_records_what_waits_after_20_rounds",
    "tests/unit/streams/test_slow_job.py::test_rounds_are_called_slow_again_after_ten_minutes_only",
    "tests/unit/streams/test_slow_job.py::test_slow_rounds_lose_no_report_and_name_no_clock",
    "tests/unit/throttle/test_throttle_properties.py::test_nobody_is_affected_by_others",
    "tests/unit/wire/test_strict_clocks.py::test_a_job_that_works_off_a_backlog_takes_nobody_for_late",
    "tests/unit/wire/test_strict_clocks.py::test_the_share_of_a_broker_whose_clock_falls_behind_is_free_after_its_lease",
    "tests/unit/wire/test_wire_caps.py::test_a_few_huge_reports_take_no_room_from_honest_ones",
)
"""How the ids of tests begin that ``make test`` leaves to ``make nightly``: they take some seconds
or more on a quiet machine, and quicker tests find most of the same bugs."""


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
    """Mark what is slow or nightly, and begin with it, so no process ends with a long file."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        if item.nodeid.startswith(NIGHTLY):
            item.add_marker(pytest.mark.nightly)
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
