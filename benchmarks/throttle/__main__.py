"""Requests a second: arrays, plain loops and Kafka's classes on the same requests.

Run by ``make bench-throttle``; writes docs/measured/throttle-benchmarks.md. All three have to give
the same answers, or the run ends.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.throttle.loops import by_entity, one_by_one, prepare, token_bucket_by_hand
from benchmarks.throttle.page import Measured, page, rates_csv
from benchmarks.throttle.picture import picture
from benchmarks.throttle.traffic import SPREADS, traffic
from quotaplane.console.option_parser import OptionParser
from quotaplane.streams.script import run_job
from quotaplane.throttle import token_bucket
from quotaplane.throttle.bank import FORMS
from quotaplane.throttle.types import Answers, Quotas, Requests, ThrottleLaw
from quotaplane.throttle.waves import answer
from tests.jvm.kafka_classes import Asked, Said, Stat, ask_kafka, pinned_jar

DOCS: Final = Path(__file__).resolve().parents[2] / "docs/measured"
ENTITIES: Final = 100_000
STATS: Final = {
    ThrottleLaw.TOKEN_BUCKET: Stat.TOKEN_BUCKET,
    ThrottleLaw.WINDOWED_RATE: Stat.RATE,
}
_COLD, _WARM = 3, 5


def measure(law: ThrottleLaw, spread: str, count: int) -> Measured:
    """Seconds that ``count`` requests take each.

    Raises:
        AssertionError: they are answered differently.
    """
    quotas, requests = traffic(spread, ENTITIES, count)
    arrays_s, answers = _arrays(FORMS[law], quotas, requests)
    loop_s = _loops(FORMS[law], quotas, requests, answers)
    alone_s = sensor_s = None
    if law in STATS:
        passes = _COLD + _WARM
        asked = [Asked(STATS[law], quotas, requests, sensor, passes) for sensor in (False, True)]
        alone, sensor = ask_kafka(pinned_jar(), asked, "-Xmx3g")
        for said in (alone, sensor):
            _same(answers, said)
        alone_s, sensor_s = (float(np.median(said.seconds[_COLD:])) for said in (alone, sensor))
    throttled = float(((answers.throttle_ms > 0) | ~answers.admitted).mean())
    return Measured(law, spread, throttled, arrays_s, *loop_s, alone_s, sensor_s)


def _arrays(form: Any, quotas: Quotas, requests: Requests) -> tuple[float, Answers]:
    took = []
    for _ in range(1 + _WARM):
        state = form.begin(quotas)
        begun = time.perf_counter()
        _, answers = answer(form, state, quotas, requests)
        took.append(time.perf_counter() - begun)
    return statistics.median(took[1:]), answers


def _loops(form: Any, quotas: Quotas, requests: Requests, answers: Answers) -> tuple[float, str]:
    """The fastest loop's seconds, and what it is."""
    loops: dict[str, Callable[..., Any]] = {"one by one": one_by_one, "by entity": by_entity}
    if form is token_bucket:
        loops["by hand"] = token_bucket_by_hand
    took = {}
    for name, loop in loops.items():
        given = prepare(form, quotas, requests)
        begun = time.perf_counter()
        told = loop(form, given)
        took[name] = time.perf_counter() - begun
        for ours, theirs in zip(answers, told, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    fastest = min(took, key=lambda name: took[name])
    return took[fastest], fastest


def _same(answers: Answers, said: Said) -> None:
    np.testing.assert_array_equal(answers.admitted, said.admitted)
    np.testing.assert_array_equal(answers.throttle_ms, said.throttle_ms)


def main(argv: Sequence[str]) -> None:
    parser = OptionParser(prog="make bench-throttle", description=__doc__)
    parser.add_argument("--requests", type=int, default=300_000, help="default: 300,000")
    args = parser.parse_args(argv)
    found = []
    for law in FORMS:
        for spread in SPREADS:
            found.append(measure(law, spread, args.requests))
            print(found[-1], flush=True)
    (DOCS / "throttle").mkdir(exist_ok=True)
    (DOCS / "throttle" / "burst.svg").write_text(picture(), encoding="utf-8")
    rates = rates_csv(found, args.requests)
    (DOCS / "throttle" / "results.csv").write_text(rates, encoding="utf-8")
    text = page(found, ENTITIES, args.requests)
    (DOCS / "throttle-benchmarks.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    run_job(main)
