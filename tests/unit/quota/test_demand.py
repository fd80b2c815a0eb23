"""The estimator: what one window shows, and what is learned from many."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.model import FloatArray
from quotaplane.quota.estimate.demand import learn, observe
from quotaplane.quota.estimate.demand_estimates import ESTIMATE_ARRAYS, Doubt, Estimates
from quotaplane.quota.estimate.level_changes import SUM_STEPS
from quotaplane.quota.estimate.noise import counting_noise, noise_of_groups, with_prior
from quotaplane.quota.estimate.reading import _HAZARD, _HAZARD_AT, hazard
from quotaplane.quota.estimate.window import MOST_WINDOWS, Window

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
    used, most = np.array([[usage]], float), np.array([[limit]], float)
    assert observe(used, most, np.array([[throttled]])).tolist() == [pytest.approx([expected])]
    if math.isnan(throttled):
        assert observe(used, most).tolist() == [pytest.approx([expected])]


def follow(
    usage: FloatArray,
    limit: float | FloatArray = INF,
    noise: float = 0.0,
) -> list[Estimates]:
    """``learn`` over windows: usage (windows, n) and limits; the estimates after each window.

    ``noise``: what is known of it before the first window; 0: nothing.
    """
    count = usage.shape[1]
    estimates, learned = Estimates.blank((count,)).with_noise(np.full(count, noise)), []
    before, nothing = np.zeros(count), np.full(count, NAN)
    for used, most in zip(usage, np.broadcast_to(limit, usage.shape), strict=True):
        estimates = learn(estimates, Window(before, used, most, nothing))
        before = used
        learned.append(estimates)
    return learned


def steady(level: float, windows: int = 8, noise: float = 1.0) -> Estimates:
    """The estimates of one broker after so many windows at a level; then its noise is set."""
    learned = follow(np.full((windows, 1), level), noise=1.0)[-1]
    return learned.with_noise(np.array([noise]))


def unseen(noise: float = 1.0) -> Estimates:
    """The estimates of one broker before its first window."""
    return Estimates.blank((1,)).with_noise(np.array([noise]))


def window(
    used: float, limit: float = INF, refused: float = NAN, before: float = 0.0, **more: float
) -> Window:
    """A window of one broker."""
    arrays = {name: np.array([value]) for name, value in more.items()}
    return Window(*(np.array([float(rate)]) for rate in (before, used, limit, refused)), **arrays)


def test_as_long_as_no_noise_was_seen_every_change_is_followed_at_once() -> None:
    wanted = np.array([[10.0], [10], [300], [300], [10], [0], [0], [7]])
    found = np.array([estimates.demand for estimates in follow(wanted)])
    assert (found == wanted).all()


def test_counts_are_taken_for_noise_before_anything_was_seen() -> None:
    """100 a window on average: the first deviations are what counting makes, not changes."""
    rng = np.random.default_rng(1)
    learned = follow(rng.poisson(100, (4, 5000)).astype(float), noise=1.0)
    assert (learned[3].doubt == Doubt.NONE).mean() > 0.99
    assert learned[3].demand.std() < 0.6 * 10


@pytest.mark.parametrize("mean", [20, 200, 5000])
def test_poisson_noise_is_measured_and_averaged_out(mean: int) -> None:
    rng = np.random.default_rng(mean)
    learned = follow(rng.poisson(mean, (60, 2000)).astype(float), noise=1.0)[30:]
    found = np.array([estimates.demand for estimates in learned])
    assert found.mean() == pytest.approx(mean, rel=0.01)
    assert found.std() < 0.5 * math.sqrt(mean)  # of the counts themselves: 1
    noise = np.array([estimates.noise for estimates in learned])
    assert noise.mean() == pytest.approx(1, abs=0.05)


def test_batches_are_noisier_than_counting_and_that_is_learned() -> None:
    """Dispersion 16, of which nothing is known at first."""
    rng = np.random.default_rng(3)
    usage = rng.poisson(rng.gamma(1000 / 15, 15, (60, 2000))).astype(float)
    noise = follow(usage, noise=1.0)[-1].noise
    assert (noise**2).mean() == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize("batch_bytes", [1, 1_000, 5_000])
def test_bytes_without_messages_have_noise_too(batch_bytes: int) -> None:
    """100 kB/s, of which Kafka counts no messages; then half as much again."""
    rng = np.random.default_rng(batch_bytes)
    mean = np.repeat([100_000 / batch_bytes, 150_000 / batch_bytes], [12, 6])
    usage = rng.poisson(mean[:, None], (18, 500)) * float(batch_bytes)
    learned = follow(usage, noise=counting_noise(np.array([[NAN]]), np.array([1000.0])).item())
    assert learned[11].demand.std() < 0.5 * usage[11].std()
    assert learned[17].demand.mean() == pytest.approx(150_000, rel=0.05)


def test_a_ramp_is_no_noise() -> None:
    wanted = np.arange(100.0, 600.0, 10.0)[:, None]
    last = follow(wanted, noise=0.5)[-1]
    assert last.noise[0] < 0.3
    assert last.demand[0] == pytest.approx(590, rel=0.05)


def test_a_crowd_that_comes_and_goes_leaves_hardly_any_noise_behind() -> None:
    wanted = np.array([[100.0]] * 5 + [[3000.0]] * 3 + [[100.0]] * 2)
    last = follow(wanted, noise=1.0)[-1]
    assert last.noise[0] < 1.5


@pytest.mark.parametrize("factor", [0.4, 1.7, 3])
def test_a_change_in_the_midst_of_noise_is_followed_within_two_windows(factor: float) -> None:
    rng = np.random.default_rng(5)
    means = np.array([400.0] * 30 + [400 * factor] * 2)
    last = follow(rng.poisson(means[:, None], (32, 2000)).astype(float), noise=1.0)[-1]
    near = np.abs(last.demand / (400 * factor) - 1) < 0.1 + 1 / math.sqrt(400 * factor)
    assert near.mean() > 0.97


def test_a_small_change_is_found_as_deviations_add_up() -> None:
    """A third more, with noise of 10 %: no single window is four standard deviations off."""
    rng = np.random.default_rng(6)
    means = np.array([100.0] * 30 + [130.0] * 6)
    learned = follow(rng.poisson(means[:, None], (36, 2000)).astype(float), noise=1.0)
    assert learned[29].demand.mean() == pytest.approx(100, rel=0.01)
    assert (learned[-1].demand > 115).mean() > 0.95


def test_a_change_that_is_found_over_windows_is_no_noise() -> None:
    """150 a window and then 100, with a limit that its noise reaches: 3.8 standard deviations."""
    rng = np.random.default_rng(7)
    means = np.array([150.0] * 12 + [100.0] * 4)
    learned = follow(rng.poisson(means[:, None], (16, 3000)).astype(float), 168.0, noise=2**0.5)
    variance = [float((estimates.noise**2).mean()) for estimates in learned[11:]]
    assert max(variance) < 1.2 * variance[0]
    assert (learned[13].demand < 120).mean() > 0.6


def unchanged(level: float, windows: int, **more: float) -> float:
    """The noise of a steady broker after windows that are reported as unchanged."""
    estimates = steady(level, windows=3)
    for _ in range(windows):
        same = window(level, before=level, unchanged=True, **more)
        estimates = learn(estimates, same)
    return float(estimates.noise[0])


def test_usage_that_stays_unchanged_has_no_more_noise_than_that() -> None:
    """Noise moves two thirds of windows of 100 by 7 or more; unchanged is 5 at most."""
    assert unchanged(100.0, 12) < 0.5
    assert unchanged(100.0, 60) == pytest.approx(0.5 / 3**0.5, rel=0.02)
    # It says nothing of noise that is smaller, and a window that was not measured says nothing.
    assert unchanged(1e5, 20) == pytest.approx(1.0, rel=0.01)
    assert unchanged(100.0, 12, most_windows=20) == 1.0


def test_a_jump_that_was_noise_is_taken_back() -> None:
    usage = np.array([[100.0, 100.0]] * 6 + [[160.0, 160.0], [100.0, 160.0]])
    learned = follow(usage, noise=1.0)
    assert learned[6].demand.tolist() == [160, 160]
    assert learned[6].doubt.tolist() == [Doubt.JUMPED] * 2
    assert learned[7].demand == pytest.approx([100, 160])
    assert learned[7].windows.tolist() == [6, 2]
    assert learned[7].noise[0] > 1.5 * learned[7].noise[1], "its noise is larger than it seemed"


def test_noise_is_the_same_number_whatever_the_demand() -> None:
    """So that after a jump it is known at once how noisy the new demand will be."""
    rng = np.random.default_rng(2)
    means = np.array([100.0] * 40 + [10_000.0])
    usage = rng.poisson(means[:, None], (41, 500)).astype(float)
    before, after = follow(usage, noise=1.0)[-2:]
    assert after.noise.mean() == pytest.approx(before.noise.mean(), abs=0.05)


def test_a_broker_that_was_given_just_what_it_wants_is_satisfied_at_its_limit() -> None:
    seen = steady(40.0, windows=3, noise=0.0)
    assert learn(seen, window(40, 41, before=40)).demand.tolist() == [40.0]
    assert math.isinf(learn(seen, window(41, 41, before=40)).demand[0])


def blind(mean: FloatArray, limit: FloatArray, seed: int = 1) -> list[Estimates]:
    """Poisson demand of brokers that report no refusals, under limits; shapes (windows, n)."""
    wanted = np.random.default_rng(seed).poisson(mean).astype(float)
    return follow(np.minimum(wanted, limit), limit, noise=1.0)


def test_a_limit_that_noise_touches_biases_nothing() -> None:
    """100 a window, and a limit of 105: a third of all windows is cut off."""
    shape = (60, 3000)
    learned = blind(np.full(shape, 100.0), np.where(np.arange(60) < 10, INF, 105.0)[:, None])
    calm = learned[-1].doubt == Doubt.NONE
    assert calm.mean() > 0.9
    assert learned[-1].demand[calm].mean() == pytest.approx(100, rel=0.03)
    assert learned[-1].noise[calm].mean() == pytest.approx(1, rel=0.15)


def test_noise_at_the_limit_is_rarely_taken_for_a_wish() -> None:
    """A limit two standard deviations above the demand, as headroom makes it."""
    learned = blind(np.full((200, 500), 100.0), np.full((200, 500), 120.0))[20:]
    saturated = np.mean([estimates.doubt == Doubt.SATURATED for estimates in learned])
    suspected = np.mean([estimates.doubt >= Doubt.SOME_MORE for estimates in learned])
    assert saturated < 0.002
    assert suspected < 0.02


def test_suspicion_goes_by_steps_and_an_idle_broker_is_saturated_at_once() -> None:
    """Limits of 0, 0.4, 1, 3 and 40 standard deviations of 10 above 100 (a demand of 0)."""
    level = follow(np.array([[100.0, 100, 100, 100, 0]] * 6), noise=1.0)[-1]
    level = level.with_noise(np.ones(5))
    limit = np.array([104.0, 115, 142, 400, 5])
    seen = learn(level, Window(np.zeros(5), limit, limit, np.full(5, NAN)))
    expected = [Doubt.NONE, Doubt.MORE, Doubt.SATURATED, Doubt.SATURATED]
    assert seen.doubt[1:].tolist() == expected
    assert seen.demand[2] == pytest.approx(4 * 142)
    assert seen.demand[0] < 110, "a touch that noise makes often says little"
    again = seen.demand.copy()
    again[np.isinf(again)] = 1000.0
    asks = learn(seen, Window(limit, again, again, np.full(5, NAN)))
    assert asks.doubt[2] == Doubt.SATURATED, "it is at its limit again"


def test_a_refuted_suspicion_never_was() -> None:
    seen = learn(steady(100.0), window(142, 142, before=100))
    assert seen.doubt[0] == Doubt.MORE
    back = learn(seen, window(98, 568, before=142))
    assert back.demand[0] == pytest.approx(100, abs=1)
    assert (back.windows[0], back.doubt[0], back.old_demand[0]) == (6, Doubt.NONE, 0)


def test_a_suspected_broker_waits_for_the_limit_that_shows_what_it_wants() -> None:
    """A window under the old limit, reported late, is no second touch."""
    at_limit = window(142, 142, before=142)
    seen = learn(steady(100.0), at_limit)
    late = learn(seen, replace(at_limit, outdated=np.array([True])))
    assert late.demand.tolist() == seen.demand.tolist()
    now = learn(seen, replace(at_limit, outdated=np.array([False])))
    assert math.isinf(now.demand[0])


def test_a_broker_that_used_nearly_its_limit_for_long_is_not_back_at_its_old_level() -> None:
    """With noise as large as this the old level of 20 is within four standard deviations of 45."""
    estimates = learn(steady(20.0, noise=1.4), window(60, 22, before=20))
    for _ in range(5):
        estimates = learn(estimates, window(48, 48, before=48))
    assert estimates.doubt[0] == Doubt.SATURATED
    estimates = learn(estimates, window(45, 48, before=48))
    assert estimates.demand[0] == pytest.approx(45)


def test_a_dip_below_a_limit_under_the_old_level_is_no_new_level() -> None:
    estimates = steady(50.0)
    for used in (45, 45, 45, 42):
        estimates = learn(estimates, window(used, 45, before=45))
    assert estimates.demand[0] > 45


def demands(
    estimates: Estimates, usage: list[float], limit: float, noise: float, **more: float
) -> list[float]:
    """The demand after each of these windows of a broker with this noise."""
    found, before = [], 0.0 if math.isinf(limit) else limit
    for used in usage:
        estimates = learn(
            estimates.with_noise(np.array([noise])), window(used, limit, before=before, **more)
        )
        found.append(float(estimates.demand[0]))
    return found


@pytest.mark.parametrize(("memory", "expected"), [(6, 31.667), (20, 30.5)])
def test_a_level_of_short_windows_is_the_mean_of_more(memory: int, expected: float) -> None:
    found = demands(unseen(), [30.0] * 25 + [40.0], INF, 1.0, most_windows=memory)
    assert found[-1] == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(("in_batches", "after"), [(False, [5, 5, 5]), (True, [28.6, 5, 5])])
def test_one_window_that_may_have_missed_a_batch_is_no_fall(
    in_batches: bool, after: list[float]
) -> None:
    usage = [30.0] * 24 + [27.0] + [5.0] * 3
    found = demands(unseen(), usage, INF, 0.7, most_windows=20, in_batches=in_batches)
    assert found[-3:] == pytest.approx(after, abs=0.1)


@pytest.mark.parametrize(("most_windows", "found"), [(6, 37.5), (20, 70.0)])
def test_a_short_window_that_is_a_little_shorter_is_no_fall(
    most_windows: int, found: float
) -> None:
    """37.5 of a limit of 40, from a broker that wants 80: its noise is small by now."""
    usage = [40.0] * 8 + [37.5]
    last = demands(steady(80.0), usage, 40.0, 0.8, most_windows=most_windows)[-1]
    assert last == pytest.approx(found, abs=11.0)


@pytest.mark.parametrize(("most_windows", "after"), [(6, 13), (20, INF)])
def test_one_short_window_below_the_limit_says_nothing_of_a_saturated_broker(
    most_windows: int, after: float
) -> None:
    """Its batch of a second may end in the next window."""
    usage = [30.0] * 4 + [13.0, 30.0, 30.0, 13.0, 14.0]
    short = {"most_windows": most_windows, "in_batches": most_windows > 6}
    found = demands(steady(4.0), usage, 30.0, 0.8, **short)
    assert found[3] == found[6] == INF
    assert found[4] == found[7] == after
    assert found[8] == pytest.approx(14, abs=1)


@pytest.mark.parametrize(("most_windows", "after"), [(6, 42.5), (20, 80)])
def test_one_short_window_says_nothing_of_a_broker_that_is_held_back(
    most_windows: int, after: float
) -> None:
    """Counters of a busy broker are old when they arrive: 42.5 and 59.5 instead of 50 each."""
    usage = [50.0] * 20 + [42.5, 59.5, 42.5, 30.0]
    found = demands(steady(80.0), usage, 49.2, 0.1, most_windows=most_windows)
    assert found[-4] == pytest.approx(after, abs=1)
    assert found[-1] == pytest.approx(30, abs=1)


def test_a_slow_rise_under_a_limit_is_found() -> None:
    """2 % more each window from 100 to 200, with a limit that is always 10 % above the estimate."""
    rng, estimates = np.random.default_rng(4), Estimates.blank((500,)).with_noise(np.ones(500))
    before, limit = np.zeros(500), np.full(500, INF)
    for mean in [100.0] * 10 + [100 * 1.02**n for n in range(36)]:
        used = np.minimum(rng.poisson(mean, 500), limit)
        estimates = learn(estimates, Window(before, used, limit, np.full(500, NAN)))
        before, limit = used, np.minimum(1.1 * estimates.demand, 1000.0)
    assert np.median(limit) > 180


def test_a_broker_held_at_its_level_without_noise_is_asked_whether_it_wants_more() -> None:
    """A limit that the job did not know made it learn the usage under that limit as the level."""
    wants, limit = np.array([300.0, 3.0]), np.full(2, 3.0)
    estimates, before, most = follow(np.full((6, 2), 3.0))[-1], np.full(2, 3.0), []
    for _ in range(40):
        used = np.minimum(wants, limit)
        estimates = learn(estimates, Window(before, used, limit, np.full(2, NAN)))
        before, limit = used, np.clip(estimates.demand, 3.0, 20.0)
        most.append(limit)
    assert most[-1][0] == 20.0
    assert np.mean(most, axis=0)[1] < 3.2, "if satisfied, it has more now and then"
    assert estimates.demand[1] < 4.0


def test_a_claim_is_believed_until_it_is_refuted_again_and_again() -> None:
    """It uses 44 at most, says each time that 500 were refused, and is given 60."""
    estimates, found = unseen(0.0), []
    for _ in range(8):
        estimates = learn(estimates, window(44, 60, 500, before=44))
        found.append(float(estimates.demand[0]))
    assert found[0] == 544
    assert found[-1] == pytest.approx(1.25 * 44)
    for _ in range(130):  # nothing claimed any more
        estimates = learn(estimates, window(44, 60, 0, before=44))
    assert learn(estimates, window(44, 44, 60, before=44)).demand[0] == 104


def test_a_claim_in_the_midst_of_noise_is_refuted_too() -> None:
    """Usage of about 44 with counting noise; the broker claims 500 more and leaves 60 unused."""
    rng, estimates = np.random.default_rng(7), Estimates.blank((200,)).with_noise(np.ones(200))
    before = np.full(200, 44.0)
    for _ in range(12):
        used = np.minimum(rng.poisson(44.0, 200), 120.0).astype(float)
        estimates = learn(estimates, Window(before, used, np.full(200, 120.0), np.full(200, 500.0)))
        before = used
    assert (estimates.demand < 2.5 * 44).mean() > 0.95
    assert estimates.noise.max() <= 44 / math.sqrt(44) + 1, "what it claims is no noise"


def test_a_broker_that_uses_what_it_was_given_is_never_doubted() -> None:
    estimates, limit, before = unseen(0.0), 20.0, 0.0
    for wanted in [30.0, 300, 300, 310, 500, 450, 460, 900, 900] * 9:
        used = min(wanted, limit)
        estimates = learn(estimates, window(used, limit, wanted - used, before))
        assert estimates.distrust[0] < 128
        before, limit = used, min(float(estimates.demand[0]), 400.0)  # more is not to be had


@pytest.mark.parametrize(
    "used",
    [
        [220, 0],
        [1, 178, 45, 129, 92, 53, 166, 23, 186, 15, 139, 81, 86, 134, 62],  # seen in the simulator
    ],
)
def test_a_broker_that_is_held_back_for_what_it_used_before_is_not_doubted(
    used: list[float],
) -> None:
    """A law that looks 11 s back, in reports of 5 s: 100 a second, as a burst and then little."""
    estimates, before = unseen(0.0), 0.0
    for now in used * 6:
        estimates = learn(estimates, window(now, 100, 500 - now, before))
        assert estimates.demand[0] >= 400
        before = now


rates = st.floats(0, 1e12)


@given(
    st.lists(st.tuples(rates, rates | st.just(INF), rates | st.just(NAN)), min_size=1, max_size=12),
    st.sampled_from([0.0, 1.0]),
)
def test_whatever_comes_the_estimates_stay_sound(
    windows: list[tuple[float, float, float]], noise: float
) -> None:
    estimates, before = unseen(noise), 0.0
    for used, limit, throttled in windows:
        estimates = learn(estimates, window(used, limit, throttled, before))
        before = used
        assert estimates.demand[0] >= 0
        for name in ESTIMATE_ARRAYS:
            kept = getattr(estimates, name)
            assert name == "demand" or np.isfinite(kept).all(), name
            assert "deviation" in name or (kept >= 0).all(), name
        assert estimates.distrust[0] <= 255
        assert estimates.windows[0] <= MOST_WINDOWS
        assert max(estimates.rise[0], estimates.fall[0]) * SUM_STEPS <= 255
        assert max(estimates.rise_windows[0], estimates.fall_windows[0]) <= 15
        assert (estimates.doubt[0] == Doubt.NONE) <= (estimates.old_demand[0] == 0)
        suspected = estimates.doubt[0] >= Doubt.SOME_MORE
        assert not np.isinf(estimates.demand[0]) or suspected


def test_a_limit_far_below_a_steady_demand_leaves_a_number() -> None:
    """After 100 windows without noise the limit falls to a hundredth."""
    usage = np.array([[1e6]] * 100 + [[1e4]] * 20 + [[0.0]] * 3)
    limit = np.array([[INF]] * 100 + [[1e4]] * 23)
    with np.errstate(all="raise", under="ignore"):
        learned = follow(usage, limit, noise=0.5)
    assert not np.isnan([estimates.demand for estimates in learned]).any()
    assert not np.isnan([estimates.noise for estimates in learned]).any()
    assert learned[-1].demand[0] == 0


def test_one_broker_cannot_make_the_noise_of_others_large() -> None:
    noise = np.array([[1.0] * 9 + [60_000.0]])
    of_group = noise_of_groups(noise, np.zeros(10, np.int64), 1)
    assert of_group[0, 0] < 1.2
    drawn = noise[0, :9]
    for _ in range(200):
        drawn = with_prior(drawn, np.full(9, of_group[0, 0]), np.ones(9))
    assert drawn.max() < 1.2


def test_noise_of_rare_requests_is_bounded_by_them() -> None:
    """Tiny usage and bursts in turn, as an attacker reports it."""
    usage = np.array([[1e-5], [600.0], [1e-5]] * 60)
    last = follow(usage, 1000.0, noise=1.0)[-1]
    assert last.noise[0] <= 2 * math.sqrt(600.0)


def test_hazard_is_interpolated_bit_for_bit() -> None:
    around = np.concatenate([np.nextafter(_HAZARD_AT, away) for away in (-np.inf, np.inf)])
    z = np.concatenate(
        [np.linspace(-6.0, 9.0, 10_007), _HAZARD_AT, around, [-np.inf, np.inf, np.nan]]
    )
    expected = np.interp(z, _HAZARD_AT, _HAZARD, left=0.0)
    beyond = z > 8.0
    expected[beyond] = z[beyond] + 1.0 / z[beyond]
    np.testing.assert_array_equal(hazard(z), expected, strict=True)
