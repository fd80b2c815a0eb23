"""The enforcer's loop against a REST API that fails, is slow, and changes under way."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.errors import TransportError
from quotaplane.pulsar_admin.rest import RefusedError
from tests.unit.enforce.enforce_cluster import (
    ALL_OF_IT,
    HELD,
    NAMESPACE,
    FakePulsar,
    administrators,
    full,
    ours_of,
)
from tests.unit.enforce.test_enforce_takeover import record
from tests.unit.pulsar_admin.cluster_cases import Answer

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(busy: FakePulsar) -> FakePulsar:
    return busy


async def test_a_brokers_limit_becomes_rates_of_its_topics(cluster: FakePulsar) -> None:
    cluster.limit(300.0, dispatch=30.0)
    async with cluster.enforcing() as running:
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
    cluster.limit(300.0, dispatch=30.0)
    async with cluster.enforcing() as running:
        await running.until(lambda: running.enforcer.status().limited == 3)
        await running.ticks(10)
        assert len(cluster.writes()) == count
        assert not running.lines


async def test_the_status_says_what_is_missing(cluster: FakePulsar) -> None:
    async with cluster.enforcing() as running:
        assert running.enforcer.status().waits_for == "cluster"
        await running.until(lambda: running.enforcer.status().waits_for == "limits")
        assert not cluster.writes()
        cluster.limit(300.0)
        await running.until(lambda: running.enforcer.status().waits_for is None)
        await running.until(lambda: len(cluster.rates) == 3)


async def test_nothing_is_touched_that_nobody_told_anything_about(cluster: FakePulsar) -> None:
    cluster.namespaces["acme/other"] = None
    cluster.topics.add(full("x", "acme/other"))
    cluster.topics.add(full("__change_events"))
    cluster.limit(5.0, broker="elsewhere")
    cluster.limit(5.0, group="another")
    async with cluster.enforcing() as running:
        await running.until(lambda: running.enforcer.status().topics == 3)
        await running.ticks(10)
    assert not cluster.writes()
    assert not [path for path in cluster.paths() if path.endswith("Rate")]


async def test_one_topic_that_fails_does_not_stop_the_others(cluster: FakePulsar) -> None:
    failing = f"POST persistent/{NAMESPACE}/b/publishRate"
    cluster.answers[failing] = Answer(500, {"reason": "Broker is\nupset"})
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
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


async def test_a_topic_deleted_before_its_write_is_dropped_quietly(cluster: FakePulsar) -> None:
    cluster.deleted_unseen.add(full("b"))
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
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


async def test_a_slow_answer_holds_up_nobody_else(cluster: FakePulsar) -> None:
    slow = f"persistent/{NAMESPACE}/a/publishRate"
    cluster.answers[f"POST {slow}"] = Answer(204, delay_s=5.0)
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
        await running.until(lambda: set(cluster.published()) == {"b", "c"}, within_s=4.0)
        cluster.limit(30.0)
        await running.until(lambda: cluster.published() == {"b": 1, "c": 1}, within_s=4.0)
        # And it is asked once, however many ticks go by.
        assert cluster.paths("POST").count(slow) == 1


async def test_the_wrong_token_is_refused_at_the_start(cluster: FakePulsar) -> None:
    said = Answer(401, {"reason": "Authentication required"})
    cluster.answers["GET brokers/configuration/runtime"] = said

    with pytest.raises(RefusedError, match="401 Authentication required; check"):
        async with cluster.enforcing():
            pass


async def test_parts_that_fail_are_told_once_and_the_rest_goes_on(cluster: FakePulsar) -> None:
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
        await running.until(lambda: len(cluster.rates) == 3)
        cluster.link.broken = TransportError("limits can't be read")
        failing = Answer(503, {"reason": "starting"})
        cluster.answers["GET brokers"] = cluster.answers["GET tenants"] = failing
        link_line = "enforcer: limits: limits can't be read; retrying"
        await running.until(lambda: len(running.lines) == 3)
        assert link_line in running.lines
        await running.until(lambda: running.enforcer.status().errors > 10)
        assert len(running.lines) == 3
        assert running.enforcer.status().topics == 3  # what was known still is
        cluster.link.broken = None
        del cluster.answers["GET brokers"], cluster.answers["GET tenants"]
        await running.until(lambda: len(running.lines) == 6)
        assert all("over after" in line for line in running.lines[3:])
        cluster.link.put("pulsar://b0", b"no limits")
        cluster.limit(60.0)
        await running.until(lambda: cluster.published() == {"a": 60, "b": 2, "c": 2})
        assert "not a LimitsUpdate" in running.lines[6]
        assert running.enforcer.status().refused_messages == 1


async def test_topics_that_come_go_and_leave_the_group(cluster: FakePulsar) -> None:
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.published() == HELD)
        # Rates are read again in turn: what somebody wrote is put right.
        cluster.rates[full("b"), "publishRate"]["publishThrottlingRateInMsg"] = 200
        await running.until(lambda: cluster.published() == HELD)
        assert running.enforcer.status().errors == 0
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


async def test_a_topic_that_uses_more_than_its_rate_is_read_before_its_turn(
    cluster: FakePulsar,
) -> None:
    """It was deleted and made anew. In turn, each rate is read once a minute."""
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.published() == HELD)
        usage = running.enforcer.parts.observer.usage
        for used in (300.0, 299.0, 298.0, 297.0):  # until no window has a time without a rate
            cluster.used[full("a")] = used
            await running.until(lambda used=used: usage.usage[0, 0] == used)
        del cluster.rates[full("a"), "publishRate"]
        cluster.used[full("a")] = 499.0
        await running.until(lambda: cluster.published() == HELD, within_s=5.0)


async def test_topics_follow_their_broker(tmp_path: Path) -> None:
    cluster = FakePulsar(2, tmp_path)
    cluster.add("a", "b", *(f"t{i}" for i in range(6)), used=500.0)
    cluster.owned["127.0.0.1:1"] = [f"{NAMESPACE}/0x80000000_0xffffffff"]
    cluster.owned["127.0.0.1:0"] = [f"{NAMESPACE}/0x00000000_0x80000000"]
    cluster.limit(1000.0)
    cluster.limit(100.0, broker="b1")
    async with cluster.enforcing() as running:
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


async def test_a_partitioned_topic_has_one_rate(tmp_path: Path) -> None:
    cluster = FakePulsar(folder=tmp_path)
    cluster.add("p-partition-0", used=500.0)
    cluster.add("p-partition-1", "p-partition-2", "lonely-partition-7")
    cluster.partitioned.add(full("p"))
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.published() == {"p": 300})
        assert running.enforcer.status().topics == 1


@pytest.mark.parametrize("on_exit", ["keep", "safe", "remove"])
async def test_what_a_clean_stop_leaves(cluster: FakePulsar, on_exit: str) -> None:
    cluster.limit(300.0, safe=60.0, dispatch=30.0)
    off = f"DELETE namespaces/{NAMESPACE}/publishRate"
    cluster.fail_once(off)
    async with cluster.enforcing(on_exit=on_exit, max_writes_per_s=6) as running:
        await running.until(lambda: len(cluster.rates) == 6 and cluster.default() == 15)
    assert not [line for line in running.lines if "on_exit" in line]
    if on_exit == "remove":
        assert off not in cluster.answers
        assert not cluster.rates
        assert not cluster.namespace_rates
        assert not cluster.properties[NAMESPACE]
        return
    assert cluster.default() == 15
    assert cluster.published() == (HELD if on_exit == "keep" else {"a": 60, "b": 2, "c": 2})
    dispatch = [kind for _, kind in cluster.rates if kind == "dispatchRate"]
    assert len(dispatch) == (3 if on_exit == "keep" else 0)  # safe: unlimited


async def test_a_stop_before_anything_is_known_changes_nothing(cluster: FakePulsar) -> None:
    cluster.rates[full("a"), "publishRate"] = {"publishThrottlingRateInMsg": 7}
    async with cluster.enforcing(on_exit="remove") as running:
        pass
    (line,) = running.lines
    assert line.startswith("on_exit: remove: skipped; the topics or the limits were not read")
    assert cluster.published() == {"a": 7}


async def test_a_quota_that_is_recorded_is_taken_over_and_given_back(cluster: FakePulsar) -> None:
    cluster.put("g", publishRateInMsgs=300, dispatchRateInMsgs=900)
    cluster.put("idle", publishRateInMsgs=300)
    record(cluster.history, "g", messages=250.0)
    record(cluster.history, "idle", messages=300.0)
    cluster.limit(300.0)

    def publish() -> int:
        return cluster.groups["g"]["publishRateInMsgs"]

    async with cluster.enforcing(take_over=True, on_exit="remove") as running:
        # No more than the table has, whatever is received.
        await running.until(lambda: cluster.published() == {"a": 250, "b": 8, "c": 8})
        await running.until(lambda: cluster.paths().count("resourcegroups/g") >= 2)
        # The table has another one: taken off, 300 would be lost.
        assert publish() == 300
        record(cluster.history, "g", messages=300.0)
        looks = cluster.paths().count("resourcegroups/g")
        await running.until(lambda: cluster.paths().count("resourcegroups/g") > looks + 3)
        assert publish() == 300, "no limit was decided since then"
        write = f"POST persistent/{NAMESPACE}/a/publishRate"
        cluster.answers[write] = Answer(500, {"reason": "upset"})
        cluster.limit(200.0)
        await running.until(lambda: running.enforcer.status().errors >= 3)
        assert publish() == 300, "the limit is not in force"
        del cluster.answers[write]
        await running.until(lambda: publish() == -1)
        assert cluster.published()["a"] == 200
        assert cluster.groups["g"]["dispatchRateInMsgs"] == 900
        await running.until(lambda: running.enforcer.status().taken_over == 1)
        # Changed with Pulsar's own tools: again once it is recorded.
        cluster.put("g", publishRateInMsgs=600)
        record(cluster.history, "g", messages=600.0)
        cluster.limit(300.0)
        await running.until(lambda: publish() == -1)
    assert running.enforcer.status().quotas_given_back == 1
    assert cluster.groups["g"] == {
        "publishRateInMsgs": 600,
        "publishRateInBytes": -1,
        "dispatchRateInMsgs": 900,
        "dispatchRateInBytes": -1,
    }
    assert cluster.groups["idle"]["publishRateInMsgs"] == 300  # nothing of it was in force


async def test_no_more_than_the_quota_is_written_whatever_is_told(cluster: FakePulsar) -> None:
    record(cluster.history, "g", messages=100.0)
    cluster.limit(1e9, safe=1e9)
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.published() == {"a": 100, "b": 3, "c": 3})
        await running.until(lambda: cluster.default() == 25)
        await running.until(lambda: len(running.lines) == 1)
        assert running.enforcer.status().cut_groups == 1
        cluster.limit(60.0, safe=60.0)
        await running.until(lambda: len(running.lines) == 2)
    assert running.enforcer.status().cut_groups == 0


async def test_without_a_table_nothing_is_taken_over_and_that_is_told(cluster: FakePulsar) -> None:
    cluster.put("g", publishRateInMsgs=300)
    cluster.limit(300.0)

    shutil.rmtree(cluster.history.path)
    async with cluster.enforcing(take_over=True) as running:
        unread = "quotas in the history"
        await running.until(lambda: any(unread in line for line in running.lines))
        await running.ticks(10)
        # Nobody can tell whether the limits are too much: the cluster's own quota stays.
        assert not cluster.rates
        (line,) = [line for line in running.lines if line.startswith(unread)]
        assert "does not exist" in line
        assert "rates stay as they are" in line
    assert cluster.groups["g"]["publishRateInMsgs"] == 300


def test_a_dry_run_prints_what_would_be_written_and_ends(
    cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.limit(300.0)
    monkeypatch.setattr("quotaplane.transport.open_broker_link", lambda *_, **__: cluster.link)
    cluster.rates[full("c"), "publishRate"] = ours_of(10)
    with cluster:
        conf = cluster.conf(on_exit="remove")
        assert main(["enforce", "pulsar", "--conf", conf, "--dry-run"]) == 0
    out, err = capsys.readouterr()
    lines = sorted((json.loads(line) for line in out.splitlines()), key=lambda one: one["path"])
    path = f"/admin/v2/namespaces/{NAMESPACE}"
    topics = f"/admin/v2/persistent/{NAMESPACE}"
    record = {"quotaplane.rates.blue": '{"publish":[[75,-1]]}'}
    writes = [
        ("PUT", f"{path}/properties", record),
        ("POST", f"{path}/publishRate", administrators(75)),
        ("POST", f"{topics}/a/publishRate", ours_of(300)),
        ("POST", f"{topics}/b/publishRate", ours_of(10)),
    ]
    assert lines == [{"method": m, "path": path, "body": body} for m, path, body in writes]
    assert "quotaplane: " not in err
    assert not cluster.writes()


def test_the_command_needs_a_cluster_and_says_what_is_wrong_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "local.yaml"
    conf.write_text("transport: {kind: delta, path: x}\nhistory: {path: h}\ncheckpoint: c\n")
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
