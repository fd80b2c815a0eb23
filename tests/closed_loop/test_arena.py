"""A small arena: checks that the laws fulfil the wishes, except where a miss is known."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.arena.__main__ import DOCS, results_csv, write
from benchmarks.arena.ceilings import best_limits
from benchmarks.arena.contenders import CAUSAL, CLAIRVOYANT, STATIC, contenders, play
from benchmarks.arena.grid import Key, Table, fill
from benchmarks.arena.page import rules
from benchmarks.arena.scenarios import CONDITIONS, draw, scenarios
from benchmarks.arena.wishes import WISHES, Wish, grants, judge

LAWS = {law.name: law for law in contenders()}
SCENES = {scene.name: scene for scene in scenarios()}
QUIET = CONDITIONS[0]
SMALL = ("residual", "stealing", "uniform load", "under-use", "idle wakes", "flash crowd", "churn")

HELD_TO_THE_WISHES = [
    # (law, transition): the law must fulfil every wish of that transition in every small scenario
    (CAUSAL, "fast"),
    ("ours, fast", "fast"),
    ("ours, strict", "strict"),
]


SILENCE = "a dead broker keeps its share for four rounds of silence"
WAITS = "a raise waits a round longer, which matters in scenarios with many raises"
UNMET = {
    # (law, figure, condition, scenario): reason of a known miss. The test asserts the miss, too, so
    # that the list stays true; but not under noise, where another numpy version may draw other
    # numbers.
    ("ours, fast", "settled_worst", "none", "churn"): SILENCE,
    ("ours, fast", "settled_worst", "poisson", "churn"): SILENCE,
    ("ours, fast", "of_causal", "none", "churn"): SILENCE,
    ("ours, strict", "settled_worst", "none", "churn"): SILENCE,
    ("ours, strict", "settled_worst", "poisson", "churn"): SILENCE,
    ("ours, strict", "of_causal", "none", "churn"): SILENCE,
    ("ours, strict", "of_causal", "poisson", "churn"): SILENCE,
    ("ours, strict", "jain_mean", "none", "churn"): SILENCE,
    ("ours, strict", "jain_mean", "poisson", "churn"): SILENCE,
    ("ours, strict", "of_causal", "none", "idle wakes"): WAITS,
    ("ours, strict", "jain_mean", "none", "idle wakes"): WAITS,
    ("ours, strict", "jain_mean", "poisson", "idle wakes"): WAITS,
    ("ours, strict", "jain_mean", "none", "stealing"): WAITS,
    ("ours, strict", "jain_mean", "poisson", "stealing"): WAITS,
    ("ours, strict", "movement", "none", "flash crowd"): WAITS,
}


@pytest.fixture(scope="module")
def table() -> Table:
    """Every law without noise; with Poisson noise those held to the wishes, and their measures."""
    names = dict.fromkeys([CLAIRVOYANT, STATIC, *(law for law, _ in HELD_TO_THE_WISHES)])
    noisy = [condition for condition in CONDITIONS if condition.name == "poisson"]
    scenes = [SCENES[name] for name in SMALL]
    quiet = fill(list(LAWS.values()), scenes, [QUIET])
    return quiet | fill([LAWS[name] for name in names], scenes, noisy)


@pytest.mark.parametrize("scene", SMALL)
@pytest.mark.parametrize(
    ("law", "wish"),
    [
        pytest.param(law, wish, id=f"{law}, {transition}: {wish.name}")
        for law, transition in HELD_TO_THE_WISHES
        for wish in WISHES
        # The causal optimum's movement is the measure of others'.
        if transition in wish.transitions and (law, wish.figure) != (CAUSAL, "movement")
    ],
)
def test_wishes(table: Table, law: str, wish: Wish, scene: str) -> None:
    for condition in wish.conditions:
        key = Key(law, scene, condition)
        if key in table:
            met, measured = grants(wish, table, key), (key, wish.measure(table, key))
            if (law, wish.figure, condition, scene) not in UNMET:
                assert met, measured
            elif condition == QUIET.name:
                assert not met, measured


def test_nobody_beats_the_clairvoyant_and_it_is_perfectly_fair(table: Table) -> None:
    for key, cell in table.items():
        assert cell.utilisation <= table[key._replace(law=CLAIRVOYANT)].utilisation + 1e-9
        if key.law == CLAIRVOYANT:
            assert cell.utilisation == pytest.approx(1.0)
            assert cell.jain_worst == pytest.approx(1.0)
            assert cell.limits_over_quota == pytest.approx(0.0)


def test_static_leaves_unused_what_an_idle_broker_does_not_want(table: Table) -> None:
    assert table[Key(STATIC, "idle wakes", "none")].of_causal < 0.85
    assert table[Key(STATIC, "residual", "none")].settled_worst is None
    assert table[Key(STATIC, "uniform load", "none")].movement == 0.0


@pytest.mark.parametrize(
    ("scene", "end", "stuck"),
    [("uniform load", 31, (7000, 3000)), ("idle wakes", 27, (5000, 5000, 1))],
)
def test_stock_pulsar_stays_stuck(
    table: Table, scene: str, end: int, stuck: tuple[float, ...]
) -> None:
    scenario = SCENES[scene]
    case = draw(scenario, QUIET, seed=0)
    done = play(scenario, [(LAWS["proportional"], case)])[0]
    assert done.limit[end] == pytest.approx(stuck, abs=10)  # rounding takes one at a time
    assert table[Key("proportional", scene, "none")].settled_worst is None


def test_stealing_frees_whom_the_stock_law_starves(table: Table) -> None:
    for scene in ("stealing", "uniform load", "idle wakes"):
        assert table[Key("pip82 each, stealing", scene, "none")].settled_worst is not None
        assert table[Key("pip82 each, stealing", scene, "none")].limits_over_quota > 0.1


@pytest.mark.parametrize("law", ["Doorman FAIR_SHARE", "Doorman PROPORTIONAL_SHARE"])
def test_doorman_keeps_to_the_quota_but_mourns_the_dead(table: Table, law: str) -> None:
    assert table[Key(law, "churn", "none")].limits_over_quota == pytest.approx(0.0, abs=1e-9)
    assert table[Key(law, "churn", "none")].of_causal < 0.92


def test_a_strict_law_may_exceed_only_a_quota_that_nobody_knew_yet() -> None:
    """Tested with Doorman, which starts from nothing and never hands out more than it has."""
    doorman = replace(LAWS["Doorman FAIR_SHARE"], transition="strict")
    scenes = [SCENES["churn"], SCENES["quota changes"]]
    table = fill([LAWS[CAUSAL], LAWS[STATIC], doorman], scenes, [QUIET])
    verdicts = judge(table, [doorman])
    limits = next(v for v in verdicts if v.wish.figure == "limits_over_quota")
    assert limits.met == 1
    assert [place.key.scenario for place in limits.missed] == ["quota changes"]
    assert limits.missed[0].found.value == pytest.approx(14 / 6 - 1)
    assert "before that was known" in limits.missed[0].why
    settled = next(v for v in verdicts if v.wish.figure == "settled_worst")
    assert [place.key.scenario for place in settled.missed] == ["churn"]


def test_the_best_limits_add_up_to_the_quota_and_leave_out_the_dead() -> None:
    scenario = SCENES["churn"]
    limits = best_limits(scenario.demand, scenario.quota, scenario.alive)
    assert limits.sum(axis=1) == pytest.approx(scenario.quota)
    assert (limits[~scenario.alive] == 0.0).all()


def test_the_same_seed_is_the_same_luck_for_all() -> None:
    scenario = SCENES["idle wakes"]
    for condition in CONDITIONS:
        first, again = (draw(scenario, condition, seed=3) for _ in range(2))
        assert np.array_equal(first.demand, again.demand)
        assert np.array_equal(first.network.delay_rounds, again.network.delay_rounds)


@pytest.mark.soak
def test_the_page_says_what_the_table_says(tmp_path: Path) -> None:
    chosen = tuple(LAWS.values())
    quiet = fill(list(chosen), scenarios(), [QUIET])
    table = {  # the page wants all conditions; their numbers don't matter here
        key._replace(condition=condition.name): cell
        for condition in CONDITIONS
        for key, cell in quiet.items()
    }
    write(tmp_path, table, chosen)
    words = (tmp_path / "arena.md").read_text()
    ours = [law for law in chosen if law.transition is not None]
    for verdict in judge(table, ours):
        places = verdict.met + len(verdict.missed)
        met = "all" if not verdict.missed else verdict.met
        assert f"| {verdict.wish.name} | {verdict.law} | {met} of {places} |" in words
    committed = (DOCS / "arena.md").read_text()
    assert "\n".join(rules(scenarios())) in committed  # else it is older than the code
    assert _headings(committed) == _headings(words)
    for picture in ("settling", "use", "over", "idle_wakes", "flash_crowd"):
        assert f"arena/{picture}.svg" in words
        assert (tmp_path / "arena" / f"{picture}.svg").read_text().startswith("<svg")
    flat = list(csv.DictReader(io.StringIO(results_csv(table))))
    assert len(flat) == len(table)
    cell = table[Key(CAUSAL, "idle wakes", "none")]
    row = next(r for r in flat if (r["law"], r["scenario"]) == (CAUSAL, "idle wakes"))
    assert float(row["utilisation"]) == pytest.approx(cell.utilisation)


def _headings(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("## ")]
