"""Times out of range, and periods that end before they begin, are refused in one line."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from quotaplane.cli.main import main
from quotaplane.errors import InputError
from quotaplane.parsing.point_in_time import check_order, parse_since, parse_until
from quotaplane.settings import History
from tests.histories import make_history

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
OUT_OF_RANGE = ["999999d", "9999-12-31", "9999-12-31T23:59:59-12:00", "0001-01-01", "1969-12-31"]
COMMANDS = [
    (["audit", "changes"], "--since", "--until"),
    (["balance", "replay"], "--since", "--until"),
    (["replay"], "--from", "--to"),
    (["groups", "restore", "--from-history"], "--at", None),
    (["why", "g", "b"], "--at", None),
]


@pytest.mark.parametrize("text", OUT_OF_RANGE)
def test_a_time_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=f"^--since: '{text}' must be between 1970 and 2200$"):
        parse_since(text, NOON)


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
    history: History,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    since: str,
    until: str | None,
    text: str,
) -> None:
    make_history(history)
    tries = [(since, [since, text])]
    if until is not None:
        tries.append((until, [since, "1h", until, text]))
    for option, times in tries:
        assert main([*words, *times, "--history", history.path]) == 2
        err = capsys.readouterr().err
        assert err == f"quotaplane: error: {option}: {text!r} must be between 1970 and 2200\n"


@pytest.mark.parametrize(("words", "since", "until"), COMMANDS[:3])
def test_a_command_refuses_times_exchanged(
    history: History,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    since: str,
    until: str,
) -> None:
    make_history(history)
    assert main([*words, since, "1h", until, "2h", "--history", history.path]) == 2
    err = capsys.readouterr().err
    assert until in err
    assert err.count("\n") == 1
