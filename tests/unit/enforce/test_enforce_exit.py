"""What a clean stop leaves when the cluster or the table does not do as it is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from tests.unit.enforce.enforce_cluster import (
    NAMESPACE,
    FakePulsar,
    Link,
    enforcing,
    full,
    settings_for,
    with_a_busy_topic,
)
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.virtual_loop import run_virtually

HELD = {"a": 300, "b": 10, "c": 10}


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    with with_a_busy_topic() as fake:
        yield fake


def put(history: History, **limits: float) -> None:
    quotas = np.full((len(limits), 7), np.nan)
    quotas[:, 0] = list(limits.values())
    put_groups(history, list(limits), quotas, "test")


def stopped(
    cluster: FakePulsar,
    folder: Path,
    fails: dict[str, Answer],
    *,
    before_stop: Callable[[], None] = lambda: None,
    **enforce: object,
) -> str:
    """Enforce until rates are held, let some requests fail, and stop; what was said, as a line."""
    link = Link()
    link.tell("pulsar://b0", 300.0, safe=60.0)

    async def scene() -> list[str]:
        async with enforcing(cluster, settings_for(cluster, folder, **enforce), link) as running:
            await running.until(lambda: cluster.published() == HELD)
            await running.until(lambda: running.enforcer.parts.writer.at_rest)
            cluster.answers |= fails
            before_stop()
        return running.lines

    return "\n".join(run_virtually(scene()))


def test_a_group_that_cant_be_given_back_keeps_its_rates(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    settings = settings_for(cluster, tmp_path)
    put(settings.history, g=300.0, early=70.0)
    # Taken over by an earlier run; the second one has no topics now.
    cluster.put("g")
    cluster.put("early")
    upset = {"PUT resourcegroups/g": Answer(500, {"reason": "upset"})}
    lines = stopped(cluster, tmp_path, upset, take_over=True, on_exit="remove")
    assert cluster.published() == HELD
    assert cluster.groups["early"]["publishRateInMsgs"] == 70
    assert "on_exit: remove: the publish quotas of g could not be given back" in lines
    assert "not written in time" not in lines
    assert cluster.paths("PUT").count("resourcegroups/g") >= 2


def test_without_the_table_rates_stay(cluster: FakePulsar, tmp_path: Path) -> None:
    cluster.put("g")
    history = settings_for(cluster, tmp_path).history
    put(history, g=300.0)

    def lose() -> None:
        shutil.rmtree(Path(history.path, "resource_groups"))

    lines = stopped(cluster, tmp_path, {}, before_stop=lose, take_over=False, on_exit="remove")
    assert cluster.published() == HELD
    assert cluster.default() == 15
    assert "on_exit: remove: the publish quotas of g could not be given back" in lines


def test_a_give_back_that_fails_at_first_is_done_again(cluster: FakePulsar, tmp_path: Path) -> None:
    put(settings_for(cluster, tmp_path).history, g=300.0)
    cluster.put("g", dispatchRateInMsgs=7)

    def first() -> Answer:
        del cluster.answers["PUT resourcegroups/g"]
        return Answer(500, {"reason": "upset"})

    cluster.answers["PUT resourcegroups/g"] = first
    lines = stopped(cluster, tmp_path, {}, take_over=True, on_exit="remove")
    assert not cluster.rates
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert cluster.groups["g"]["dispatchRateInMsgs"] == 7
    assert "on_exit" not in lines


def test_only_the_dimension_that_is_hidden_is_given_back(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    history = settings_for(cluster, tmp_path).history
    quotas = np.full((1, 7), np.nan)
    quotas[0, :2] = 300.0, 4000.0
    put_groups(history, ["g"], quotas, "test")
    # Set a moment ago, and not recorded yet.
    others = {"dispatchRateInMsgs": 5, "replicationDispatchRateInMsgs": 400, "name": "x"}
    cluster.put("g", publishRateInMsgs=250, **others)
    stopped(cluster, tmp_path, {}, take_over=True, on_exit="remove")
    assert cluster.groups["g"] == {
        **others,
        "publishRateInMsgs": 250,
        "publishRateInBytes": 4000,
        "dispatchRateInBytes": -1,
    }


@pytest.mark.parametrize(
    ("recorded", "given_back"), [(99.5, 100), (0.4, 1), (0.0, 1), (5e9, 2**31 - 1)]
)
def test_what_is_given_back_is_rounded_up_and_never_unlimited(
    cluster: FakePulsar, tmp_path: Path, recorded: float, given_back: int
) -> None:
    history = settings_for(cluster, tmp_path).history
    put(history, g=300.0)
    cluster.put("g")

    def change() -> None:
        put(history, g=recorded)

    lines = stopped(cluster, tmp_path, {}, before_stop=change, take_over=True, on_exit="remove")
    assert cluster.groups["g"]["publishRateInMsgs"] == given_back
    assert not cluster.rates
    assert lines == ""


def test_a_quota_of_zero_in_the_cluster_is_none(cluster: FakePulsar, tmp_path: Path) -> None:
    put(settings_for(cluster, tmp_path).history, g=300.0)
    cluster.put("g", publishRateInMsgs=0)
    stopped(cluster, tmp_path, {}, take_over=True, on_exit="remove")
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert not cluster.rates


def test_a_give_back_that_has_no_effect_leaves_the_rates(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    put(settings_for(cluster, tmp_path).history, g=300.0)
    cluster.put("g")
    ignored = {"PUT resourcegroups/g": Answer(204)}
    lines = stopped(cluster, tmp_path, ignored, take_over=True, on_exit="remove")
    assert cluster.published() == HELD
    assert "on_exit: remove: the publish quotas of g could not be given back" in lines


def test_a_group_that_neither_the_table_nor_a_copy_has_keeps_its_rates(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    history = settings_for(cluster, tmp_path).history
    put(history, g=300.0, other=1.0)
    cluster.put("g")

    def lose() -> None:
        delete_groups(history, ["g"], "test")

    lines = stopped(cluster, tmp_path, {}, before_stop=lose, take_over=False, on_exit="remove")
    assert cluster.published() == HELD
    assert "on_exit: remove: the publish quotas of g could not be given back" in lines


def test_what_an_earlier_run_took_over_is_given_back_without_take_over_too(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    put(settings_for(cluster, tmp_path).history, g=300.0, early=70.0)
    cluster.put("g")
    cluster.put("early")
    lines = stopped(cluster, tmp_path, {}, take_over=False, on_exit="remove")
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert cluster.groups["early"]["publishRateInMsgs"] == 70
    assert not cluster.rates
    assert lines == ""


def test_without_take_over_a_group_that_has_its_quota_needs_no_table(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    cluster.put("g", publishRateInMsgs=300)
    assert stopped(cluster, tmp_path, {}, take_over=False, on_exit="remove") == ""
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert not cluster.rates


@pytest.mark.parametrize("on_exit", ["remove", "safe"])
def test_a_rate_that_cant_be_written_at_the_end_is_told(
    cluster: FakePulsar, tmp_path: Path, on_exit: str
) -> None:
    path = f"persistent/{NAMESPACE}/a/publishRate"
    upset = Answer(500, {"reason": "upset"})
    fails = {f"{method} {path}": upset for method in ("POST", "DELETE")}
    lines = stopped(cluster, tmp_path, fails, on_exit=on_exit)
    assert f"on_exit: {on_exit}: 1 rates were not written in time" in lines
    assert cluster.published()["a"] == 300


def test_a_write_that_fails_once_at_the_end_is_made_again(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    path = f"DELETE persistent/{NAMESPACE}/a/publishRate"

    def once() -> Answer:
        del cluster.answers[path]
        return Answer(500, {"reason": "upset"})

    lines = stopped(cluster, tmp_path, {path: once}, on_exit="remove")  # type: ignore[dict-item]
    assert not cluster.rates
    assert "on_exit" not in lines


def test_a_topic_that_is_deleted_at_the_end_is_not_left_over(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    path = f"DELETE persistent/{NAMESPACE}/a/publishRate"
    gone = {path: Answer(404, {"reason": "Topic not found"})}
    lines = stopped(cluster, tmp_path, gone, on_exit="remove")
    assert lines == ""
    assert set(cluster.published()) == {"a"}
    assert full("a") in cluster.topics
