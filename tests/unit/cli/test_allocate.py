"""``quotaplane allocate`` as people script against it, and the command around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quotaplane.cli.main import main
from tests.unit.cli.refusals import refused

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def allocate(tmp_path: Path, capsys: Capture) -> Any:
    def run(case: object, *options: str) -> tuple[int, Any, str]:
        path = tmp_path / "case.json"
        if isinstance(case, bytes):
            path.write_bytes(case)
        else:
            path.write_text(case if isinstance(case, str) else json.dumps(case), encoding="utf-8")
        code = main(["allocate", str(path), *options])
        out, err = capsys.readouterr()
        return code, (json.loads(out, parse_constant=pytest.fail) if out else None), err

    return run


def brokers(**given: dict[str, Any]) -> dict[str, Any]:
    return {"quota": 100, "brokers": given}


PIP = brokers(b1={"usage": 10}, b2={"usage": 50}, b3={"usage": 30})


def test_the_documented_case(allocate: Any) -> None:
    case = {
        "quota": 100,
        "brokers": {
            "b1": {"usage": 10, "limit": 33.3, "demand": None, "weight": 1, "floor": 0},
            "b2": {"usage": 33.3, "limit": 33.3},
            "b3": {"usage": 33.3, "limit": 33.3, "demand": 40},
        },
        "law": "max_min",
        "options": {},
    }
    code, answer, err = allocate(case)
    assert (code, err) == (0, "")
    assert list(answer) == ["law", "limits", "reasons"]
    assert answer["law"] == "max_min"
    assert answer["limits"] == pytest.approx({"b1": 10.2, "b2": 49.8, "b3": 40})
    assert answer["reasons"] == {
        "b1": "satisfied: has the 10.2 it wants",
        "b2": "saturated at 49.8; all of 49.8 left over by 2 satisfied brokers",
        "b3": "satisfied: has the 40 it wants",
    }


@pytest.mark.parametrize(
    ("case", "law", "limits"),
    [
        (brokers(a={"demand": 8}, b={"demand": 200}), "max_min", [8, 92]),
        (brokers(a={"demand": 500, "floor": 60}, b={"demand": 500}), "max_min", [60, 40]),
        (brokers(a={"usage": 80, "limit": 80}, b={"usage": 20, "limit": 20}), "pip82", [80, 50]),
        (brokers(a={"usage": 80, "limit": 80}, b={"usage": 20}), "pip82", [80, 20]),
        (PIP, "pip82", [20, 60, 40]),
        (PIP, "proportional", [11, 55, 33]),
        (brokers(a={}, b={"weight": 3}), "static", [25, 75]),
        ({"brokers": {"a": {"usage": 5}}}, "max_min", [None]),
        ({**PIP, "quota": None}, "static", [None] * 3),
        (brokers(), "max_min", []),
    ],
)
def test_limits(allocate: Any, case: object, law: str, limits: list[float | None]) -> None:
    code, answer, _ = allocate(case, "--law", law)
    assert (code, answer["law"]) == (0, law)
    assert list(answer["limits"].values()) == pytest.approx(limits)


def test_law_on_the_command_line_wins_over_the_case(allocate: Any) -> None:
    options = {"residual": "proportional"}
    case = {**PIP, "options": options}
    assert allocate(case, "--law", "pip82")[1]["limits"]["b1"] == pytest.approx(100 / 9)
    # Options that were meant for the case's own law do not stand in another's way.
    answer = allocate({**case, "law": "pip82"}, "--law", "static")[1]
    assert answer["law"] == "static"
    assert answer["limits"]["b1"] == pytest.approx(100 / 3)


def test_ceilings_and_priorities(allocate: Any) -> None:
    case = brokers(
        a={"demand": 500, "ceiling": 40},
        b={"demand": 500, "priority": -1},
        c={"demand": 500, "priority": 0, "ceiling": None},
    )
    assert allocate(case)[1]["limits"] == {"a": 40.0, "b": 0.0, "c": 60.0}


ONE = '{"quota": 1, "brokers": {"b1": %s}}'


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (brokers(b1={"usage": "10"}), "brokers.b1.usage: must be a number, not a string"),
        (brokers(b1={"usage": True}), "brokers.b1.usage: must be a number, not true"),
        (brokers(b1={"usage": -1}), "brokers.b1.usage: must be at least 0"),
        (brokers(b1={"usage": 1e300}), "brokers.b1.usage: must be at most 1e+18"),
        (brokers(b1={}), "brokers.b1.usage: is required (or give its demand)"),
        (brokers(b1={"usage": 1, "weight": 0}), "brokers.b1.weight: must be at least 1e-09"),
        (brokers(b1={"usage": 1, "floor": -1}), "brokers.b1.floor: must be at least 0"),
        (brokers(b1={"usage": 1, "ceiling": -1}), "brokers.b1.ceiling: must be at least 0"),
        (brokers(b1={"usage": 1, "priority": 1001}), "brokers.b1.priority: must be at most 1000"),
        (brokers(b1={"usage": 1, "priority": 0.5}), "brokers.b1.priority: must be a whole number"),
        (brokers(b1={"usage": 1, "limit": {}}), "brokers.b1.limit: must be a number, not an obj"),
        (brokers(b1={"usage": 1, "wieght": 2}), "brokers.b1.wieght: unknown key"),
        (brokers(b1=5), "brokers.b1: must be an object, not a number"),
        ({"quota": 5}, "brokers: is required"),
        ({"quota": -1, "brokers": {}}, "quota: must be at least 0"),
        ({**PIP, "law": "fair"}, "law: unknown law 'fair'"),
        ({**PIP, "options": {"steal": True}}, "options.steal: unknown option of law max_min"),
        ({**PIP, "law": "pip82", "options": {"steal": "yes"}}, "options.steal: must be true or"),
        ([PIP], "must be an object, not a list"),
        (ONE % '{"usage": NaN}', "NaN is not a JSON number"),
        (ONE % '{"usage": 1e999}', "brokers.b1.usage: must be a finite number"),
        (ONE % ('{"usage": 1%s}' % ("0" * 400)), "brokers.b1.usage: must be"),
        (ONE % ('{"usage": 1%s}' % ("0" * 5000)), "a whole number has too many digits"),
        (ONE % '{"usage": 1, "usage": 2}', "usage: the key occurs twice"),
        ('{"quota": 1', "not JSON: Expecting"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe{", "not UTF-8 (byte 0)"),
        (brokers(**{"b\n1\x1b": {"usage": "1"}}), r"brokers.b\n1\x1b.usage: must be a number"),
    ],
)
def test_a_wrong_case_is_one_line_that_names_the_field(
    allocate: Any, case: object, says: str
) -> None:
    code, answer, err = allocate(case)
    assert (code, answer, err.count("\n")) == (2, None, 1)
    assert err.startswith("quotaplane: error: ")
    assert f"case.json: {says}" in err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["allocate"], "the following arguments are required: CASE.json"),
        (["allocate", "no/such/file.json"], "no/such/file.json: can't be read: No such file"),
        (["allocate", "/"], "/: can't be read: Is a directory"),
        (["allocate", "a\0b"], "can't be read"),
        (["allocate", "-", "--la", "static"], "unrecognized arguments: --la"),  # no abbreviation
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_a_wrong_command_line_is_one_line(argv: list[str], says: str, capsys: Capture) -> None:
    assert says in refused(capsys, *argv)


def test_an_unknown_law_on_the_command_line(allocate: Any) -> None:
    code, _, err = allocate(PIP, "--law", "fair")
    assert code == 2
    assert "--law: unknown law 'fair' (there are: max_min, static" in err
