"""Some inputs of every fuzz target, always the same; ``make nightly`` runs others."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import TARGETS, Found, fuzz, input_of
from tests.fuzz.target import Target

INPUTS = {
    "step": 4,
    **dict.fromkeys(("reports-own", "reports-stock", "reports-mixed"), 10),
    **dict.fromkeys(("limits-received", "loads", "loads-of-pulsar", "names", "settings"), 50),
    "rest-client": 30,
}
"""Number of inputs of targets whose inputs take long; others get 150."""


@pytest.mark.parametrize("name", TARGETS)
def test_an_input_gives_a_result_or_our_own_error(name: str) -> None:
    inputs = INPUTS.get(name, 150)
    run = fuzz(name, seed=0, first=0, inputs=inputs)
    assert run.inputs == inputs
    assert run.refused < inputs, "nothing gets past the first check"


def test_a_seed_repeats_an_input() -> None:
    for name in TARGETS:
        assert input_of(name, 7, 3) == input_of(name, 7, 3)
    assert len({input_of("settings", 7, number) for number in range(20)}) > 15


def test_another_exception_is_reported_with_what_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(value: bytes) -> None:
        if len(value) > 2:
            raise KeyError("no such key")

    target = Target(lambda random: bytes(random.randrange(5)), run)
    monkeypatch.setitem(TARGETS, "planted", target)
    with pytest.raises(Found) as raised:
        fuzz("planted", seed=5, first=0, inputs=1000)
    first, repeat, shown = str(raised.value).splitlines()
    assert first == "planted: KeyError: 'no such key'"
    number = int(repeat.partition("--first ")[2].split()[0])
    value = input_of("planted", 5, number)
    assert repeat == f"repeat: python -m tests.fuzz planted --seed 5 --first {number} --inputs 1"
    assert shown == f"input ({len(value)} bytes): {value!r}"
