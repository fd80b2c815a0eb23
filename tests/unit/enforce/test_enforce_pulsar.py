"""The enforcer's loop against a REST API that fails, is slow, and changes under way."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.cli.main import main
from quotaplane.errors import TransportError
from quotaplane.pulsar_admin.rest import RefusedError
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from tests.unit.enforce.enforce_cluster import (
    ALL_OF_IT,
    NAMESPACE,
    FakePulsar,
    Link,
    enforcing,
    full,
    ours_of,
    settings_for,
    with_a_busy_topic,
)
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.virtual_loop import run_virtually


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    with with_a_busy_topic() as fake:
        yield fake


HELD = {"a": 300, "b": 10, "c": 10}
"""A limit of 300: all of it to the busy one, and to idle ones their floors."""


@pytest.fixture
def link() -> Link:
    return Link()


def test_a_brokers_limit_becomes_rates_of_its_topics(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    link.tell("pulsar://b0", 300.0, dispatch=30.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: len(cluster.rates) == 6)
            # Busy without any rate: it has the whole limit, the others have floors.
            assert cluster.published() == {"a": 300, "b": 10, "c": 10}
            assert cluster.rates[full("b"), "dispatchRate"] == {
                "dispatchThrottlingRateInMsg": 10,
                "dispatchThrottlingRateInByte": -2,
                "relativeToPublishRate": False,
                "ratePeriodInSecond": 1,
            }
            await running.ticks(10)
            count = len(cluster.writes())
            assert len(cluster.topic_writes()) == 6
            status = running.enforcer.status()
            assert (status.brokers, status.groups) == (1, 1)
            assert (status.topics, status.limited) == (3, 3)
            assert (status.written, status.errors, status.waiting) == (6, 0, 0)

        # Started again, it finds everything as it should be.
        link.tell("pulsar://b0", 300.0, dispatch=30.0)
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: running.enforcer.status().limited == 3)
            await running.ticks(10)
            assert len(cluster.writes()) == count
            assert not running.lines

    run_virtually(scene())


def test_the_status_says_what_is_missing_before_rates_are_written(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            assert running.enforcer.status().waits_for == "cluster"
            await running.until(lambda: running.enforcer.status().waits_for == "limits")
            assert not cluster.writes()
            link.tell("pulsar://b0", 300.0)
            await running.until(lambda: running.enforcer.status().waits_for is None)
            await running.until(lambda: len(cluster.rates) == 3)

    run_virtually(scene())


def test_nothing_is_touched_that_nobody_told_anything_about(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    cluster.namespaces["acme/other"] = None
    cluster.topics.add(full("x", "acme/other"))
    cluster.topics.add(full("__change_events"))
    link.tell("pulsar://elsewhere", 5.0)
    link.tell("pulsar://b0", 5.0, group="another")

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: running.enforcer.status().topics == 3)
            await running.ticks(10)

    run_virtually(scene())
    assert not cluster.writes()
    assert not [path for path in cluster.paths() if path.endswith("Rate")]


def test_one_topic_that_fails_does_not_stop_the_others(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    failing = f"POST persistent/{NAMESPACE}/b/publishRate"
    cluster.answers[failing] = Answer(500, {"reason": "Broker is\nupset"})
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            # Not all of them may be raised while nobody knows what b has.
            await running.until(lambda: set(cluster.published()) == {"a", "c"})
            await running.until(lambda: running.enforcer.status().errors >= 2)
            assert len(running.lines) == 1
            assert running.lines[0].startswith(f"writing rates: {full('b')} (publish): Pulsar's")
            assert running.lines[0].endswith("500 Broker is upset; retrying")
            del cluster.answers[failing]
            await running.until(lambda: cluster.published() == HELD)
            await running.until(lambda: len(running.lines) == 2)
            errors = running.enforcer.status().errors
            assert running.lines[1].startswith("writing rates: over after ")
            assert running.lines[1].endswith(f" ({errors} times)")

    run_virtually(scene())


def test_a_topic_deleted_between_reading_and_writing_is_dropped_quietly(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    cluster.deleted_unseen.add(full("b"))
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: set(cluster.published()) == {"a", "c"})
            # What b would have had is less than is worth a write.
            assert 310 <= sum(cluster.published().values()) <= 315
            await running.until(lambda: running.enforcer.status().topics == 2)
            assert running.enforcer.status().vanished >= 1
            assert running.enforcer.status().errors == 0
            cluster.deleted_unseen.clear()
            await running.until(lambda: set(cluster.published()) == {"a", "b", "c"})
            await running.until(lambda: sum(cluster.published().values()) <= 325)
            assert not running.lines

    run_virtually(scene())


def test_a_slow_answer_holds_up_nobody_else(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    slow = f"persistent/{NAMESPACE}/a/publishRate"
    cluster.answers[f"POST {slow}"] = Answer(204, delay_s=5.0)
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: set(cluster.published()) == {"b", "c"}, within_s=4.0)
            link.tell("pulsar://b0", 30.0)
            await running.until(lambda: cluster.published() == {"b": 1, "c": 1}, within_s=4.0)
            # And it is asked once, however many ticks go by.
            assert cluster.paths("POST").count(slow) == 1

    run_virtually(scene())


def test_the_wrong_token_is_refused_at_the_start(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    said = Answer(401, {"reason": "Authentication required"})
    cluster.answers["GET brokers/configuration/runtime"] = said

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link):
            pass

    with pytest.raises(RefusedError, match="401 Authentication required; check"):
        run_virtually(scene())


def test_parts_that_fail_are_told_once_and_the_rest_goes_on(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: len(cluster.rates) == 3)
            link.broken = TransportError("limits can't be read")
            failing = Answer(503, {"reason": "starting"})
            cluster.answers["GET brokers"] = cluster.answers["GET tenants"] = failing
            link_line = "enforcer: limits: limits can't be read; retrying"
            await running.until(lambda: len(running.lines) == 3)
            assert link_line in running.lines
            await running.until(lambda: running.enforcer.status().errors > 10)
            assert len(running.lines) == 3
            assert running.enforcer.status().topics == 3  # what was known still is
            link.broken = None
            del cluster.answers["GET brokers"], cluster.answers["GET tenants"]
            await running.until(lambda: len(running.lines) == 6)
            assert all("over after" in line for line in running.lines[3:])
            link.put("pulsar://b0", b"no limits")
            link.tell("pulsar://b0", 60.0)
            await running.until(lambda: cluster.published() == {"a": 60, "b": 2, "c": 2})
            assert "not a LimitsUpdate" in running.lines[6]

    run_virtually(scene())


def test_a_lease_that_ran_out_leaves_the_safe_limit(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    link.tell("pulsar://b0", 300.0, safe=60.0, lease_ms=30_000)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: cluster.published() == HELD)
            running.now_ms += 31_000
            await running.until(lambda: cluster.published() == {"a": 60, "b": 2, "c": 2})

    run_virtually(scene())


def test_topics_that_come_go_and_leave_the_group(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: cluster.published() == HELD)
            cluster.add("new")
            await running.until(lambda: "new" in cluster.published())
            await running.until(lambda: sum(cluster.published().values()) <= 325)
            cluster.topics.discard(full("new"))
            await running.until(lambda: running.enforcer.status().topics == 3)
            cluster.namespaces[NAMESPACE] = None  # detached
            await running.until(lambda: set(cluster.published()) == {"new"})
            assert not running.lines
            # b0's limit was for a group that has nothing any more; attached again, it holds again.
            cluster.namespaces[NAMESPACE] = "g"
            await running.until(lambda: {"a", "b", "c"} <= set(cluster.published()))

    run_virtually(scene())


def test_topics_follow_their_broker(link: Link, tmp_path: Path) -> None:
    with FakePulsar(brokers=2) as cluster:
        cluster.add("a", "b", used=500.0)
        cluster.owned["127.0.0.1:1"] = [f"{NAMESPACE}/0x80000000_0xffffffff"]
        cluster.owned["127.0.0.1:0"] = [f"{NAMESPACE}/0x00000000_0x80000000"]
        cluster.add(*(f"t{i}" for i in range(6)), used=500.0)
        link.tell("pulsar://b0", 1000.0)
        link.tell("pulsar://b1", 100.0)

        async def scene() -> None:
            async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
                await running.until(lambda: len(cluster.published()) == 8)
                await running.until(lambda: sum(cluster.published().values()) == 1100)
                # b1 dies, and b0 has everything.
                del cluster.owned["127.0.0.1:1"]
                await running.until(lambda: running.enforcer.status().brokers == 1)
                await running.ticks()
                assert sum(cluster.published().values()) == 1100  # nobody's, and not let loose
                cluster.owned["127.0.0.1:0"] = [f"{NAMESPACE}/{ALL_OF_IT}"]
                await running.until(lambda: sum(cluster.published().values()) == 1000)
                await running.until(lambda: min(cluster.published().values()) == 125)

        run_virtually(scene())


def test_a_partitioned_topic_has_one_rate(link: Link, tmp_path: Path) -> None:
    with FakePulsar() as cluster:
        cluster.add("p-partition-0", used=500.0)
        cluster.add("p-partition-1", "p-partition-2", "lonely-partition-7")
        cluster.partitioned.add(full("p"))
        link.tell("pulsar://b0", 300.0)

        async def scene() -> None:
            async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
                await running.until(lambda: cluster.published() == {"p": 300})
                assert running.enforcer.status().topics == 1

        run_virtually(scene())


def test_what_somebody_else_wrote_is_found_and_put_right(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: cluster.published() == HELD)
            # Until no window has anything of the time before it had a rate.
            usage = running.enforcer.parts.observer.usage
            for used in (300.0, 299.0, 298.0, 297.0):
                cluster.used[full("a")] = used
                await running.until(lambda used=used: usage.usage[0, 0] == used)
            # Deleted, and made anew: it uses more than it could.
            cluster.used[full("a")] = 499.0
            del cluster.rates[full("a"), "publishRate"]
            await running.until(lambda: cluster.published() == HELD)

    run_virtually(scene())


def test_rates_are_read_again_in_turn(
    cluster: FakePulsar, link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: cluster.published() == HELD)
            cluster.rates[full("b"), "publishRate"]["publishThrottlingRateInMsg"] = 200
            await running.until(lambda: cluster.published() == HELD)
            assert running.enforcer.status().errors == 0

    run_virtually(scene())


@pytest.mark.parametrize("on_exit", ["keep", "safe", "remove"])
def test_what_a_clean_stop_leaves(
    cluster: FakePulsar, link: Link, tmp_path: Path, on_exit: str
) -> None:
    link.tell("pulsar://b0", 300.0, safe=60.0, dispatch=30.0)

    async def scene() -> None:
        settings = settings_for(cluster, tmp_path, on_exit=on_exit, max_writes_per_s=6)
        async with enforcing(cluster, settings, link) as running:
            await running.until(lambda: len(cluster.rates) == 6)
        assert not running.lines

    run_virtually(scene())
    if on_exit == "keep":
        assert cluster.published() == HELD
    elif on_exit == "safe":
        assert cluster.published() == {"a": 60, "b": 2, "c": 2}
        assert not any(kind == "dispatchRate" for _, kind in cluster.rates)  # safe: unlimited
    else:
        assert not cluster.rates


def test_a_stop_before_anything_is_known_changes_nothing(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    cluster.rates[full("a"), "publishRate"] = {"publishThrottlingRateInMsg": 7}

    async def scene() -> list[str]:
        async with enforcing(
            cluster, settings_for(cluster, tmp_path, on_exit="remove"), link
        ) as running:
            pass
        return running.lines

    (line,) = run_virtually(scene())
    assert line.startswith("on_exit: remove: skipped; the topics or the limits were not read")
    assert cluster.published() == {"a": 7}


def put(history: History, group: str, limit: float) -> None:
    quotas = np.full((1, 7), np.nan)
    quotas[0, 0] = limit
    put_groups(history, [group], quotas, "test")


def test_a_quota_that_is_recorded_is_taken_over_and_given_back(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    settings = settings_for(cluster, tmp_path, take_over=True, on_exit="remove")
    cluster.put("g", publishRateInMsgs=300, dispatchRateInMsgs=900)
    cluster.put("idle", publishRateInMsgs=300)
    put(settings.history, "g", 250.0)
    put(settings.history, "idle", 300.0)
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings, link) as running:
            # No more than the table has, whatever is told.
            await running.until(lambda: cluster.published() == {"a": 250, "b": 8, "c": 8})
            await running.until(lambda: cluster.paths().count("resourcegroups/g") >= 2)
            # The table has another one: taken off, 300 would be lost.
            assert cluster.groups["g"]["publishRateInMsgs"] == 300
            put(settings.history, "g", 300.0)
            link.tell("pulsar://b0", 300.0)
            await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == -1)
            assert cluster.groups["g"]["dispatchRateInMsgs"] == 900
            await running.until(lambda: running.enforcer.status().taken_over == 1)
            # Changed with Pulsar's own tools: again once it is recorded.
            cluster.put("g", publishRateInMsgs=600)
            put(settings.history, "g", 600.0)
            link.tell("pulsar://b0", 300.0)
            await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == -1)
        assert running.enforcer.status().quotas_given_back == 1

    run_virtually(scene())
    assert cluster.groups["g"] == {
        "publishRateInMsgs": 600,
        "publishRateInBytes": -1,
        "dispatchRateInMsgs": 900,
        "dispatchRateInBytes": -1,
    }
    assert cluster.groups["idle"]["publishRateInMsgs"] == 300  # nothing of it was in force


def test_no_more_than_the_quota_is_written_whatever_is_told(
    cluster: FakePulsar, link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(cluster, tmp_path)
    put(settings.history, "g", 100.0)
    link.tell("pulsar://b0", 1e9, safe=1e9)

    async def scene() -> None:
        async with enforcing(cluster, settings, link) as running:
            await running.until(lambda: cluster.published() == {"a": 100, "b": 3, "c": 3})
            await running.until(lambda: cluster.default() == 25)
            await running.until(lambda: len(running.lines) == 1)
            assert running.enforcer.status().cut_groups == 1
            link.tell("pulsar://b0", 60.0, safe=60.0)
            await running.until(lambda: len(running.lines) == 2)
        assert running.enforcer.status().cut_groups == 0

    run_virtually(scene())


def test_a_message_that_cant_be_used_costs_none_behind_it(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    poison: Any = LimitsUpdate(
        magic=0x314C5051, broker="pulsar://b0", issued_at_ms=2**63 - 1, lease_ms=10_000
    )
    link.put("pulsar://b0", poison.SerializeToString())
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: cluster.published() == HELD)
            assert running.enforcer.status().refused_messages == 1
            assert len(running.lines) == 1

    run_virtually(scene())


def test_without_a_table_nothing_is_taken_over_and_that_is_told(
    cluster: FakePulsar, link: Link, tmp_path: Path
) -> None:
    cluster.put("g", publishRateInMsgs=300)
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        settings = settings_for(cluster, tmp_path, take_over=True)
        shutil.rmtree(settings.history.path)
        async with enforcing(cluster, settings, link) as running:
            unread = "quotas in the history"
            await running.until(lambda: any(unread in line for line in running.lines))
            await running.ticks(10)
            # Nobody can tell whether the limits are too much: the cluster's own quota stays.
            assert not cluster.rates
            (line,) = [line for line in running.lines if line.startswith(unread)]
            assert "does not exist" in line
            assert "rates stay as they are" in line

    run_virtually(scene())
    assert cluster.groups["g"]["publishRateInMsgs"] == 300


def conf_of(cluster: FakePulsar, folder: Path, **enforce: Any) -> str:
    settings = settings_for(cluster, folder, **enforce)
    path = folder / "pulsar.yaml"
    path.write_text(json.dumps(json.loads(settings.model_dump_json(exclude_none=True))))
    return str(path)


def test_a_dry_run_prints_what_would_be_written_and_ends(
    cluster: FakePulsar,
    link: Link,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link.tell("pulsar://b0", 300.0)
    monkeypatch.setattr("quotaplane.transport.open_broker_link", lambda *_, **__: link)
    cluster.rates[full("c"), "publishRate"] = ours_of(10)
    conf = conf_of(cluster, tmp_path, on_exit="remove")
    assert main(["enforce", "pulsar", "--conf", conf, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    lines = sorted((json.loads(line) for line in out.splitlines()), key=lambda one: one["path"])
    unlimited = {"publishThrottlingRateInByte": -1}
    path = f"/admin/v2/namespaces/{NAMESPACE}"
    record = {"quotaplane.rates.blue": '{"publish":[[75,-1]]}'}
    default = {"publishThrottlingRateInMsg": 75, **unlimited}
    assert lines == [
        {"method": "PUT", "path": f"{path}/properties", "body": record},
        {"method": "POST", "path": f"{path}/publishRate", "body": default},
        *(
            {
                "method": "POST",
                "path": f"/admin/v2/persistent/{NAMESPACE}/{name}/publishRate",
                "body": ours_of(rate),
            }
            for name, rate in (("a", 300), ("b", 10))
        ),
    ]
    assert "quotaplane: " not in err
    assert not cluster.writes()


def test_the_command_needs_a_cluster_and_says_what_is_wrong_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "local.yaml"
    conf.write_text(
        "transport: {kind: delta, path: x}\nhistory: {path: h}\ncheckpoint: c\n", encoding="utf-8"
    )
    assert main(["enforce", "pulsar", "--conf", str(conf)]) == 2
    assert capsys.readouterr().err == (
        "quotaplane: error: enforce pulsar needs transport.kind: pulsar and transport.admin_url\n"
    )
    assert main(["enforce", "kafka"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_command_starts_without_spark() -> None:
    code = (
        "import sys, quotaplane.cli.enforce, quotaplane.enforce.agent.enforcer\n"
        "slow = {'pyspark', 'py4j', 'pandas', 'pyarrow.dataset'} & sys.modules.keys()\n"
        "sys.exit(str(slow) if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_rates_go_out_within_the_budget(link: Link, tmp_path: Path) -> None:
    with FakePulsar() as cluster:
        cluster.add(*(f"t{i:02}" for i in range(40)), used=500.0)
        link.tell("pulsar://b0", 4000.0)

        async def scene() -> None:
            settings = settings_for(cluster, tmp_path, max_writes_per_s=10)
            async with enforcing(cluster, settings, link) as running:
                await running.until(lambda: len(cluster.published()) >= 5)
                begun_s = asyncio.get_running_loop().time()
                await running.until(lambda: len(cluster.published()) == 40)
                # 10 at once, then 10 a second; the first 5 of them were seen already.
                assert asyncio.get_running_loop().time() - begun_s > 2.0
                assert math.isclose(sum(cluster.published().values()), 4000)

        run_virtually(scene())
