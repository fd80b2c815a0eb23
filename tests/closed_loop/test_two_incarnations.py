"""Reports in a broker's name from two programs, and restarts, which look alike at first."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec, Report
from quotaplane.wire.report_own import encode_report
from tests.closed_loop.conftest import START_MS, Loop, reports_by_reason, settings_with
from tests.examples import in_nightly

GROUP, QUOTA, INTERVAL_MS = "g", 500.0, 5000
PUBLISH = DIMENSIONS[0]
HALVES = {GROUP: {name: [(0.0, QUOTA)] for name in ("victim", "other")}}
BEGINS = 8
"""The round in which the first forged report arrives."""


def claim(at_ms: int, started_at_ms: int, broker: str = "victim") -> Report:
    """A report that claims that the broker uses nothing."""
    value = encode_report(
        broker=broker,
        groups=[GROUP],
        usage=np.zeros((1, 4)),
        started_at_ms=started_at_ms,
        sequence=1,
        window_ms=INTERVAL_MS,
    )
    return Report(broker, value, at_ms)


def attacked(
    form: Any = "own",
    *,
    every: int = 4,
    ahead_ms: int = 0,
    lost: range = range(0),
    rounds: int = 60,
    **settings: Any,
) -> Loop:
    """A loop in which a forged report comes every so many rounds, with a start of just then.

    ``ahead_ms``: of its publish time. ``lost``: the rounds without the victim's own reports.
    """
    numbers = count()

    def mangle(reports: list[Report]) -> list[Report]:
        number = next(numbers)
        kept = [one for one in reports if one.broker != "victim" or number not in lost]
        if number < BEGINS or (number - BEGINS) % every:
            return kept
        at_ms = START_MS + INTERVAL_MS * number
        return [*kept, claim(at_ms + ahead_ms, at_ms - 1)]

    more = {"reports": {"interval_s": 5.0}, **settings}
    specs = {name: BrokerSpec(name, format=form) for name in HALVES[GROUP]}
    quotas = {GROUP: {PUBLISH: QUOTA}}
    settled = settings_with(**more)
    return Loop(HALVES, quotas, settings=settled, specs=specs, mangle=mangle).run(rounds)


def victims(run: Loop) -> np.ndarray:
    """Rate that the victim may use in each round from the first forged report on."""
    return run.series("share", GROUP)[BEGINS:, run.names.index("victim")]


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["own", "stock"])
@pytest.mark.parametrize(
    "more",
    [{}, {"every": 1}, {"ahead_ms": 29_000}, {"limits": {"transition": "strict"}}],
    ids=["every 20 s", "every 5 s", "from the future", "strict"],
)
def test_reports_with_a_later_start_take_nothing_from_a_broker(form: str, more: Any) -> None:
    if form == "stock" and "limits" in more:
        pytest.skip("stock brokers acknowledge no limits")
    run = attacked(form, **more)
    assert victims(run).min() >= 0.999 * QUOTA / 2
    found = reports_by_reason(run.letters)
    # The first ones may be of a restart, and are recorded; what comes after the broker's own
    # reports is not.
    assert found.pop("two_incarnations") >= 10
    assert not found


def test_dead_letters_name_the_broker_and_the_position() -> None:
    letter = attacked().letters[-1]
    assert (letter["reason"], letter["sender"]) == ("two_incarnations", "victim")
    assert letter["position"]
    assert "another incarnation" in letter["detail"]


def test_the_broker_has_its_place_again_once_the_other_program_is_silent() -> None:
    # The broker is away for 20 s; the other program reports in its name until the 30th round.
    run = attacked(every=1, lost=range(20, 24), rounds=30)
    assert victims(run)[-1] < QUOTA / 4
    run._mangle = lambda reports: reports
    run.run(12)
    assert victims(run)[-1] == pytest.approx(QUOTA / 2, rel=0.05)


def rolling(seed: int, *, twice: bool = False, back_ms: int = 0) -> Loop:
    """Restarts of one broker after another, five a round, without a pause between two reports.

    ``twice``: each restarts again in the round after. ``back_ms``: its clock is set back by so
    much with the restart. Some reports are lost, and some come again.
    """
    brokers = 50
    rng = np.random.default_rng(seed)
    sent: list[Report] = []
    off_ms: dict[str, int] = {}

    def mangle(reports: list[Report]) -> list[Report]:
        reports = [
            one._replace(published_at_ms=one.published_at_ms - off_ms.get(one.broker, 0))
            for one in reports
        ]
        again = [one for one in sent[-3 * brokers :] if rng.random() < 0.05]
        sent.extend(reports)
        return [*again, *(one for one in reports if rng.random() >= 0.02)]

    names = [f"b{number:02}" for number in range(brokers)]
    wants: Mapping[str, Any] = {GROUP: {name: [(0.0, 20.0)] for name in names}}
    settings = settings_with(reports={"interval_s": 5.0})
    quotas = {GROUP: {PUBLISH: 0.8 * 20.0 * brokers}}
    run = Loop(wants, quotas, settings=settings, mangle=mangle, poisson=(GROUP,), seed=seed)
    for number in range(36):
        first = 5 * (number - 10)
        batch = names[first : first + 5] if 0 <= first < brokers else []
        again = names[first - 5 : first] if twice and 5 <= first <= brokers else []
        for name in [*batch, *again]:
            off_ms[name] = back_ms
            started_ms = run.intervals[-1].now_ms + 500 - back_ms
            run.world.brokers.join(name, started_ms)
        run.run(1)
    return run


@pytest.mark.parametrize("seed", [0, *in_nightly(1)])
@pytest.mark.parametrize("more", [{"twice": True}, *in_nightly({}, {"back_ms": 2000})], ids=str)
def test_restarts_are_no_alarm_and_cost_no_limit(seed: int, more: Any) -> None:
    run = rolling(seed, **more)
    assert reports_by_reason(run.letters).keys() <= {"other_incarnation", "too_many_reports"}
    share = run.series("share", GROUP)
    before, during, after = share[5:10], share[10:24], share[-10:]
    assert after == pytest.approx(before[:1].repeat(10, axis=0))
    # Until a broker has limits again it is not limited: at most two rounds, five brokers in each.
    assert during.min() >= 0.99 * before.min()
    assert during.sum(axis=1).max() <= before[0].sum() + 2 * 5 * 4.0 + 1.0


@pytest.mark.nightly
@pytest.mark.parametrize("away", [0, 1, 2, 5])
def test_a_restarted_broker_has_limits_again_an_interval_later(away: int) -> None:
    settings = settings_with(reports={"interval_s": 5.0}, limits={"transition": "strict"})
    run = Loop(HALVES, {GROUP: {PUBLISH: QUOTA}}, settings=settings).run(30)
    run.world.brokers.die("victim")
    run.run(away)
    run.world.brokers.join("victim", run.intervals[-1].now_ms + 500)
    begins = len(run.intervals)
    run.run(6)
    limits = run.series("limit", GROUP)[begins:, run.names.index("victim")]
    # One round until its first report is read; one more if it could be of another program.
    assert np.isinf(limits).tolist() == [True] * (2 if away == 0 else 1) + [False] * (
        4 if away == 0 else 5
    )
