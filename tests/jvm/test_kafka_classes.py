"""Kafka's own classes and our laws on the same random requests: equal, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from quotaplane.errors import InputError
from quotaplane.model import FloatArray
from quotaplane.throttle import token_bucket, windowed_rate
from quotaplane.throttle.types import Answers, Quotas, Requests
from quotaplane.throttle.waves import answer
from tests.jvm.kafka_classes import MOST_MS, Asked, Said, Stat, ask_kafka, pinned_jar
from tests.servers.kafka_server import kafka_jars

pytestmark = pytest.mark.nightly

ENTITIES, EACH = 2500, 50
NOW_MS: Final = 1_700_000_000_000
FORMS: Final[dict[Stat, Any]] = {Stat.TOKEN_BUCKET: token_bucket, Stat.RATE: windowed_rate}


def server_jar() -> Path:
    (jar,) = kafka_jars().glob("kafka-clients-*.jar")
    return jar


JARS: Final = {"Spark's client": pinned_jar, "the test server's": server_jar}


def random_quotas(random: np.random.Generator) -> Quotas:
    """Quotas from 0 to 1e9, 1 to 20 windows of 1 ms to a minute, half of them hard."""
    rate = 10.0 ** random.uniform(-3, 9, ENTITIES)
    whole = random.random(ENTITIES) < 0.4
    rate[whole] = np.ceil(rate[whole])
    rate[random.random(ENTITIES) < 0.02] = 0.0
    usual = random.choice([1, 10, 100, 1000, 1000, 30_000, 60_000], ENTITIES)
    odd = (60_000.0 ** random.random(ENTITIES)).astype(np.int64)
    return Quotas(
        rate,
        random.integers(1, 21, ENTITIES),
        np.where(random.random(ENTITIES) < 0.5, usual, odd),
        random.random(ENTITIES) < 0.5,
    )


def random_requests(random: np.random.Generator, quotas: Quotas, start_ms: int) -> Requests:
    """Bursts, steady traffic, and idling for about as long as a window, or all of them, is."""
    shape = ENTITIES, EACH
    window = quotas.window_ms[:, None].repeat(EACH, axis=1)
    whole = quotas.samples[:, None] * window
    gaps = pick(
        random,
        [
            np.zeros(shape),
            random.uniform(0, 1, shape) * window,
            window + random.integers(-1, 2, shape),
            random.uniform(0, 3, shape) * window,
            whole + random.integers(-1, 2, shape) - random.integers(0, 2, shape) * window,
            random.uniform(0, 30, shape) * whole,
        ],
        [0.3, 0.3, 0.15, 0.1, 0.1, 0.05],
    )
    share = quotas.rate_per_s[:, None] * window / 1000.0
    units = pick(
        random,
        [
            np.zeros(shape),
            random.uniform(0, 2, shape) * share,
            np.rint(random.uniform(0, 2, shape) * share),
            share,
            random.uniform(0, 3, shape) * share * quotas.samples[:, None],
            10.0 ** random.uniform(-9, 15, shape),
        ],
        [0.1, 0.35, 0.25, 0.1, 0.15, 0.05],
    )
    begin = start_ms + random.integers(0, 60_000, ENTITIES)
    at_ms = begin[:, None] + np.maximum(gaps, 0).astype(np.int64).cumsum(axis=1)
    order = np.argsort(at_ms, axis=None, kind="stable")
    entity = np.arange(ENTITIES).repeat(EACH)
    return Requests(entity[order], at_ms.ravel()[order], units.ravel()[order])


def pick(random: np.random.Generator, kinds: list[Any], how_often: list[float]) -> FloatArray:
    kind = random.choice(len(kinds), kinds[0].shape, p=how_often)
    return np.choose(kind, kinds)


@pytest.fixture(scope="module")
def batches() -> list[tuple[Asked, Answers]]:
    """Thousands of sequences for each class, and our answers; for the rate also at the clock's
    beginning.
    """
    found = []
    for seed, (stat, sensor, start_ms) in enumerate(
        [
            (Stat.TOKEN_BUCKET, True, NOW_MS),
            (Stat.TOKEN_BUCKET, False, NOW_MS),
            (Stat.RATE, True, NOW_MS),
            (Stat.RATE, False, 0),
        ]
    ):
        random = np.random.default_rng(seed)
        quotas = random_quotas(random)
        asked = Asked(stat, quotas, random_requests(random, quotas, start_ms), sensor)
        found.append((asked, ours(asked)))
    return found


def ours(asked: Asked) -> Answers:
    form = FORMS[asked.stat]
    return answer(form, form.begin(asked.quotas), asked.quotas, asked.requests)[1]


def as_long(milliseconds: FloatArray) -> Any:
    """As Java has it: ``Math.round`` ends at the greatest long."""
    long = milliseconds < float(MOST_MS)
    return np.where(long, np.where(long, milliseconds, 0.0).astype(np.int64), MOST_MS)


def balance_of(asked: Asked, said: Said) -> FloatArray:
    """Balance that is left by Kafka's measure."""
    if asked.stat is Stat.TOKEN_BUCKET:
        return said.value
    quota = asked.quotas.rate_per_s[asked.requests.entity]
    return (quota - said.value) * (said.window_ms / 1000.0)


@pytest.mark.parametrize("jar", JARS)
def test_answers_are_kafkas_to_the_last_bit(jar: str, batches: list[tuple[Asked, Answers]]) -> None:
    said_of = ask_kafka(JARS[jar](), [asked for asked, _ in batches])
    for (batch, answers), said in zip(batches, said_of, strict=True):
        hard = batch.quotas.hard[batch.requests.entity]
        # Random requests that meet everything, or equal answers would say little.
        assert 0.2 < said.admitted[hard].mean() < 0.8
        assert 0.2 < (said.throttle_ms[~hard] == 0).mean() < 0.8
        np.testing.assert_array_equal(answers.admitted, said.admitted)
        np.testing.assert_array_equal(as_long(answers.throttle_ms), said.throttle_ms)
        left = balance_of(batch, said)
        np.testing.assert_array_equal(answers.balance.view(np.int64), left.view(np.int64))


