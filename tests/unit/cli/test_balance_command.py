"""``quotaplane balance CASES``: forms of cases and answers, and what is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quotaplane.cli.main import main

FIRST, SECOND = "acme/a/0x00000000_0x80000000", "acme/a/0x80000000_0xffffffff"
HOT: dict[str, Any] = {
    "b1": {
        "cpu": [90, 100],
        "bandwidthIn": [90, 100],
        "bundles": {FIRST: [5e7, 5e7, 1000, 1000], SECOND: [4e7, 4e7, 900, 900]},
    },
    "b2": {"cpu": [5, 100], "bandwidthIn": [5, 100]},
}

SIX = {f"acme/b/0x{i}0000000_0x{i}fffffff": [2e7, 2e7, 500, 500] for i in range(6)}


def hot_with(**changes: object) -> dict[str, Any]:
    """A case of one round, in which the hot broker reports this."""
    return {"rounds": [{**HOT, "b1": {**HOT["b1"], **changes}}]}


Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(cases: str | object, *options: str) -> tuple[int, str, str]:
        file = tmp_path / "cases.json"
        file.write_text(cases if isinstance(cases, str) else json.dumps(cases))
        code = main(["balance", str(file), *options])
        told = capsys.readouterr()
        return code, told.out, told.err.replace(str(tmp_path), "")

    return run


def test_a_stock_shedder_says_what_leaves_which_broker(ask: Ask) -> None:
    assert ask({"rounds": [HOT, HOT]}, "--shed", "OverloadShedder") == (
        0,
        json.dumps([{"b1": [FIRST]}, {"b1": [FIRST]}]) + "\n",
        "",
    )


def test_quotaplane_also_says_where_to(ask: Ask) -> None:
    code, out, _ = ask({**hot_with(bundles=SIX), "options": {"max_bytes_share_per_round": 1}})
    (moves,) = json.loads(out)
    assert code == 0
    assert len(moves) == 3
    assert {move.partition(" ")[0] for move in moves} == {"b1>b2"}


def test_quotaplane_splits_a_bundle_that_fits_on_no_broker(ask: Ask) -> None:
    case = hot_with(bundles={FIRST: [5e7, 5e7, 1000, 1000], SECOND: [1e7, 1e7, 200, 200]})
    assert json.loads(ask(case)[1]) == [[f"split {FIRST} at 0x20000000 0x40000000 0x60000000"]]


def test_a_bare_snapshot_is_one_round(ask: Ask) -> None:
    assert json.loads(ask(HOT, "--shed", "ThresholdShedder")[1]) == [{"b1": [FIRST]}]
    assert json.loads(ask(HOT, "--split", "BundleSplitterTask")[1]) == [{}]
    assert json.loads(ask(HOT, "--place", "RoundRobinBrokerSelector")[1]) == [{}]


def test_json_lines_are_one_case_each_with_strategies_of_their_own(ask: Ask) -> None:
    cases = [{"cls": "OverloadShedder", "rounds": [HOT]}, {"cls": "UniformLoadShedder"}]
    cases[1]["rounds"] = [{}]
    lines = ask("\n".join(map(json.dumps, cases)))[1].splitlines()
    assert [json.loads(line) for line in lines] == [[{"b1": [FIRST]}], [{}]]


def test_recently_unloaded_bundles_stay(ask: Ask) -> None:
    case = {"rounds": [HOT], "recent": [FIRST]}
    assert json.loads(ask(case, "--shed", "OverloadShedder")[1]) == [{"b1": [SECOND]}]


def test_explain_gives_a_reason_for_each_move_and_each_skip(ask: Ask) -> None:
    out = ask({"rounds": [HOT]}, "--shed", "OverloadShedder", "--explain")[1]
    (round_,) = json.loads(out)
    (move,) = round_["moves"]
    assert (move["bundle"], move["label"]) == (FIRST, "Overloaded")
    assert "90.0%" in move["reason"]
    assert {skip["label"] for skip in round_["skips"]} == {"Balanced"}


@pytest.mark.parametrize(
    ("option", "value"), [("--place", "AvgShedder"), ("--split", "BundleSplitterTask")]
)
def test_explain_is_refused_where_there_are_no_reasons(ask: Ask, option: str, value: str) -> None:
    assert ask({"rounds": [HOT]}, option, value, "--explain") == (
        2,
        "",
        f"quotaplane: error: --explain does not go with {option}, whose answers have no reasons\n",
    )


def test_a_broker_conf_chooses_strategy_and_settings(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    shedder = "org.apache.pulsar.broker.loadbalance.impl.OverloadShedder"
    file.write_text(f"loadBalancerLoadSheddingStrategy={shedder}\nzookeeperServers=zk\n")
    given = ("--broker-conf", str(file))
    assert ask({"rounds": [HOT]}, *given) == (0, json.dumps([{"b1": [FIRST]}]) + "\n", "")
    assert json.loads(ask({"rounds": [HOT], "cls": "AvgShedder"}, *given)[1]) == [{}]
    file.write_text(f"{file.read_text()}loadBalancerSheddingEnabled=no\n")
    code, out, err = ask({"rounds": [HOT]}, *given)
    assert (code, json.loads(out)) == (0, [{}])
    assert "broker.conf line 3: loadBalancerSheddingEnabled=no is false: only 'true' is true" in err
    on = {"rounds": [HOT], "conf": {"loadBalancerSheddingEnabled": True}}
    assert json.loads(ask(on, *given)[1]) == [{"b1": [FIRST]}]
    file.write_text("loadBalancerNamespaceBundleMaxMsgRate=1000\n")
    hot = {**hot_with(), "topics": {FIRST: 5, SECOND: 5}}
    split = [{FIRST: [0x40000000], SECOND: [0xBFFFFFFF]}]
    assert json.loads(ask(hot, "--split", "BundleSplitterTask", *given)[1]) == split
    ours = json.loads(ask(hot, "--shed", "quotaplane", *given)[1])
    assert [line.partition(" at ")[0] for line in ours[0]] == [f"split {FIRST}", f"split {SECOND}"]
    own = {**hot, "options": {"loadBalancerNamespaceBundleMaxMsgRate": 5000}}
    assert json.loads(ask(own, "--shed", "quotaplane", *given)[1]) == json.loads(
        ask(own, "--shed", "quotaplane")[1]
    )
    file.write_text("loadBalancerAutoBundleSplitEnabled=false\n")
    assert json.loads(ask(hot, "--split", "BundleSplitterTask", *given)[1]) == [{}]


def test_a_terminal_gets_a_table(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    table = ask({"rounds": [HOT]}, "--shed", "OverloadShedder")[1]
    assert f"1  move    {FIRST}  b1" in table
    assert "round 1: 1 moves of 100.0 MB/s, 0 splits; most loaded broker / mean 2.000" in table
    assert json.loads(ask({"rounds": [HOT]}, "--shed", "OverloadShedder", "--json")[1])


@pytest.mark.parametrize(
    ("case", "options", "error"),
    [
        ("", (), "/cases.json: is empty; expected a JSON object"),
        ({"rounds": []}, ("--shed", "Best"), "unknown strategy 'Best' (there are: quotaplane, "),
        (
            {"rounds": [], "conf": {"lowerBoundaryShedding": True}},
            ("--shed", "ThresholdShedder"),
            "/cases.json: conf: Pulsar's load balancer has no setting 'lowerBoundaryShedding'; "
            "do you mean lowerB",
        ),
        ({"rounds": [], "options": {"start_over": 1}}, (), "/cases.json: options.start_over: "),
        (hot_with(cpu=[-1, 100]), (), "rounds.0.b1.cpu.0: must be at least 0"),
        (hot_with(cpu=[1]), (), "rounds.0.b1.cpu: "),
        (hot_with(gpu=[1, 2]), (), "rounds.0.b1.gpu: unknown key"),
        (hot_with(bundles={FIRST: [1, 2, 3]}), (), f"rounds.0.b1.bundles.{FIRST}: "),
        (
            {"rounds": [{"b1": HOT["b1"], "b2": HOT["b1"]}]},
            (),
            f"rounds.0: bundle {FIRST}: both b1 and b2 report it",
        ),
        (hot_with(bundles={"acme/a": [1] * 4}), (), "rounds.0: 'acme/a' is not a bundle"),
        (
            hot_with(bundles={FIRST: [1] * 4, "acme/a/0x70000000_0xffffffff": [1] * 4}),
            ("--shed", "AvgShedder"),
            f"rounds.0: bundles {FIRST} and acme/a/0x70000000_0xffffffff overlap",
        ),
        (
            {"rounds": [], "policies": {"isolation": [{}]}},
            (),
            "/cases.json: policies.isolation.0.namespaces: ",
        ),
        ({"cls": "Best", "rounds": []}, (), "/cases.json: cls: unknown strategy 'Best' (there are"),
        (
            {"rounds": [], "place": ["acme"]},
            ("--place", "AvgShedder"),
            "/cases.json: place: 'acme' is not a bundle",
        ),
        (
            {"bundle": "acme"},
            ("--split", "range_equally_divide"),
            "/cases.json: bundle: 'acme' is not a bundle",
        ),
        (
            {"rounds": [HOT]},
            ("--split", "range_equally_divide"),
            "range_equally_divide divides one bundle, so the case needs a bundle and not rounds",
        ),
        (
            {"bundle": FIRST},
            ("--split", "BundleSplitterTask"),
            "BundleSplitterTask looks for bundles in rounds, so the case needs rounds ",
        ),
    ],
)
def test_bad_input_is_named_in_one_line(
    ask: Ask, case: object, options: tuple[str, ...], error: str
) -> None:
    code, out, told = ask(case, *options)
    assert (code, out) == (2, "")
    assert error in told
    assert told.count("\n") == 1


def test_an_unusable_case_does_not_keep_others_from_being_answered(ask: Ask) -> None:
    cases = [{"rounds": [HOT]}, hot_with(cpu=[-1, 100]), "{", {"rounds": [HOT]}]
    lines = [case if isinstance(case, str) else json.dumps(case) for case in cases]
    code, out, told = ask("\n".join(lines))
    first, second, third, last = map(json.loads, out.splitlines())
    assert (code, first) == (2, last)
    assert "line 2: rounds.0.b1.cpu.0: must be at least 0" in second["error"]
    assert "line 3: " in third["error"]
    assert "2 of 4 cases can't be used; the first: /cases.json: line 2: rounds.0" in told


@pytest.mark.parametrize("strategy", ["quotaplane", "OverloadShedder", "AvgShedder"])
def test_a_cluster_of_one_or_none_moves_nothing(ask: Ask, strategy: str) -> None:
    out = ask({"rounds": [{}, {"b1": HOT["b1"]}]}, "--shed", strategy, "--explain")[1]
    first, second = json.loads(out)
    assert not first["moves"]
    if strategy == "quotaplane":
        assert not second["moves"]
        assert {skip["label"] for skip in second["skips"]} == {"NoBrokers"}


def test_a_class_with_its_package_has_the_same_answer(ask: Ask) -> None:
    case = {"cls": "org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder"}
    assert json.loads(ask({**case, "rounds": [HOT, HOT]})[1]) == [[], []]


def test_quotaplane_leaves_bundles_that_were_unloaded_recently(ask: Ask) -> None:
    case = hot_with(bundles=SIX)
    moved, next_one, *_ = sorted(SIX)
    assert json.loads(ask(case)[1]) == [[f"b1>b2 {moved}"]]
    ((move,),) = json.loads(ask({**case, "recent": [moved]})[1])
    assert move == f"b1>b2 {next_one}"


@pytest.mark.parametrize("strange", ["\x1b[2J", "\n", "\u202e"])
def test_strange_names_can_not_disturb_a_terminal(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, strange: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    round_ = {f"b1{strange}": {"cpu": [90, 100], "bundles": {FIRST: [1] * 4, SECOND: [2] * 4}}}
    round_[f"b2{strange}"] = {}
    code, table, _ = ask({"rounds": [round_]}, "--explain")
    assert (code, table.isascii(), strange in table.replace("\n", "")) == (0, True, False)
    placed = ask({"rounds": [round_], "place": [FIRST]}, "--place", "RoundRobinBrokerSelector")[1]
    assert "b2" in placed
    assert placed.isascii()
    assert placed.count("\n") == 4


@pytest.mark.parametrize(
    ("data", "code", "told"),
    [
        (b'\xef\xbb\xbf{"rounds": []}', 0, ""),
        (b'{"rounds": []}\xff', 2, "quotaplane: error: stdin: not UTF-8 (byte 14)\n"),
    ],
)
def test_stdin_is_utf8_whatever_the_locale(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    code: int,
    told: str,
) -> None:
    reader = io.TextIOWrapper(io.BytesIO(data), "ascii", errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", reader)
    assert main(["balance", "-"]) == code
    assert capsys.readouterr().err == told
