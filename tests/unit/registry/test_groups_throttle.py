"""Throttle quotas through `quotaplane groups`: as ZooKeeper writes them, for Kafka's scopes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quotaplane.registry import table as storage
from quotaplane.registry.table import get_group, put_groups
from quotaplane.settings import History
from tests.unit.registry.groups_cases import Command, quota, version, warned

MB = 2.0**20


def test_quotas_are_given_as_texts(groups: Command) -> None:
    made = groups("put", "g", "--quota", "write 12MB/min", "--quota", "read 1000 reqs/s")
    assert made["publish_bytes_per_s"] == MB / 5
    assert made["dispatch_messages_per_s"] == 1000.0
    assert made["publish_messages_per_s"] is None
    assert made["throttle"] == {"publish_bytes": {"window_s": 60.0}}
    assert groups("get", "g") == made
    again = groups("put", "g", "--quota", "write 12MB/h")
    assert again["publish_bytes_per_s"] == 12 * MB / 3600
    assert again["throttle"] == {"publish_bytes": {"window_s": 3600.0}}
    assert again["dispatch_messages_per_s"] == 1000.0


@pytest.mark.parametrize(
    "terms",
    [
        {"*": {"samples": 100}},
        {"*": {"samples": 11}},
        {"controller_mutations": {"samples": 11}},
        {"controller_mutations": {"law": "sliding_window", "window_s": 60.0}},
    ],
)
def test_a_quota_per_second_sets_no_windows(groups: Command, terms: dict[str, Any]) -> None:
    made = groups("put", "g", "--quota", "5 mutations/s", "--throttle", json.dumps(terms))
    assert (made["controller_mutations_per_s"], made["throttle"]) == (5.0, terms)
    if "*" in terms:
        again = groups("put", "g", "--quota", "6 mutations/s")
        assert (again["controller_mutations_per_s"], again["throttle"]) == (6.0, terms)


def test_windows_of_before_that_a_quota_per_second_keeps_are_a_warning(
    groups: Command, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    minute = ["--quota", "write 12MB/min", "--quota", "read 1KB/min"]
    second = ["--quota", "write 12MB/s"]
    made = groups("put", "g", *minute)
    assert warned(history, capsys, "g", *second) == [
        "group 'g': publish_bytes: is measured over 1 x 60 s as before: a quota per second sets "
        "no windows"
    ]
    assert groups("get", "g")["throttle"] == made["throttle"]
    # What is said of the windows in the same breath, of a second, or by the law is as it should be.
    terms = {"publish_bytes": {"window_s": 60.0}}
    assert warned(history, capsys, "g", *second, "--throttle", json.dumps(terms)) == []
    for one in (
        {"law": "windowed_rate"},
        {"samples": 10, "window_s": 0.1},
        {"law": "sliding_window", "samples": 5, "window_s": 0.2},
    ):
        groups("put", "g", "--throttle", json.dumps({"publish_bytes": one}))
        assert warned(history, capsys, "g", *second) == []


def test_a_timeframe_keeps_law_and_mode(groups: Command) -> None:
    terms = {"*": {"law": "sliding_window"}, "publish_bytes": {"mode": "hard", "window_s": 5.0}}
    assert groups("put", "g", "--throttle", json.dumps(terms))["throttle"] == terms
    words = ["--quota", "write 1KB/min", "--quota", "write 10 reqs/hour", "--quota", "read 9B/s"]
    assert groups("put", "g", *words)["throttle"] == {
        "*": {"law": "sliding_window"},
        "publish_bytes": {"mode": "hard", "window_s": 60.0},
        "publish_messages": {"law": "sliding_window", "window_s": 360.0},
    }


@pytest.mark.parametrize(
    ("throttle", "window"),
    [
        ({"publish_bytes": {"window_s": 5}}, {"publish_bytes": {"window_s": 5.0}}),
        ({"*": {"window_s": 5}}, {"*": {"window_s": 5.0}}),
        ({"publish_bytes": {"window_s": 1}}, {}),
        ({"publish_bytes": {"samples": 6}}, {"publish_bytes": {"samples": 6, "window_s": 10.0}}),
        ({"*": {"mode": "hard"}, "publish_bytes": {}}, {"publish_bytes": {"window_s": 60.0}}),
    ],
)
def test_windows_given_go_before_the_timeframe(
    groups: Command, throttle: dict[str, Any], window: dict[str, Any]
) -> None:
    words = ["--quota", "write 1KB/min", "--throttle", json.dumps(throttle)]
    expected = {**({"*": throttle["*"]} if "mode" in throttle.get("*", {}) else {}), **window}
    assert groups("put", "g", *words)["throttle"] == expected


def test_the_same_again_is_no_change(groups: Command, history: History) -> None:
    words = ["--quota", "write 1KB/min", "--throttle", '{"*": {"mode": "hard"}}']
    made = groups("put", "g", *words)
    assert groups("put", "g", *words) == made
    assert groups("put", "g", "--quota", "write 1024 bytes/minute") == made
    assert version(history) == 1


def test_terms_may_come_from_a_file_and_be_taken_away(groups: Command, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"*": {"mode": "hard"}}', "utf-8")
    assert groups("put", "g", "--throttle", str(tmp_path / "t.json"))["throttle"] == {
        "*": {"mode": "hard"}
    }
    assert groups("put", "g", "--throttle", "{}")["throttle"] == {}
    first, second = groups("history", "g")
    assert first["to"] == second["from"]
    assert (second["from"]["throttle"], second["to"]["throttle"]) == ({"*": {"mode": "hard"}}, {})


def test_scopes_are_groups_by_user_and_client(groups: Command) -> None:
    for words, group in [
        (["--user", "alice"], "user=alice"),
        (["--client", "<default>"], "client=<default>"),
        (["--user", "CN=bob", "--client", "app 1"], "user=CN%3Dbob,client=app%201"),
    ]:
        made = groups("put", *words, "--publish-bytes-per-s", "5")
        assert made["group"] == group
        assert groups("get", *words) == groups("get", group) == made
        assert groups("delete", *words) == {"deleted": [group]}
    assert groups("list") == []


def test_resolve_tells_what_applies_why_and_who_shares_it(groups: Command) -> None:
    hard = ["--throttle", '{"*": {"mode": "hard"}}']
    groups("put", "tenant/ns", "--quota", "write 9B/s")
    groups("put", "--user", "alice", "--quota", "write 1KB/min")
    groups("put", "--user", "<default>", "--quota", "write 1B/s", "--quota", "read 2B/s", *hard)
    groups("put", "--client", "app", "--quota", "read 3 reqs/s", "--mode", "shadow")
    bucket = {"law": "token_bucket", "mode": "soft", "window_s": 1.0, "samples": 1}
    default = {
        "dimension": "publish_bytes",
        "rate_per_s": 1.0,
        "group": "user=<default>",
        "mode": "hard",
        "terms": {**bucket, "mode": "hard"},
        "shared_by": {"user": "bob"},
    }
    read = {**default, "dimension": "dispatch_bytes", "rate_per_s": 2.0}
    assert groups("resolve", "--user", "bob") == [default, read]
    assert groups("resolve", "--user", "alice", "--client", "app") == [
        {
            **default,
            "rate_per_s": 1024 / 60,
            "group": "user=alice",
            "terms": {**bucket, "window_s": 60.0},
            "shared_by": {"user": "alice"},
        },
        {
            "dimension": "dispatch_messages",
            "rate_per_s": 3.0,
            "group": "client=app",
            "mode": "shadow",
            "terms": bucket,
            "shared_by": {"client": "app"},
        },
        {**read, "shared_by": {"user": "alice"}},
    ]
    # A shadow is only watched, and hides the less specific scopes all the same.
    groups("put", "--user", "alice", "--mode", "shadow")
    of_alice = groups("resolve", "--user", "alice")
    assert [(row["group"], row["mode"]) for row in of_alice] == [
        ("user=alice", "shadow"),
        ("user=<default>", "hard"),
    ]
    assert groups("resolve", "--client", "other") == []


def test_resolve_takes_names_as_requests_have_them(groups: Command) -> None:
    groups("put", "--user", "<default>", "--quota", "write 1B/s")
    literally = ["resolve", "--user", "<default>"]
    assert [row["group"] for row in groups(*literally)] == ["user=<default>"]
    groups("put", "user=%3Cdefault%3E", "--quota", "write 2B/s")
    (row,) = groups(*literally)
    assert (row["group"], row["shared_by"]) == ("user=%3Cdefault%3E", {"user": "<default>"})


def test_a_timeframe_goes_into_the_terms_that_somebody_else_just_put(history: History) -> None:
    """A change that came in between is not lost: the put is made again from what it left."""
    put_groups(history, ["g"], quota(), "ann")
    real, turns = storage.rows_after, []

    def overtaken(*args: Any) -> Any:
        answer = real(*args)
        turns.append(args[2])
        if turns == ["bob"]:
            terms = pa.table({"throttle": ['{"*": {"mode": "hard"}}']})
            put_groups(history, ["g"], quota(), "ann", policy=terms)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "rows_after", overtaken)
        put_groups(history, ["g"], quota(9.0), "bob", timeframe_s=quota(60.0), sleep=turns.append)
    assert json.loads(get_group(history, "g")["throttle"]) == {
        "*": {"mode": "hard"},
        "publish_messages": {"mode": "hard", "window_s": 60.0},
    }
