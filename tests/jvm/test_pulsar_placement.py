"""TransferShedder, placements, splits and load reports beside Pulsar's own classes."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.jvm.place_random import place_difference, random_place_case
from tests.jvm.pulsar_placement import Json, ask_pulsar
from tests.jvm.split_random import our_split_answer, random_split_case, same
from tests.jvm.transfer_cases import our_answer, random_case

pytestmark = pytest.mark.nightly

TRANSFERS: Final = [random_case(seed) for seed in range(30)]
PLACEMENTS: Final = [random_place_case(seed) for seed in (*range(28), 79, 94)]
SPLITS: Final = [random_split_case(seed) for seed in range(160)]


@pytest.fixture(scope="module")
def said() -> list[Any]:
    """Answers of Pulsar to the transfers, the placements and the splits."""
    return ask_pulsar([*TRANSFERS, *PLACEMENTS, *SPLITS])


def _compare_transfers(cases: list[Json], answers: list[Any]) -> None:
    moved = 0
    for seed, (case, theirs) in enumerate(zip(cases, answers, strict=True)):
        for number, (ours, said) in enumerate(zip(our_answer(case), theirs, strict=True)):
            where = f"case {seed}, round {number}"
            assert ours["moves"] == said["moves"], where
            assert ours["skip"] == said["skip"], where
            moved += len(said["moves"])
            # a broker without a report may get bundles, which ours can't know
            if "choices" in ours and not case["rounds"][number]["missing"]:
                assert ours["choices"] == said["choices"], where
    assert moved > len(cases)  # the cases are such that something is compared


def _compare_placements(cases: list[Json], answers: list[Any]) -> None:
    for seed, (case, theirs) in enumerate(zip(cases, answers, strict=True)):
        assert not place_difference(case, theirs), f"case {seed}"


def _compare_splits(cases: list[Json], answers: list[Any]) -> None:
    for seed, (case, theirs) in enumerate(zip(cases, answers, strict=True)):
        assert same(our_split_answer(case), theirs), f"case {seed}: {case['kind']}"
    assert sum(map(bool, answers)) > len(cases) / 3


def test_transfers_are_pulsars(said: list[Any]) -> None:
    _compare_transfers(TRANSFERS, said[: len(TRANSFERS)])


def test_placements_are_pulsars(said: list[Any]) -> None:
    _compare_placements(PLACEMENTS, said[len(TRANSFERS) : -len(SPLITS)])


def test_splits_and_reports_are_pulsars(said: list[Any]) -> None:
    _compare_splits(SPLITS, said[-len(SPLITS) :])


def test_many_transfers() -> None:
    cases = [random_case(seed) for seed in range(10_000, 13_000)]
    _compare_transfers(cases, ask_pulsar(cases))


def test_many_placements() -> None:
    cases = [random_place_case(seed) for seed in range(10_000, 11_500)]
    _compare_placements(cases, ask_pulsar(cases))


def test_many_splits_and_reports() -> None:
    cases = [random_split_case(seed) for seed in range(10_000, 18_000)]
    _compare_splits(cases, ask_pulsar(cases))
