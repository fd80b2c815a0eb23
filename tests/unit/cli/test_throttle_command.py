"""``quotaplane throttle``: its own example, every law, and cases that are wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from quotaplane.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def throttle(tmp_path: Path, capsys: Capture) -> Any:
    def run(case: object) -> tuple[int, Any, str]:
        path = tmp_path / "case.json"
        path.write_text(case if isinstance(case, str) else json.dumps(case), encoding="utf-8")
        code = main(["throttle", str(path)])
        out, err = capsys.readouterr()
        return code, (json.loads(out, parse_constant=pytest.fail) if out else None), err

    return run


def asked(*requests: tuple[float, float]) -> list[dict[str, float]]:
    return [{"t": t, "units": units} for t, units in requests]


def answered(*answers: tuple[float, bool, int | None, float | None]) -> list[dict[str, Any]]:
    names = ("t", "admitted", "throttle_ms", "balance")
    return [dict(zip(names, answer, strict=True)) for answer in answers]


def test_the_example_of_the_help_text(throttle: Any, capsys: Capture) -> None:
    assert main(["throttle", "--help"]) == 0
    text = capsys.readouterr().out
    decode = json.JSONDecoder().raw_decode
    case, answer = (decode(text, at.end() - 1)[0] for at in re.finditer(r"^  \{", text, re.M))
    code, got, err = throttle(case)
    assert (code, err) == (0, "")
    assert got == answer
    assert list(got) == ["answers", "metrics"]
    assert list(got["answers"][0]) == ["t", "admitted", "throttle_ms", "balance"]


@pytest.mark.parametrize(
    ("law", "samples", "window_s"),
    [("windowed_rate", 100, 1), ("amended_rate", 100, 1), ("sliding_window", 1000, 0.1)],
)
def test_a_burst_stands_for_the_windows_that_make_it_up(
    throttle: Any, law: str, samples: int, window_s: float
) -> None:
    case = {"law": law, "quota": 5, "requests": asked((0, 560), (7, 1), (80.5, 30), (190, 3))}
    assert throttle({**case, "burst": 500}) == throttle(
        {**case, "samples": samples, "window_s": window_s}
    )


@pytest.mark.parametrize(
    ("law", "throttle_ms"),
    [
        ("token_bucket", 12_000),
        ("windowed_rate", 13_000),
        ("amended_rate", 12_000),
        ("sliding_window", 100_000),
    ],
)
def test_each_law_answers(throttle: Any, law: str, throttle_ms: int) -> None:
    case = {"quota": 5, "samples": 100, "window_s": 1, "requests": asked((0, 560)), "law": law}
    (answer,) = throttle(case)[1]["answers"]
    assert (answer["admitted"], answer["throttle_ms"]) == (True, throttle_ms)
    (answer,) = throttle({**case, "mode": "hard"})[1]["answers"]
    assert answer["admitted"] is (law != "sliding_window")


@pytest.mark.parametrize("quota", [{}, {"quota": None}])
@pytest.mark.parametrize("law", ["token_bucket", "windowed_rate", "amended_rate", "sliding_window"])
def test_without_a_quota_nothing_is_throttled(throttle: Any, law: str, quota: Any) -> None:
    answer = throttle({**quota, "law": law, "requests": asked((0, 1e18), (1, 7))})[1]
    assert answer["answers"] == answered((0.0, True, 0, None), (1.0, True, 0, None))
    assert answer["metrics"]["tokens"] is None
    assert answer["metrics"]["throttle_ms"] is None


def test_a_quota_of_0_with_a_burst_is_spent_once(throttle: Any) -> None:
    case = {"quota": 0, "burst": 10, "requests": asked((0, 10), (5, 1), (1e6, 0))}
    assert throttle(case)[1]["answers"] == answered(
        (0.0, True, 0, 0.0), (5.0, True, None, -1.0), (1e6, True, None, -1.0)
    )


def test_a_burst_may_be_any_number_also_0(throttle: Any) -> None:
    case = {"quota": 3, "burst": 0, "mode": "hard", "requests": asked((0, 1), (0.3, 1), (0.4, 1))}
    answers = throttle(case)[1]["answers"]
    assert [answer["throttle_ms"] for answer in answers] == [0, 33, 0]
    answer = throttle({"quota": 7, "burst": 0.1, "requests": asked((0, 0))})[1]
    assert answer["answers"][0]["balance"] == 0.1


def test_times_are_rounded_to_milliseconds_and_told_as_given(throttle: Any) -> None:
    case = {"quota": 1000, "burst": 1, "requests": asked((0.0, 2), (0.0014, 0), (0.0016, 0))}
    answers = throttle(case)[1]["answers"]
    assert [answer["t"] for answer in answers] == [0.0, 0.0014, 0.0016]
    assert [answer["balance"] for answer in answers] == [-1.0, 0.0, 1.0]


def test_no_requests_no_answers(throttle: Any) -> None:
    code, answer, _ = throttle({"quota": 5, "requests": []})
    assert code == 0
    assert answer == {
        "answers": [],
        "metrics": {"rate_per_s": 0.0, "tokens": 5.0, "throttle_ms": None},
    }


BASE = {"quota": 5, "requests": asked((0, 1))}


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ({"quota": 5}, "requests: is required"),
        ({**BASE, "law": "leaky"}, "law: must be 'token_bucket', 'windowed_rate', 'amended_rate'"),
        ({**BASE, "law": "leaky", "burst": 5}, "law: must be "),
        ({**BASE, "quota": -1}, "quota: must be at least 0"),
        ({**BASE, "burst": -1}, "burst: must be at least 0"),
        ({**BASE, "brust": 100}, "brust: unknown key"),
        ({**BASE, "burst": 1.3, "law": "sliding_window"}, "burst: must be a whole number of"),
        ({**BASE, "burst": 1e6, "law": "sliding_window"}, "burst: must be at most "),
        ({**BASE, "quota": 1e-300, "burst": 1e18, "law": "windowed_rate"}, "burst: must be at"),
        ({**BASE, "burst": 1e300, "law": "windowed_rate"}, "burst: must be at most 1e+18"),
        ({**BASE, "quota": 0, "burst": 5, "law": "amended_rate"}, "burst: must be a whole number"),
        ({**BASE, "burst": 1, "samples": 2}, "samples: burst is given as well; give only one"),
        ({**BASE, "samples": 0}, "samples: must be at least 1"),
        ({**BASE, "requests": [{"units": 1}]}, "requests.0.t: is required"),
        ({**BASE, "requests": asked((0, -1))}, "requests.0.units: must be at least 0"),
        ({**BASE, "requests": asked((-1, 1))}, "requests.0.t: must be at least 0"),
        ({**BASE, "requests": asked((1.7e12, 1))}, "requests.0.t: must be at most 1e+11"),
        ({**BASE, "requests": asked((0, 1), (2, 1), (1.9, 1))}, "requests.2.t: 1.9 is before"),
    ],
)
def test_a_wrong_case_is_one_line_that_names_the_field(
    throttle: Any, case: object, says: str
) -> None:
    code, answer, err = throttle(case)
    assert (code, answer, err.count("\n")) == (2, None, 1)
    assert err.startswith("quotaplane: error: ")
    assert f"case.json: {says}" in err
