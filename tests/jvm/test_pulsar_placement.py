"""TransferShedder, placements, splits and load reports beside Pulsar's own classes."""

from __future__ import annotations

import pytest

from tests.jvm.place_random import place_difference, random_place_case
from tests.jvm.pulsar_classes import ask_pulsar
from tests.jvm.split_random import our_split_answer, random_split_case, same
from tests.jvm.transfer_cases import our_answer, random_case

pytestmark = pytest.mark.nightly


def test_transfers_are_pulsars() -> None:
    seeds, moved = [*range(30), *range(10_000, 13_000)], 0
    cases = [random_case(seed) for seed in seeds]
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
    seeds = [*range(28), 79, 94, *range(10_000, 11_500)]
    cases = [random_place_case(seed) for seed in seeds]
    answers = ask_pulsar("PulsarPlacement", cases)
    for seed, case, theirs in zip(seeds, cases, answers, strict=True):
        assert not place_difference(case, theirs), f"case {seed}"


def test_splits_and_reports_are_pulsars() -> None:
    seeds = [*range(160), *range(10_000, 18_000)]
    cases = [random_split_case(seed) for seed in seeds]
    answers = ask_pulsar("PulsarPlacement", cases)
    for seed, case, theirs in zip(seeds, cases, answers, strict=True):
        assert same(our_split_answer(case), theirs), f"case {seed}: {case['kind']}"
    assert sum(map(bool, answers)) > len(cases) / 3
