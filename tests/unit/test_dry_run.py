"""What a dry run is told by files and options: no JVM."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from quotaplane.console.option_parser import OptionParser
from quotaplane.errors import ConfigError, InputError
from quotaplane.settings import parse_settings
from quotaplane.streams.throttle.dry_run import add_options, definitions_of, run_dry
from quotaplane.streams.throttle.job import messages
from quotaplane.throttle.bank import LAWS
from quotaplane.throttle.entities import begin, quotas_of
from quotaplane.throttle.types import ThrottleLaw

ROOT = Path(__file__).parents[2]


def test_a_file_says_what_groups_put_would_make_of_it(tmp_path: Path) -> None:
    groups = [
        {"group": "a", "quotas": ["write 60 reqs/min"], "throttle": {"*": {"mode": "hard"}}},
        {"group": "b", "publish_messages_per_s": 5, "dispatch_bytes_per_s": "unlimited"},
    ]
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps(groups), "utf-8")
    told = begin(definitions_of(str(file))).definitions
    law, quotas = quotas_of(told, pa.array(["a", "b", "c"]), pa.array([0, 0, 0]).to_numpy())
    assert law.tolist() == [LAWS.index(ThrottleLaw.TOKEN_BUCKET)] * 3
    assert quotas.rate_per_s.tolist() == [1.0, 5.0, float("inf")]
    assert quotas.window_ms[:2].tolist() == [60_000, 1000]
    assert quotas.hard[:2].tolist() == [True, False]
    assert told["dispatch_bytes_per_s"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ({"group": "a::"}, "group 'a::': has an empty part"),
        ({"group": "a", "weight": -1}, "group 'a': weight: must be"),
        ({"group": "a", "publish_messages_per_s": -1}, "publish_messages_per_s: must be a number"),
    ],
)
def test_what_groups_put_refuses_is_refused(
    tmp_path: Path, group: dict[str, object], problem: str
) -> None:
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps([group]), "utf-8")
    with pytest.raises(InputError, match=problem):
        definitions_of(str(file))


def test_a_decision_is_told_as_json_by_entity() -> None:
    row = {"entity": 'a"b', "requested_at_ms": 5, "admitted": True, "balance": None}
    [message] = messages(pa.table({name: [value] for name, value in row.items()}))
    assert message.key == 'a"b'
    assert json.loads(message.value) == {
        "entity": 'a"b',
        "at_ms": 5,
        "admitted": True,
        "balance": None,
    }


@pytest.mark.parametrize(
    ("throttle", "problem"),
    [
        ({"events_topic": "decisions"}, "throttle.decisions_topic: the topic 'decisions' is "),
        ({"events_topic": "reports"}, "throttle.events_topic: the topic 'reports' is "),
        ({"decisions_topic": "limits_topic"}, "throttle.decisions_topic: the topic 'limits_topic'"),
        ({"events_topic": ".."}, "throttle.events_topic: '..' can't be the name of a topic"),
        ({"decisions_topic": "."}, "throttle.decisions_topic: '.' can't be the name of a topic"),
        ({"max_clock_skew_s": 1e300}, "throttle.max_clock_skew_s: "),
    ],
)
def test_topics_that_are_taken_are_refused(throttle: dict[str, object], problem: str) -> None:
    transport = {"kind": "delta", "path": "t"}
    rest = {"transport": transport, "history": {"path": "h"}, "checkpoint": "c"}
    with pytest.raises(ConfigError, match=re.escape(problem)):
        parse_settings({**rest, "throttle": throttle})


def test_topics_of_kafka_are_told_apart_too() -> None:
    kafka = {"kind": "kafka", "bootstrap_servers": "k", "report_topics": ["r"], "limits_topic": "l"}
    rest = {"transport": kafka, "history": {"path": "h"}, "checkpoint": "c"}
    for key, name in (("events_topic", "r"), ("decisions_topic", "l")):
        taken = f"throttle.{key}: the topic '{name}' is already used"
        with pytest.raises(ConfigError, match=taken):
            parse_settings({**rest, "throttle": {key: name}})
    parse_settings({**rest, "throttle": {"events_topic": "reports"}})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--out there", "--quotas and --out go with --events"),
        ("--quotas q.csv", "--quotas and --out go with --events"),
        ("--events e --quotas nowhere.csv", "nowhere.csv: can't be read"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(options: str, problem: str) -> None:
    command = [sys.executable, "jobs/run_throttle.py", "--conf", "conf/local.yaml"]
    done = subprocess.run([*command, *options.split()], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert problem in done.stderr


def test_without_a_history_the_quotas_must_be_given(tmp_path: Path) -> None:
    transport = {"kind": "delta", "path": str(tmp_path / "topics")}
    where = {"history": {"path": str(tmp_path / "nowhere")}, "checkpoint": "c"}
    parser = OptionParser()
    add_options(parser)
    args = parser.parse_args(["--events", "recorded"])
    with pytest.raises(ConfigError, match=r"there is no history at .*/nowhere .*--quotas"):
        run_dry(parse_settings({"transport": transport, **where}), args, pytest.fail)
