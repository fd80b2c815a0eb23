"""Brokers that are not known: how many are taken in, in which rounds, and what is printed."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.arrow import unpack
from quotaplane.model import Round
from quotaplane.quota.state import ShardState
from quotaplane.settings import Reports, Settings
from quotaplane.streams.new_brokers import beyond_max_brokers
from quotaplane.streams.quota.dead_letters import UNKNOWN_GROUP
from quotaplane.streams.quota.job import recorded_settings
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.report_watch import Arrivals, ReportWatch
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.reasons import NOT_BAD, TOO_MANY_BROKERS
from quotaplane.wire.reports import decode
from quotaplane.wire.shard_inputs import pack_reports
from tests.unit.agents.condition_cases import Printed
from tests.unit.streams.shard_cases import job_settings, usage_report

NOW_MS = 1_790_000_000_000


def settings_with(**reports: Any) -> Settings:
    return job_settings(reports=reports)


NAMES = st.lists(st.sampled_from([f"b{n}" for n in range(12)]), max_size=40)
BOUND = st.one_of(st.none(), st.integers(1, 12))


@given(st.sets(st.sampled_from([f"b{n}" for n in range(12)])), NAMES, BOUND, st.randoms())
def test_known_brokers_go_on_and_of_others_as_many_as_fit(
    known: set[str], names: list[str], most: int | None, chance: random.Random
) -> None:
    stamp = Round(1, chance.randrange(99), NOW_MS)

    def admitted(arrived: list[str]) -> list[str]:
        refused, _ = beyond_max_brokers(sorted(known), pa.chunked_array([arrived]), most, stamp)
        return [name for name, gone in zip(arrived, refused, strict=True) if not gone]

    if not names:
        return
    taken = set(admitted(names))
    new = set(names) - known
    room = len(new) if most is None else max(most - len(known), 0)
    assert taken & known == set(names) & known
    assert len(taken - known) == min(len(new), room)
    again = [*names]
    chance.shuffle(again)
    assert set(admitted(again)) == taken, "the order of arrival does not matter"
    doubled = [name for name in names for _ in range(2)]
    assert set(admitted(doubled)) == taken, "nor how often a broker reports"


def test_another_round_takes_in_others_so_that_no_name_is_always_last() -> None:
    names = pa.chunked_array([[f"b{n}" for n in range(100)]])
    taken = Counter[str]()
    for seq in range(200):
        refused, _ = beyond_max_brokers([], names, 10, Round(1, seq, NOW_MS))
        taken.update(names.filter(pa.array(~refused)).to_pylist())
    assert len(taken) == 100
    assert max(taken.values()) < 50


def batch_of(settings: Settings, seq: int, brokers: list[str]) -> list[tuple[int, bytes]]:
    values = [usage_report(name, sequence=seq, window_ms=5000) for name in brokers]
    times, places = np.full(len(values), NOW_MS + seq), [f"r/0@{seq}.{n}" for n in range(99)]
    decoded = decode(values, times, places, now_ms=NOW_MS + seq, reports=settings.reports)
    return pack_reports(decoded, settings.shards)


def run(settings: Settings, rounds: list[list[str]], shard: int = 0) -> tuple[ShardState, Any]:
    """The state after rounds in which these brokers reported, and the dead letters."""
    program, state, letters = quota_program(settings, 3), ShardState(), Counter[str]()
    for seq, brokers in enumerate(rounds):
        payload = dict(batch_of(settings, seq, brokers))[shard]
        batch = Batch(shard, seq, NOW_MS + seq)
        state, outputs = program.run(state, {"reports": [payload]}, batch)
        repeated = program.run(state, {}, batch)[0]
        assert repeated.brokers.names == state.brokers.names
        for kind, packed in ((each.kind, each.payload) for each in outputs):
            if kind == "rejected_reports":
                reasons = unpack(packed)[0]["reason"].to_pylist()
                letters.update(reason for reason in reasons if reason != UNKNOWN_GROUP)
    return state, letters


def test_all_shards_take_in_the_same_and_one_of_them_records_it() -> None:
    settings = settings_with(max_brokers=5)
    rounds = [[f"b{n}" for n in range(9)]] * 4
    first, letters = run(settings, rounds, shard=0)
    second, none = run(settings, rounds, shard=1)
    assert first.brokers.names == second.brokers.names
    assert len(first.brokers.names) == 5
    assert letters == {TOO_MANY_BROKERS: 4 * 4}
    assert none == {}


def test_a_lower_bound_than_there_are_known_brokers_refuses_none_of_them() -> None:
    state, _ = run(settings_with(), [list("abcde")])
    low = quota_program(settings_with(max_brokers=2), 3)
    payload = dict(batch_of(settings_with(), 1, list("abcdef")))[0]
    state, outputs = low.run(state, {"reports": [payload]}, Batch(0, 1, NOW_MS + 1))
    assert state.brokers.names == tuple("abcde")
    (packed,) = (each.payload for each in outputs if each.kind == "rejected_reports")
    (letter,) = unpack(packed)[0].to_pylist()
    assert (letter["sender"], letter["reason"]) == ("f", TOO_MANY_BROKERS)
    assert letter["detail"] == "5 brokers are known, 1 others reported; reports.max_brokers is 2"


@pytest.mark.parametrize("setting", [{"broker_from": "key"}, {"allowed_brokers": ["b*"]}])
def test_what_let_reports_in_is_not_part_of_a_record(setting: dict[str, Any]) -> None:
    """A replay has the reports that were let in, on a transport without keys and lists."""
    assert not setting.keys() & recorded_settings(settings_with(**setting))["reports"].keys()


def test_refused_brokers_are_one_warning_and_one_line_when_it_is_over() -> None:
    assert TOO_MANY_BROKERS in NOT_BAD
    watch, heard, said = ReportWatch(Reports().interval_s), Printed(), []
    for second in range(200):
        refused = {TOO_MANY_BROKERS: 1000} if 20 <= second < 60 else {}
        heard.now_s = second
        watch.round_ended(heard.now_s, Arrivals(10, refused), heard.conditions)
        said += [(second, *line) for line in heard.lines()]
    (began, warning, text), (over, recovered, end) = said
    assert (began, warning, over, recovered) == (20, "warning", 119, "recovered")
    assert text.startswith(
        "too_many_brokers: 1000 reports of a round are of brokers beyond max_brokers: known"
    )
    assert end == "too_many_brokers: over after 99 s (40000 times)"