def one(
    stat: Stat,
    rate_per_s: float,
    requests: list[tuple[int, float]],
    *,
    samples: int = 100,
    window_ms: int = 1000,
    hard: bool = False,
) -> Asked:
    """Requests, (milliseconds, units), of one entity."""
    at_ms, units = zip(*requests, strict=True)
    return Asked(
        stat,
        Quotas.of([rate_per_s], samples=samples, window_ms=window_ms, hard=hard),
        Requests(np.zeros(len(units), np.int64), np.array(at_ms), np.array(units, np.float64)),
    )


@pytest.fixture(scope="module")
def kafka() -> dict[str, tuple[Asked, Said]]:
    """Answers of Kafka's classes to single cases."""
    later = NOW_MS + 12_000
    burst = [(NOW_MS, 560.0), (later, 1.0), (NOW_MS + 99_999, 1.0), (NOW_MS + 100_000, 1.0)]
    spike = [(NOW_MS + 1000 * second, 400.0) for second in range(10)]
    cases = {
        "clock's beginning": one(Stat.TOKEN_BUCKET, 5.0, [(0, 10.0)]),
        "no tokens ever": one(Stat.TOKEN_BUCKET, 0.0, [(NOW_MS, 0.0), (NOW_MS, 5.0)]),
        "no rate ever": one(Stat.RATE, 0.0, [(NOW_MS, 0.0), (NOW_MS, 5.0)]),
        "infinite": one(Stat.TOKEN_BUCKET, np.inf, [(NOW_MS, 5.0)]),
        "time falls": one(Stat.TOKEN_BUCKET, 5.0, [(NOW_MS, 100.0), (NOW_MS - 2000, 0.0)]),
        "negative": one(Stat.TOKEN_BUCKET, 5.0, [(NOW_MS, 100.0), (NOW_MS, -50.0)]),
        "burst, tokens": one(Stat.TOKEN_BUCKET, 5.0, burst, hard=True),
        "burst, rate": one(Stat.RATE, 5.0, burst, hard=True),
        "burst, rate, soft": one(Stat.RATE, 5.0, burst[:1]),
        "spike": one(Stat.RATE, 500.0, [*spike, (NOW_MS + 10_500, 2300.0)], samples=11),
    }
    said = ask_kafka(pinned_jar(), list(cases.values()))
    return {name: (cases[name], answer) for name, answer in zip(cases, said, strict=True)}


Kafka = dict[str, tuple[Asked, Said]]


def test_before_the_clock_counted_kafkas_bucket_was_empty_ours_is_full(kafka: Kafka) -> None:
    asked, said = kafka["clock's beginning"]
    assert (said.value.tolist(), said.throttle_ms.tolist()) == ([-10.0], [2000])
    assert ours(asked).balance.tolist() == [490.0]


@pytest.mark.parametrize("case", ["no tokens ever", "no rate ever"])
def test_a_quota_of_0_never_recovers(kafka: Kafka, case: str) -> None:
    asked, said = kafka[case]
    assert said.throttle_ms.tolist() == [0, MOST_MS]
    assert ours(asked).throttle_ms.tolist() == [0.0, np.inf]


def test_an_infinite_quota_is_none_for_us_and_no_number_for_kafka(kafka: Kafka) -> None:
    asked, said = kafka["infinite"]
    assert np.isnan(said.value).all()
    assert said.admitted.all()
    assert ours(asked).balance.tolist() == [np.inf]


def test_times_that_fall_cost_kafka_tokens_and_are_an_error_here(kafka: Kafka) -> None:
    asked, said = kafka["time falls"]
    assert said.value.tolist() == [400.0, 390.0]
    with pytest.raises(InputError, match="before the last one"):
        ours(asked)


def test_negative_units_give_kafka_tokens_back_and_are_an_error_here(kafka: Kafka) -> None:
    asked, said = kafka["negative"]
    assert said.value.tolist() == [400.0, 450.0]
    with pytest.raises(InputError, match="units must be a number from 0"):
        ours(asked)


def test_kip_599s_burst_waits_12_s_for_tokens(kafka: Kafka) -> None:
    said = kafka["burst, tokens"][1]
    assert said.admitted.tolist() == [True, True, True, True]
    assert said.throttle_ms.tolist() == [0, 0, 0, 0]
    assert said.value[:2].tolist() == [-60.0, -1.0]


def test_kip_599s_burst_is_told_13_s_by_kafkas_rate_and_waits_100(kafka: Kafka) -> None:
    """The KIP reckons with R = 560 / 100 s; the class measures over at least S - 1 windows, so a
    burst in the first one counts as 560 / 99 s: ``(560 / 99 - 5) / 5 * 99 s`` are 13 s.
    """
    soft = kafka["burst, rate, soft"][1]
    assert (soft.window_ms.tolist(), soft.throttle_ms.tolist()) == ([99_000], [13_000])
    assert soft.value.tolist() == [560 / 99]
    assert kafka["burst, rate"][1].admitted.tolist() == [True, False, False, True]


def test_kafkas_own_spike(kafka: Kafka) -> None:
    """ClientQuotaManagerTest.testQuotaViolation: 6300 in 10.5 s."""
    said = kafka["spike"][1]
    assert said.throttle_ms.tolist() == [0] * 10 + [2100]
    assert (said.value[-1], said.window_ms[-1]) == (600.0, 10_500)
