"""Policies as Pulsar's own classes read them, and as planner, executor and stock model do."""

from __future__ import annotations

import numpy as np
import pytest

from quotabalance.planning.java_expressions import java_expression
from tests.jvm.policy_cases import (
    HOSTS,
    NAMESPACES,
    allowed_difference,
    random_expression,
    random_pieces,
    random_policy_case,
)
from tests.jvm.pulsar_classes import ask_pulsar

pytestmark = pytest.mark.nightly


def test_the_same_brokers_are_allowed() -> None:
    cases = [random_policy_case(seed) for seed in range(3_000)]
    restricted = 0
    for seed, (case, theirs) in enumerate(
        zip(cases, ask_pulsar("PulsarPlacement", cases), strict=True)
    ):
        assert not allowed_difference(case, theirs), f"case {seed}"
        for one in (theirs[namespace] for namespace in NAMESPACES):
            restricted += one["modular apart"] != one["modular"] != sorted(case["available"])
    assert restricted > len(cases) / 2


def test_expressions_match_as_in_java_or_are_refused() -> None:
    rng = np.random.default_rng(43)
    given = [random_pieces(rng) for _ in range(60_000)]
    given += [random_expression(rng, HOSTS) for _ in range(2_000)]
    names = [*HOSTS, *NAMESPACES, "", "\\", "é", "K", "a]"]
    names += ["".join(rng.choice(list("ab9z.-/_A]& "), n % 6)) for n in range(60)]
    (theirs,) = ask_pulsar(
        "PulsarPlacement", [{"kind": "matches", "expressions": given, "names": names}]
    )
    read = 0
    for text, matched in zip(given, theirs, strict=True):
        try:
            ours = java_expression(text)
        except ValueError:
            continue
        assert matched == [bool(ours.fullmatch(name)) for name in names], text
        read += any(matched)
    assert read > 2_000
