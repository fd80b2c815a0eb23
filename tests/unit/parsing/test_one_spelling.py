"""Options, settings and times have one spelling each; what else could be meant is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from quotabalance.planning.options import read_options
from quotabalance.planning.policies import read_policies
from quotabalance.stock.stock_settings import stock_setting_of_text
from quotaplane.cli.main import main
from quotaplane.console.answers import json_of
from quotaplane.console.text_table import columns_of, render
from quotaplane.errors import ConfigError, InputError
from quotaplane.groups.quota_text import parse_quota
from quotaplane.parsing.point_in_time import check_order, parse_since, parse_until
from quotaplane.parsing.strict_json import parse_json
from quotaplane.parsing.strict_yaml import read_value
from quotaplane.query.audit import parse_audit
from quotaplane.registry.group_files import read_group_files
from quotaplane.settings import load_settings
from tests.unit.streams.shard_cases import job_settings

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
Refused = Callable[..., str]


@pytest.mark.parametrize(
    "words",
    [
        ["groups", "put", "g", "--weight", "2", "--weight", "3"],
        ["groups", "put", "g", "--by", "a", "--by", "a"],
        ["groups", "apply", "-f", "a.yaml", "--file", "b.yaml"],
        ["groups", "list", "--history", "elsewhere"],
        ["audit", "exceeded", "--tolerance", "0.1", "--tolerance", "0.2"],
        ["replay", "--from", "2h", "--from", "1h"],
        ["replay", "--from", "2h", "--law", "max_min", "--set", "law.name=pip82"],
        ["balance", "replay", "--since", "2h", "--since", "1h"],
    ],
)
def test_an_option_is_given_once(refused: Refused, words: list[str]) -> None:
    assert "is given twice" in refused(*words)


@pytest.mark.parametrize(
    "text", ["1_0", "٣", "３", "5.0x", "0x5", "007", "", "-0", "9" * 20, "nan"]
)
@pytest.mark.parametrize(
    "words",
    [
        ["limits", "--top"],
        ["status", "--top"],
        ["groups", "restore", "--from-history", "--version"],
        ["maintain", "--keep-days"],
        ["audit", "exceeded", "--tolerance"],
    ],
)
def test_a_number_has_one_spelling(refused: Refused, words: list[str], text: str) -> None:
    *first, option = words
    if text == "9" * 20 and option in ("--keep-days", "--tolerance"):
        return
    assert f"argument {option}: must be a " in refused(*first, f"{option}={text}")


def test_a_seed_has_one_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "none.json", "--seed=1_0"]) == 2
    assert "argument --seed: must be a " in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        *("2026-03-01+05:00", "2026-03-01-05:00", "2026-03-01Z", "20260301", "2026-W09-7"),
        *("2026-03-01x12:00", "2026-03-01T12", "2026-03-01T12:00+0530", "2026-03-01T12:00:00,5"),
        *("2026-03-01T12:00:00.5", "2026-03-01T12:00:00+05:30:15", "٣h", "３h", "", " 2h"),
    ],
)
def test_a_time_has_one_spelling(text: str) -> None:
    with pytest.raises(InputError, match="is neither a time"):
        parse_since(text, NOON)


@pytest.mark.parametrize(
    ("text", "hour", "minute"),
    [
        ("2026-03-01", 0, 0),
        ("2026-03-01 11:30", 11, 30),
        ("2026-03-01T11:30:00.123+05:30", 6, 0),
        ("2026-03-01T11:30:00.123456Z", 11, 30),
    ],
)
def test_times_that_are_read(text: str, hour: int, minute: int) -> None:
    found = parse_since(text, NOON)
    assert (found.day, found.hour, found.minute) == (1, hour, minute)


def test_nothing_has_happened_in_the_future() -> None:
    assert parse_since("2026-03-01T12:04:00Z", NOON) == NOON + timedelta(minutes=4)
    said = r"^--at: '2026-03-01T14:00' is in the future; it is 2026-03-01T12:00:00Z \(UTC\)$"
    with pytest.raises(InputError, match=said):
        parse_since("2026-03-01T14:00", NOON, "--at")
    assert parse_until("2026-04-01", NOON).month == 4


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["groups", "apply", "--dry-run", "-f", ""], "-f/--file"),
        (["groups", "put", "--file", ""], "--file"),
        (["groups", "delete", "a", ""], "GROUP"),
        (["groups", "history", ""], "GROUP"),
        (["audit", "exceeded", "--since="], "--since"),
        (["why", "g", "--at", ""], "--at"),
        (["replay", "--from", "1h", "--to", ""], "--to"),
        (["limits", "--broker", ""], "--broker"),
    ],
)
def test_an_empty_value_is_none(refused: Refused, words: list[str], name: str) -> None:
    assert f"argument {name}: must not be empty" in refused(*words)


@pytest.mark.parametrize("option", ["--history", "--conf"])
def test_an_empty_place_is_none(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert main(["groups", "list", option, ""]) == 2
    assert f"argument {option}: must not be empty" in capsys.readouterr().err


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
def test_yaml_has_the_line_breaks_of_all_programs(character: str) -> None:
    with pytest.raises(InputError, match=r"^f: line 2: has \\(x85|u202[89]), a line break only"):
        read_value(f"a: 1\nb: c{character}  d", "f")
    assert read_value('a: "b\\u2028c"', "f") == {"a": "b\u2028c"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("shards", value) for value in ("1_0", "0100", True, "2.5", "٣")),
        *(("limits.lease_s", value) for value in (True, "1_000", "inf", "1e-999", "120s")),
        *(("security.allow_cleartext_secrets", v) for v in ("yes", "on", 1, "off", 0.0)),
        *(("metrics.job_port", value) for value in (True, "9_0")),
    ],
)
def test_a_setting_has_one_spelling(key: str, value: object) -> None:
    section, _, name = key.rpartition(".")
    given = {section: {name: value}} if section else {name: value}
    with pytest.raises(ConfigError, match=f"^settings: {key}: must be (a|true)"):
        job_settings(**given)


def test_settings_of_the_environment_are_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "transport: {kind: delta, path: topics}\nhistory: {path: history}\n"
        "checkpoint: checkpoint\nshards: ${SHARDS}\nlimits: {lease_s: '${LEASE}'}\n"
        "security: {allow_unprotected_spark: '${YES}'}\n"
    )
    for name, text in (("SHARDS", "3"), ("LEASE", "1e3"), ("YES", "true")):
        monkeypatch.setenv(name, text)
    settings = load_settings(file)
    assert (settings.shards, settings.limits.lease_s) == (3, 1000.0)
    assert settings.security.allow_unprotected_spark


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${NOTHING}/history", "the environment variable NOTHING is empty"),
        ("${ABSENT}", "the environment variable ABSENT is not set"),
        ("${ABSENT:-data}", "after ${ comes the name"),
        ("${ ABSENT }", "after ${ comes the name"),
        ("${}", "after ${ comes the name"),
    ],
)
def test_a_variable_has_a_name_and_a_value(
    monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setenv("NOTHING", "")
    monkeypatch.delenv("ABSENT", raising=False)
    with pytest.raises(ConfigError) as raised:
        job_settings(history={"path": text})
    assert str(raised.value).startswith(f"settings: history.path: {says}")


@pytest.mark.parametrize(
    ("text", "says"),
    [("write 10Mb/min", "may mean bits"), ("10 Gb/s", "bits"), ("0010 reqs/s", "is no quota")],
)
def test_a_quota_that_could_be_another(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_quota(text)


@pytest.mark.parametrize("text", ["1.2.3", ".", "٣", "01", "-1", "1_0", "5%"])
def test_a_default_of_an_audit_is_a_number(text: str) -> None:
    with pytest.raises(InputError, match=r"^parameter rate: must be a number of 0 or more"):
        parse_audit("own", f"-- Who?\n-- :rate = {text}  from\nSELECT :rate")


@pytest.mark.parametrize("text", ["1e-999", "-0", "-0.0", "-1e-999"])
def test_a_number_that_becomes_zero_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^f: {text}: would be read as zero: write 0$"):
        parse_json(f'{{"a": {text}}}', "f")


@pytest.mark.parametrize("value", [True, "1_0", "5e-1x", "1e-999"])
def test_what_the_balancer_reads_has_one_spelling(value: object) -> None:
    rule = {"namespaces": ["a"], "primary": ["b"], "min_primary": value}
    with pytest.raises(InputError, match=r"^start_above: "):
        read_options({"start_above": value})
    with pytest.raises(InputError, match=r"^capacity_weights\.b1: "):
        read_policies({"capacity_weights": {"b1": value}})
    with pytest.raises(InputError, match=r"^isolation\.0\.min_primary: "):
        read_policies({"isolation": [rule]})
    assert read_options({"start_above": "0.5"}).start_above == 0.5


@pytest.mark.parametrize("text", ["8_5", "٨٥", "0100", "85.0"])
def test_a_setting_of_pulsar_has_one_spelling(text: str) -> None:
    name = "loadBalancerBrokerOverloadedThresholdPercentage"
    with pytest.raises(InputError, match="whole number"):
        stock_setting_of_text(name, text)
    assert stock_setting_of_text(name, "85") == 85


@pytest.mark.parametrize("option", ["--by", "--why"])
@pytest.mark.parametrize("text", ["a\nb", "a\x1b[2Jb", "a\u202eb"])
def test_who_and_why_can_be_printed(refused: Refused, option: str, text: str) -> None:
    assert f"{option} must be a printable text" in refused("groups", "put", "g", option, text)


def test_a_login_name_can_be_printed(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "a\nb")
    assert "the login name 'a\\nb' can't be printed" in refused("groups", "put", "g")


@pytest.mark.parametrize(
    "words",
    [["groups", "get", "a\udcff"], ["groups", "delete", "b", "a\udcff"], ["audit", "\udcff"]],
)
def test_what_the_locale_has_no_text_for(refused: Refused, words: list[str]) -> None:
    for place in (None, "h\udcff"):
        assert "udcff' is no text in utf-8" in refused(*words, place=place)


def test_a_table_is_aligned_in_columns_of_a_terminal() -> None:
    rows = [("日本", 1), ("cafe\u0301", 2), ("abc", 3)]
    lines = render(("group", "n"), rows, "table").splitlines()[:-1]
    assert {columns_of(line) for line in lines} == {len("group  n")}


def test_a_terminal_obeys_nothing_in_json() -> None:
    row = {"name": "a\x9b31mb\u202ec\x7f", "at": "日本"}
    text = json_of(row)
    assert text == '{"name": "a\\u009b31mb\\u202ec\\u007f", "at": "日本"}'
    assert parse_json(text, "f") == row


def test_no_file_of_a_folder_is_overlooked(tmp_path: Path) -> None:
    """With ``--prune`` its groups would be deleted."""
    (tmp_path / "a.yaml").write_text("group: a")
    (tmp_path / "b.YML").write_text("group: b")
    assert read_group_files(str(tmp_path)).names == ["a", "b"]
    (tmp_path / "c.yaml").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match=r"c\.yaml: can't be read"):
        read_group_files(str(tmp_path))


OUT_OF_RANGE = ["999999d", "9999-12-31", "9999-12-31T23:59:59-12:00", "0001-01-01", "1969-12-31"]
COMMANDS = [
    (["audit", "changes"], "--since", "--until"),
    (["balance", "replay"], "--since", "--until"),
    (["replay"], "--from", "--to"),
    (["groups", "restore", "--from-history"], "--at", None),
    (["why", "g", "b"], "--at", None),
]


def test_times_at_the_ends_of_the_range() -> None:
    assert parse_since("1970-01-01", NOON).year == 1970
    assert parse_until("2200-01-01", NOON).year == 2200
    assert parse_since("20000d", NOON).year == 1971


def test_a_period_does_not_end_before_it_begins() -> None:
    later = NOON.replace(hour=13)
    for since, until in ((NOON, later), (NOON, NOON), (None, NOON), (later, None), (None, None)):
        check_order(since, until)
    with pytest.raises(InputError, match=r"^--until: 2026-03-01T12.* is before --since, 2026"):
        check_order(later, NOON)


@pytest.mark.parametrize("text", OUT_OF_RANGE)
@pytest.mark.parametrize(("words", "since", "until"), COMMANDS)
def test_a_command_refuses_times_out_of_range(
    refused: Refused, words: list[str], since: str, until: str | None, text: str
) -> None:
    said = f"{text!r} must be between 1970 and 2200\n"
    assert refused(*words, since, text) == f"quotaplane: error: {since}: {said}"
    if until is not None:
        found = refused(*words, since, "1h", until, text)
        assert found == f"quotaplane: error: {until}: {said}"


@pytest.mark.parametrize(("words", "since", "until"), COMMANDS[:3])
def test_a_command_refuses_times_exchanged(
    refused: Refused, words: list[str], since: str, until: str
) -> None:
    assert until in refused(*words, since, "1h", until, "2h")
