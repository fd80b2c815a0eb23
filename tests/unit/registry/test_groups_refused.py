"""Refusals of `quotaplane groups`: in one line, before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.settings import History
from tests.unit.registry.groups_cases import Command


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["g", "--publish-messages-per-s", "-1"], "--publish-messages-per-s: must be a number"),
        (["g", "--publish-bytes-per-s", "nan"], "--publish-bytes-per-s: must be a number"),
        (["g", "--dispatch-bytes-per-s", "1e19"], "--dispatch-bytes-per-s: must be a number"),
        ([], "put takes either GROUP or --file FILE"),
        (["g", "--file", "x.csv"], "put takes either GROUP or --file FILE"),
        (["--file", "x.txt"], "x.txt: must end in .csv or .json"),
        (["--file", "nowhere.csv"], "nowhere.csv: can't be read"),
        (["a\tb"], "group 'a\\tb': has a character that can't be printed"),
        (["a\ud800"], "is no text in utf-8"),
        (["a::"], "group 'a::': has an empty part beside '::'"),
        (["g", "--by", " "], "--by must not be empty"),
        (["g", "--mode", "loud"], "--mode: invalid choice"),
        (["g", "--enforcement-percent", "ten"], "enforcement-percent: must be a number, not 'ten'"),
        (["g", "--weight", "0100"], "not '0100': write a plain decimal number, such as 100 or 0.5"),
        (["g", "--publish-bytes-per-s", "1_000"], "or unlimited, not '1_000': write a plain"),
        (["g", "--priority", "1.5"], "--priority: must be a whole number, not '1.5'"),
        (["g", "--priority", "1234567"], "priority: must be a number from -100 to 100, not 1234"),
        (["g", "--enforcement-percent", "100.0000001"], "from 0 to 100, not 100.0000001"),
        (["g", "--priority", "9007199254740993"], "to 100, not '9007199254740993'"),
        (["g", "--brokers", "nowhere.json"], "nowhere.json: can't be read"),
        (["g", "--brokers", "{"], "--brokers: not JSON"),
        (["g", "--brokers", '{"b": {"weigt": 2}}'], "--brokers: b.weigt: unknown key"),
        (["g", "--brokers", '{"b": {"weight": 0}}'], "--brokers: b.weight: must be at least 1e-09"),
        (["g", "--brokers", '{"b": {"floor": {"x": 1}}}'], "--brokers: b.floor.x: unknown key"),
        (["g", "--brokers", '{"": {}}'], "1 to 512 printable characters"),
        (["--file", "x.csv", "--weight", "1"], "--weight does not go with --file"),
        # throttle quotas
        (["g", "--quota", "10MB"], "--quota: '10MB' is no quota: must be [read|write|both] NUM"),
        (
            ["g", "--quota", "write 1KB/s", "--quota", "write 1M/day"],
            "--quota: 'write 1M/day': publish_bytes is given twice",
        ),
        (
            ["g", "--quota", "write 1KB/s", "--publish-bytes-per-s", "unlimited"],
            "--quota: 'write 1KB/s' is given by --publish-bytes-per-s, too",
        ),
        (["--file", "x.csv", "--quota", "write 1KB/s"], "--quota does not go with --file"),
        (["g", "--throttle", '{"bytes": {}}'], "--throttle: bytes: must be * or one of publish_"),
        (["g", "--throttle", '{"*": {"mode": "shadow"}}'], "*.mode: must be 'hard' or 'soft'"),
        (
            ["g", "--throttle", '{"publish_bytes": {"samples": 7}}', "--quota", "write 1B/min"],
            "publish_bytes.window_s: must be whole milliseconds, not 8.57143 s",
        ),
        (["g", "--user", "a"], "GROUP does not go with --user or --client"),
        (["--user", ""], "--user: must not be empty"),
        (["user=a b"], "group 'user=a b': user: 'a b' must be written a%20b"),
    ],
)
def test_a_wrong_put_writes_nothing(
    groups: Command, history: History, words: list[str], problem: str
) -> None:
    assert problem in groups.refused("put", *words)
    assert not Path(history.path).exists()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("f.csv", "name\na\n", "f.csv: line 1: there is no column group"),
        ("f.csv", "", "f.csv: line 1: there is no column group"),
        ("f.csv", "group,weight,weight\na,5,6\n", "line 1: the column weight occurs 2 times"),
        ("f.csv", "group,\na,\n", "f.csv: line 1: column 2 has no name"),
        ("f.csv", "group,publish_bytes_per_s\na,-0.0\n", "not '-0.0': would be read as zero"),
        ("f.csv", "group,height\na,1\n", "f.csv: line 2: height: unknown key"),
        ("f.csv", "group,publish_bytes_per_s\na\n", "f.csv: line 2: has not as many cells"),
        ("f.csv", "group\na,1\n", "f.csv: line 2: has not as many cells"),
        ("f.csv", "group,publish_bytes_per_s\na,1\nb,-1\n", "line 3: publish_bytes_per_s: must be"),
        ("f.csv", "group,publish_bytes_per_s\n,1\n", "f.csv: line 2: group: must be a name"),
        ("f.csv", "group\na\nb\na\n", "f.csv: line 4: group 'a' is given twice: also /"),
        ("f.csv", 'group\n"a\n', "f.csv: not CSV: "),
        ("f.csv", b"group\n\xff\n", "f.csv: not CSV: "),
        ("f.json", "{}", "f.json: must be a list of groups, not an object"),
        ("f.json", "[1]", "f.json: 0: must be an object, not a number"),
        ("f.json", '[{"group": "a", "publish_bytes_per_s": true}]', "must be a number"),
        # policies
        ("f.csv", "group,mode\na,loud\n", "group 'a': mode: must be one of hard, soft, shadow"),
        ("f.csv", 'group,brokers\na,"{""b"": 1}"\n', "line 2: brokers: b: must be an object"),
        ("f.csv", "group,brokers\na,b\n", "f.csv: line 2: brokers: not JSON"),
        ("f.json", '[{"group": "a", "brokers": "{}"}]', "brokers: must be an object, not a string"),
        # throttle quotas
        ("f.json", '[{"group": "a", "quotas": "1B/s"}]', "f.json: 0: quotas: must be a list"),
        ("f.json", '[{"group": "a", "quotas": [1]}]', "f.json: 0: quotas: must be a list"),
        ("f.json", '[{"group": "client="}]', "group 'client=': client: must not be empty"),
    ],
)
def test_nothing_of_a_wrong_file_is_put(
    groups: Command, tmp_path: Path, name: str, text: str | bytes, problem: str
) -> None:
    groups("put", "there")
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert problem in groups.refused("put", "--file", str(tmp_path / name))
    assert [row["group"] for row in groups("list")] == ["there"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["get"], "get takes GROUP, or --user and --client"),
        (["delete"], "delete takes GROUP, or --user and --client"),
        (["delete", "a", "b", "--user", "c"], "GROUP does not go with --user or --client"),
        (["get", "--user", "zed"], "group 'user=zed' does not exist"),
        (["resolve", "--client", ""], "argument --client: must not be empty"),
        (["resolve", "--user", "a\udcff"], "argument --user: 'a\\udcff' is no text in utf-8"),
    ],
)
def test_other_actions(groups: Command, words: list[str], problem: str) -> None:
    groups("put", "g")
    assert groups.refused(*words).startswith(problem)
