"""The estimator: what one window shows, and what is learned from many."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.laws.segments import Segments
from quotaplane.quota import demand as demands
from quotaplane.quota import headroom
from quotaplane.quota.demand import Track, learn, observe
from quotaplane.quota.headroom import HEADROOM_BUDGET, with_headroom
from quotaplane.settings import Demand

INF = math.inf
NAN = math.nan


@pytest.mark.parametrize(
    ("usage", "limit", "throttled", "expected"),
    [
        pytest.param(10, 20, NAN, 10, id="satisfied"),
        pytest.param(19, 20, NAN, INF, id="at 95 % of its limit"),
        pytest.param(18.9, 20, NAN, 18.9, id="just below"),
        pytest.param(25, 20, NAN, INF, id="above its limit"),
        pytest.param(10, INF, NAN, 10, id="never limited"),
        pytest.param(0, 0, NAN, INF, id="limit 0 tells nothing"),
        pytest.param(0, 20, NAN, 0, id="idle"),
        pytest.param(20, 20, 30, 50, id="throttled, counted"),
        pytest.param(5, 20, 5, 10, id="throttled in a burst below its limit"),
        pytest.param(20, 20, 0, 20, id="at its limit with nothing refused"),
        pytest.param(0, 0, 0, 0, id="limit 0, nothing refused"),
        pytest.param(0, 0, 8, 8, id="limit 0, all refused"),
    ],
)
def test_observe(usage: float, limit: float, throttled: float, expected: float) -> None:
    found = observe(np.array([usage]), np.array([limit], dtype=float), np.array([throttled]))
    assert found.tolist() == pytest.approx([expected])


def test_unknown_counts_are_as_good_as_none_in_any_shape() -> None:
    usage = np.array([[10.0, 20.0], [5.0, 0.0]])
    limit = np.array([[20.0, 20.0], [INF, 0.0]])
    without = observe(usage, limit)
    assert np.array_equal(without, observe(usage, limit, np.full((2, 2), NAN)))
    assert np.array_equal(np.isinf(without), [[False, True], [False, True]])


def test_the_defaults_are_those_of_the_settings() -> None:
    settings = Demand()
    assert (settings.headroom, settings.saturated_from, settings.probe_share) == (
        headroom.DEFAULT_HEADROOM,
        demands.DEFAULT_SATURATED_FROM,
        headroom.DEFAULT_PROBE_SHARE,
    )


def follow(usage: np.ndarray, limit: float = INF, refused: np.ndarray | None = None) -> list[Track]:
    """``learn`` over windows: usage (windows, n), one limit; a track after each window."""
    track, before, tracks = Track.blank(usage.shape[1:]), np.zeros(usage.shape[1]), []
    for at, used in enumerate(usage):
        throttled = np.full(used.shape, NAN) if refused is None else refused[at]
        track = learn(track, before, used, np.full(used.shape, limit), throttled)
        before = used
        tracks.append(track)
    return tracks


def test_without_noise_every_change_is_followed_at_once() -> None:
    wanted = np.array([[10.0], [10], [300], [300], [10], [11], [12], [13], [14], [0], [0], [7]])
    found = np.array([track.demand for track in follow(wanted)])
    assert found == pytest.approx(wanted, rel=0.05)
    assert (found[:5] == wanted[:5]).all()


def test_a_crowd_that_comes_and_goes_leaves_hardly_any_noise_behind() -> None:
    wanted = np.array([[10.0]] * 5 + [[300.0]] * 3 + [[10.0]] * 2)
    last = follow(wanted)[-1]
    assert last.noise[0] * math.sqrt(10) < 2


@pytest.mark.parametrize("mean", [20, 200, 5000])
def test_poisson_noise_is_measured_and_taken_out(mean: int) -> None:
    rng = np.random.default_rng(mean)
    tracks = follow(rng.poisson(mean, (80, 2000)).astype(float))[40:]
    found = np.array([track.demand for track in tracks])
    assert found.mean() == pytest.approx(mean, rel=0.02)
    assert found.std() < 0.75 * math.sqrt(mean)  # of the counts themselves: 1
    noise = np.array([track.noise for track in tracks])
    assert noise.mean() == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("factor", [0.4, 1.7, 3])
def test_a_change_in_the_midst_of_noise_is_followed_within_two_windows(factor: float) -> None:
    rng = np.random.default_rng(5)
    means = np.array([400.0] * 30 + [400 * factor] * 2)
    last = follow(rng.poisson(means[:, None], (32, 2000)).astype(float))[-1]
    near = np.abs(last.demand / (400 * factor) - 1) < 0.1 + 1 / math.sqrt(400 * factor)
    assert near.mean() > 0.97


def test_noise_is_the_same_number_whatever_the_demand() -> None:
    """So that after a jump it is known at once how noisy the new demand will be."""
    rng = np.random.default_rng(2)
    means = np.array([100.0] * 40 + [10_000.0])
    before, after = follow(rng.poisson(means[:, None], (41, 500)).astype(float))[-2:]
    assert after.noise.mean() == pytest.approx(before.noise.mean(), abs=0.25)


def test_who_was_given_just_what_it_wants_is_satisfied_at_its_limit() -> None:
    seen = follow(np.array([[40.0]] * 3))[-1]
    again = learn(seen, np.array([40.0]), np.array([40.0]), np.array([41.0]), np.array([NAN]))
    assert again.demand.tolist() == [40.0]
    more = learn(seen, np.array([40.0]), np.array([41.0]), np.array([41.0]), np.array([NAN]))
    assert math.isinf(more.demand[0])


def test_a_claim_is_believed_until_it_is_refuted_again_and_again() -> None:
    """It uses 44 at most, says each time that 500 were refused, and is given 60."""
    track, used = Track.blank((1,)), np.array([44.0])
    found = []
    for _ in range(8):
        track = learn(track, used, used, np.array([60.0]), np.array([500.0]))
        found.append(float(track.demand[0]))
    assert found[0] == 544
    assert found[-1] == pytest.approx(1.25 * 44)
    for _ in range(130):  # nothing claimed any more
        track = learn(track, used, used, np.array([60.0]), np.array([0.0]))
    assert learn(track, used, used, np.array([44.0]), np.array([60.0])).demand[0] == 104


def test_who_uses_what_it_was_given_is_never_doubted() -> None:
    track, limit = Track.blank((1,)), np.array([20.0])
    before = np.zeros(1)
    for wanted in [30.0, 300, 300, 310, 500, 450, 460, 900, 900] * 9:
        used = np.minimum(wanted, limit)
        track = learn(track, before, used, limit, wanted - used)
        assert track.distrust[0] < 128
        before, limit = used, np.minimum(track.demand, 400.0)  # more is not to be had


@pytest.mark.parametrize(
    "used",
    [
        [220, 0],
        [1, 178, 45, 129, 92, 53, 166, 23, 186, 15, 139, 81, 86, 134, 62],  # seen in the simulator
    ],
)
def test_who_is_held_back_for_what_it_used_before_is_not_doubted(used: list[float]) -> None:
    """A law that looks 11 s back, in reports of 5 s: 100 a second, as a burst and then little."""
    track, before, limit = Track.blank((1,)), np.zeros(1), np.array([100.0])
    for now in np.array([used * 6]).T.astype(float):
        track = learn(track, before, now, limit, 500.0 - now)
        assert track.demand[0] >= 400
        before = now


rates = st.floats(0, 1e12)


@given(
    st.lists(st.tuples(rates, rates | st.just(INF), rates | st.just(NAN)), min_size=1, max_size=12)
)
def test_whatever_comes_a_track_stays_sound(windows: list[tuple[float, float, float]]) -> None:
    track, before = Track.blank((1,)), np.zeros(1)
    for usage, limit, throttled in windows:
        used = np.array([usage])
        track = learn(track, before, used, np.array([limit]), np.array([throttled]))
        before = used
        assert track.demand[0] >= 0
        for kept in (track.noise, track.last_deviation):
            assert np.isfinite(kept).all()
        assert track.noise[0] >= 0
        assert 0 <= track.distrust[0] <= 255


def test_who_does_not_tell_has_headroom_and_something_to_wake_up_with() -> None:
    rows, quota = Segments(np.array([0, 2, 2, 4, 5])), np.array([100.0, 7.0, INF, 0.0])
    demand = np.array([0.0, 90.0, 0.0, INF, 3.0])
    weight = np.array([1.0, 3.0, 1.0, 1.0, 1.0])
    nothing = np.zeros(5)
    asked = with_headroom(demand, nothing, nothing > 0, rows, quota, weight, probe_share=0.1)
    assert asked == pytest.approx([2.5, 94.5, 0.0, INF, 3.15])
    noisy = with_headroom(demand, nothing + 10, nothing > 0, rows, quota, weight)
    assert noisy[1] == pytest.approx(120)


def test_what_all_that_tell_have_on_top_stays_within_its_budget() -> None:
    rows, quota = Segments(np.array([0, 4])), np.array([1000.0])
    demand, sigma = np.array([INF, 400.0, 100.0, 0.0]), np.array([9.0, 20.0, 10.0, 0.0])
    asked = with_headroom(demand, sigma, sigma >= 0, rows, quota, np.ones(4))
    extra = asked[1:] - demand[1:]
    assert math.isinf(asked[0])
    assert extra.sum() == pytest.approx(HEADROOM_BUDGET * 1000)
    assert extra[0] == pytest.approx(2 * extra[1])
    assert extra[2] > 0  # it can wake up
    calm = with_headroom(demand, sigma / 100, sigma >= 0, rows, quota, np.ones(4))
    assert calm[1:3] == pytest.approx([400.0, 100.0], abs=0.5)
