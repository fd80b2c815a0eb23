"""The loop converges with every throttle law and mode by which brokers enforce limits."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.laws import get_law
from quotaplane.model import DIMENSIONS
from quotaplane.sim.controller import StepController, step_config
from quotaplane.sim.figures import figures
from quotaplane.sim.loop import Run, run_loop
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode
from tests.examples import in_nightly

PUBLISH = DIMENSIONS[0]
BUCKET, WINDOWED, AMENDED, SLIDING = ThrottleLaw
OF_A_SECOND = {BUCKET: (1, 1.0), WINDOWED: (1, 1.0), AMENDED: (10, 0.1), SLIDING: (10, 0.1)}
WAKES = np.array([[8000.0, 8000.0, 0.0]] * 12 + [[8000.0, 8000.0, 6000.0]] * 36)
FAIR = 10_000 / 3

each_way = pytest.mark.parametrize(
    ("law", "mode"),
    [
        pytest.param(law, mode, marks=() if mode is ThrottleMode.HARD else pytest.mark.nightly)
        for law in ThrottleLaw
        for mode in ThrottleMode
    ],
)


def of_a_second(law: ThrottleLaw, mode: ThrottleMode) -> ThrottleTerms:
    samples, window_s = OF_A_SECOND[law]
    return ThrottleTerms(law=law, mode=mode, samples=samples, window_s=window_s)


def run(terms: ThrottleTerms, told: bool) -> Run:
    """An idle broker wakes; rounds of 5 s."""
    controller = StepController(step_config(get_law("max_min")), 3)
    return run_loop(WAKES, controller, 10_000.0, throttled_told=told, throttle=terms, round_s=5.0)


def settled_in(done: Run) -> list[int | None]:
    phases = figures(done, shifts=[0, 12], judged_from=1)["phases"]
    return [phase["rounds_to_fair"] for phase in phases]


@each_way
@pytest.mark.parametrize("told", [True, *in_nightly(False)])
def test_all_have_their_fair_share_soon_and_use_it(law, mode, told: bool) -> None:
    done = run(of_a_second(law, mode), told)
    first, second = settled_in(done)
    used = done.usage[20:]
    assert first == 1
    if law is WINDOWED and not told:
        # It leaves as much of a limit unused as a satisfied broker leaves of its headroom (2 %), so
        # the two that were there first look satisfied with what they have.
        assert (used.mean(axis=0) >= 0.85 * FAIR).all()
    else:
        assert second is not None
        assert second <= (1 if told else 4)
        assert used.mean(axis=0) == pytest.approx([FAIR] * 3, rel=0.1)
    assert used.sum(axis=1).max() <= 1.1 * 10_000


@pytest.mark.nightly
@each_way
def test_a_law_that_looks_back_further_than_a_report_is_no_lie(law, mode) -> None:
    """The law lets clients use two rounds' limit at once, and then nothing as long (Kafka's 11 s).

    A broker that reports how much it refused keeps its fair share, and uses it on average.
    """
    done = run(ThrottleTerms(law=law, mode=mode, samples=11, window_s=1.0), told=True)
    assert settled_in(done) == [1, 1]
    assert done.usage[26:].mean(axis=0) == pytest.approx([FAIR] * 3, rel=0.1)
