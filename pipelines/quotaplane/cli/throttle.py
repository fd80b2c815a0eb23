"""``quotaplane throttle CASE.json``: answers one entity's requests as a throttle law would."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, model_validator

from quotaplane.console.answers import add_answer_options, print_answer, table_text
from quotaplane.errors import InputError
from quotaplane.model import MAX_RATE
from quotaplane.parsing.strict_json import CaseModel, Rate, load_case, source_name
from quotaplane.throttle import bank, meter
from quotaplane.throttle.terms import MAX_SAMPLES, WINDOWS, ThrottleTerms
from quotaplane.throttle.types import Answers, Quotas, Requests, ThrottleLaw, ThrottleMode

_EXAMPLE: Final = """\
example of CASE.json (only requests are required):
  {"law": "token_bucket", "quota": 5, "burst": 500, "mode": "soft",
   "requests": [{"t": 0, "units": 560}, {"t": 12, "units": 1}]}
  law       token_bucket (the default), windowed_rate, amended_rate or sliding_window
  quota     units per second; absent or null: unlimited
  burst     capacity of a token bucket in units (default: quota * samples * window_s); the other
            laws get as many windows as give this capacity
  samples, window_s
            how many windows, and how long they are, in seconds (a bucket: 1 of 1 s; rates: 11 of
            1 s; sliding_window: 10 of 0.1 s)
  mode      soft: a request above the quota is admitted and the client delayed; hard: it is refused
  requests  t: time in seconds, not decreasing; units: how many the request takes
t is rounded to whole milliseconds; window_s must be whole milliseconds.

its answer (on a terminal: a table):
  {"answers": [{"t": 0.0, "admitted": true, "throttle_ms": 12000, "balance": -60.0},
               {"t": 12.0, "admitted": true, "throttle_ms": 200, "balance": -1.0}],
   "metrics": {"rate_per_s": 0.1, "tokens": -1.0, "throttle_ms": 200.0}}
  throttle_ms  how long to delay the client or, if refused, how long it should wait before it
               retries; null: for ever
  balance      units left afterwards; null: no quota
  metrics      of the last 11 s, at the last request; tokens: the balance; throttle_ms: the mean
               over throttled requests; null: none was throttled, or for ever, or no quota
"""


class RequestCase(CaseModel):
    """One request."""

    t: Annotated[float, Field(ge=0, le=1e11)]
    """Time in seconds."""
    units: Rate


class ThrottleCase(ThrottleTerms):
    """CASE.json: the fields of ``ThrottleTerms``, and these."""

    quota: Rate | None = None
    """Units per second; absent = unlimited."""
    burst: Rate | None = None
    """In units; absent = given by the windows."""
    requests: list[RequestCase]

    @model_validator(mode="before")
    @classmethod
    def _burst_or_windows(cls, given: Any) -> Any:
        # Before validation fills in the law's default windows.
        if isinstance(given, dict) and given.get("burst") is not None:
            for name in ("samples", "window_s"):
                if name in given:
                    raise ValueError(f"{name}: burst is given as well; give only one of them")
            return {**given, **_windows(given)}
        return given


def _windows(given: Mapping[str, Any]) -> dict[str, Any]:
    """The number of default windows that gives the burst, for a law with windows."""
    law: Any = given.get("law")
    quota: Any = given.get("quota")
    burst: Any = given.get("burst")
    if law not in tuple(WINDOWS) or law == ThrottleLaw.TOKEN_BUCKET:
        return {}
    if not all(isinstance(v, int | float) and 0 <= v <= MAX_RATE for v in (quota, burst)):
        return {}  # validation of the fields reports it
    _, window_s = WINDOWS[law]
    samples = float(burst) / quota / window_s if quota else 0.0
    if samples > MAX_SAMPLES:
        raise ValueError(f"burst: must be at most {MAX_SAMPLES} windows of {window_s:g} s")
    if round(samples) < 1 or not math.isclose(samples, round(samples), rel_tol=1e-9):
        raise ValueError(
            f"burst: must be a whole number of windows, {quota * window_s:g} units each with "
            f"{law}; or give samples and window_s"
        )
    return {"samples": round(samples), "window_s": window_s}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``quotaplane throttle``."""
    parser.epilog = _EXAMPLE
    parser.add_argument("case", metavar="CASE.json", help="law, quota and requests; - reads stdin")
    add_answer_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the answers.

    Raises:
        InputError: the case is wrong; the message names the field.
    """
    case = load_case(args.case, ThrottleCase)
    answer = throttle(case, source_name(args.case))
    columns = ("t", "admitted", "throttle_ms", "balance")
    rows = [tuple(each[name] for name in columns) for each in answer["answers"]]
    metrics = [tuple(answer["metrics"].values())]
    print_answer(
        args,
        lambda: json.dumps(answer, indent=2, allow_nan=False),
        lambda: f"{table_text(columns, rows)}\n\n{table_text([*answer['metrics']], metrics)}",
        lambda: (columns, rows),
    )
    return 0


def throttle(case: ThrottleCase, source: str = "case") -> dict[str, Any]:
    """Answer a case's requests; ``source`` names the case in errors.

    Raises:
        InputError: a request's time is before the previous request's.

    >>> requests = [RequestCase(t=0, units=560)]
    >>> throttle(ThrottleCase(quota=5, burst=500, requests=requests))["answers"]
    [{'t': 0.0, 'admitted': True, 'throttle_ms': 12000, 'balance': -60.0}]
    """
    requests = _requests(case, source)
    quotas = Quotas.of(
        [math.inf if case.quota is None else case.quota],
        samples=case.samples,
        window_ms=case.window_ms,
        hard=case.mode is ThrottleMode.HARD,
        # Windows would give the same but for rounding; only a bucket takes any burst.
        burst_units=None if case.burst is None else [case.burst],
    )
    begun = bank.begin(np.array([bank.LAWS.index(case.law)]), quotas)
    after, answers = begun.answer(requests)
    return {
        "answers": [
            {
                "t": request.t,
                "admitted": admitted,
                "throttle_ms": int(wait_ms) if math.isfinite(wait_ms) else None,
                "balance": _number(balance),
            }
            for request, admitted, wait_ms, balance in zip(
                case.requests, *(field.tolist() for field in answers), strict=True
            )
        ],
        "metrics": _metrics(after, requests, answers),
    }


def _requests(case: ThrottleCase, source: str) -> Requests:
    times = [request.t for request in case.requests]
    for index in range(1, len(times)):
        if times[index] < times[index - 1]:
            raise InputError(
                f"{source}: requests.{index}.t: {times[index]} is before {times[index - 1]}, "
                "the time of the previous request"
            )
    return Requests(
        np.zeros(len(times), np.int64),
        np.array([round(t * 1000) for t in times], np.int64),
        np.array([request.units for request in case.requests], np.float64),
    )


def _metrics(after: bank.Bank, requests: Requests, answers: Answers) -> dict[str, float | None]:
    measured = meter.record(meter.begin(1), requests, answers)
    now = int(requests.at_ms[-1]) if len(requests.at_ms) else 0
    metrics = meter.metrics(measured, after, now)._asdict()
    return {name: _number(float(values[0])) for name, values in metrics.items()}


def _number(value: float) -> float | None:
    """The value, or None (null) if it is infinite, as JSON has no infinity."""
    return value if math.isfinite(value) else None
