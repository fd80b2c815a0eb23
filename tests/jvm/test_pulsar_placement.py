"""TransferShedder, placements, splits and load reports beside Pulsar's own classes.

Cases from 20,000 on have the policies of ``test_pulsar_policies``.
"""

from __future__ import annotations

import pytest

from tests.jvm.place_random import place_difference, random_place_case
from tests.jvm.policy_cases import varied_policies
from tests.jvm.pulsar_classes import ask_pulsar
from tests.jvm.split_random import our_split_answer, random_split_case, same
from tests.jvm.transfer_cases import our_answer, random_case, random_policies

pytestmark = pytest.mark.nightly


def test_transfers_are_pulsars() -> None:
    seeds, moved = [*range(30), *range(10_000, 13_000), *range(20_000, 20_500)], 0
    cases = [
        random_case(seed, varied_policies if seed >= 20_000 else random_policies) for seed in seeds
    ]
    answers = ask_pulsar("PulsarPlacement", cases)
    for seed, case, theirs in zip(seeds, cases, answers, strict=True):
        for number, (ours, said) in enumerate(zip(our_answer(case), theirs, strict=True)):
            where = f"case {seed}, round {number}"
            assert ours["moves"] == said["moves"], where
            assert ours["skip"] == said["skip"], where
            moved += len(said["moves"])
            # a broker without a report may get bundles, which ours can't know
            if "choices" in ours and not case["rounds"][number]["missing"]:
                assert ours["choices"] == said["choices"], where
    assert moved > len(cases)  # the cases are such that something is compared


def test_placements_are_pulsars() -> None:
    seeds = [*range(28), 79, 94, *range(10_000, 11_500), *range(20_000, 20_500)]
    cases = [
        random_place_case(seed, varied_policies if seed >= 20_000 else random_policies)
        for seed in seeds
    ]
    answers = ask_pulsar("PulsarPlacement", cases)
    for seed, case, theirs in zip(seeds, cases, answers, strict=True):
        assert not place_difference(case, theirs), f"case {seed}"
    may_leave = [a for rounds in answers for round_ in rounds for a in round_ if a in (True, False)]
    assert min(may_leave.count(True), may_leave.count(False)) > len(cases)


def test_splits_and_reports_are_pulsars() -> None:
    seeds = [*range(160), *range(10_000, 18_000)]
    cases = [random_split_case(seed) for seed in seeds]
    answers = ask_pulsar("PulsarPlacement", cases)
    for seed, case, theirs in zip(seeds, cases, answers, strict=True):
        assert same(our_split_answer(case), theirs), f"case {seed}: {case['kind']}"
    assert sum(map(bool, answers)) > len(cases) / 3
