"""Clean stops while the cluster or the table refuses requests, and what they leave."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import delete_groups, put_groups
from tests.unit.enforce.enforce_cluster import HELD, NAMESPACE, FakePulsar
from tests.unit.enforce.test_enforce_takeover import record
from tests.unit.pulsar_admin.cluster_cases import Answer

pytestmark = pytest.mark.slow

UPSET = Answer(500, {"reason": "upset"})
RATE_OF_A = f"persistent/{NAMESPACE}/a/publishRate"
NOT_GIVEN_BACK = "on_exit: remove: the publish quotas of g could not be given back"


@pytest.fixture
def cluster(busy: FakePulsar) -> FakePulsar:
    return busy


async def stopped(
    cluster: FakePulsar,
    before_stop: Callable[[], object] = lambda: None,
    *,
    on_exit: str = "remove",
    take_over: bool = True,
) -> str:
    """Enforce until rates are held, and stop; the lines that were printed, as one."""
    cluster.limit(300.0, safe=60.0)
    async with cluster.enforcing(on_exit=on_exit, take_over=take_over) as running:
        await running.until(lambda: cluster.published() == HELD)
        await running.until(lambda: running.enforcer.parts.writer.at_rest)
        before_stop()
    return "\n".join(running.lines)


@pytest.mark.parametrize("why", ["refused", "no effect", "no table", "no row and no copy"])
async def test_a_group_not_given_back_keeps_its_rates(cluster: FakePulsar, why: str) -> None:
    record(cluster.history, "g", "early", messages=300.0)
    # Taken over by an earlier run; the second one has no topics now.
    cluster.put("g")
    cluster.put("early")

    def lose() -> None:
        if why == "no table":
            shutil.rmtree(Path(cluster.history.path, "resource_groups"))
        elif why == "no row and no copy":
            delete_groups(cluster.history, ["g"], "test")
        else:
            answer = UPSET if why == "refused" else Answer(204)
            cluster.answers["PUT resourcegroups/g"] = answer

    lines = await stopped(cluster, lose, take_over=not why.startswith("no "))
    assert cluster.published() == HELD
    assert cluster.default() == 15
    assert NOT_GIVEN_BACK in lines
    assert "not written in time" not in lines
    if why == "refused":
        assert cluster.groups["early"]["publishRateInMsgs"] == 300
        assert cluster.paths("PUT").count("resourcegroups/g") >= 2


async def test_what_fails_at_first_is_done_again(cluster: FakePulsar) -> None:
    record(cluster.history, "g", messages=300.0)
    cluster.put("g", dispatchRateInMsgs=7)
    cluster.fail_once("PUT resourcegroups/g")
    cluster.fail_once(f"DELETE {RATE_OF_A}")
    assert "on_exit" not in await stopped(cluster)
    assert not cluster.rates
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert cluster.groups["g"]["dispatchRateInMsgs"] == 7


async def test_only_the_dimension_that_is_hidden_is_given_back(cluster: FakePulsar) -> None:
    record(cluster.history, "g", messages=300.0, of_bytes=4000.0)
    # Set a moment ago, and not recorded yet.
    others = {"dispatchRateInMsgs": 5, "replicationDispatchRateInMsgs": 400, "name": "x"}
    cluster.put("g", publishRateInMsgs=250, **others)
    await stopped(cluster)
    mixed = {"publishRateInMsgs": 250, "publishRateInBytes": 4000, "dispatchRateInBytes": -1}
    assert cluster.groups["g"] == others | mixed


async def test_what_an_earlier_run_took_over_is_given_back(cluster: FakePulsar) -> None:
    quotas = np.full((3, len(DIMENSIONS)), np.nan)
    quotas[:, 0] = 300.0, 69.5, 50.0
    put_groups(cluster.history, ["g", "early", "zero"], quotas, "test")
    cluster.put("g")
    cluster.put("early")
    cluster.put("zero", publishRateInMsgs=0)  # for Pulsar that is no quota
    assert await stopped(cluster, take_over=False) == ""
    found = {group: rates["publishRateInMsgs"] for group, rates in cluster.groups.items()}
    assert found == {"g": 300, "early": 70, "zero": 50}
    assert not cluster.rates


async def test_a_group_that_has_its_quota_needs_no_table(cluster: FakePulsar) -> None:
    cluster.put("g", publishRateInMsgs=300)
    assert await stopped(cluster, take_over=False) == ""
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert not cluster.rates


@pytest.mark.parametrize("on_exit", ["remove", "safe"])
async def test_a_rate_not_written_at_the_end_is_printed(cluster: FakePulsar, on_exit: str) -> None:
    def fail() -> None:
        cluster.answers |= {f"{method} {RATE_OF_A}": UPSET for method in ("POST", "DELETE")}

    lines = await stopped(cluster, fail, on_exit=on_exit, take_over=False)
    assert f"on_exit: {on_exit}: 1 rates were not written in time" in lines
    assert cluster.published()["a"] == 300


async def test_a_topic_that_is_deleted_at_the_end_is_not_left_over(cluster: FakePulsar) -> None:
    cluster.answers[f"DELETE {RATE_OF_A}"] = Answer(404, {"reason": "Topic not found"})
    assert await stopped(cluster, take_over=False) == ""
    assert set(cluster.published()) == {"a"}
