"""When a group's publish quota is taken off the cluster, and when that must not be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.pace import Pace
from quotaplane.enforce.agent.custodian import Custodian
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.groups_in_force import GroupsInForce
from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.model import FloatArray
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.registry.table import delete_groups, list_groups, put_groups
from quotaplane.settings import History
from tests.unit.enforce.enforce_cases import layout_of
from tests.unit.enforce.enforce_cluster import FakePulsar, Link, enforcing, settings_for
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.virtual_loop import run_virtually

INF, NAN = np.inf, np.nan
LATER_MS = 1e15
"""Of limits: told after anything was recorded."""


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    with FakePulsar() as fake:
        yield fake


def record(history: History, *groups: str, messages: float, of_bytes: float = np.nan) -> None:
    quotas = np.full((len(groups), 7), np.nan)
    quotas[:, :2] = messages, of_bytes
    put_groups(history, list(groups), quotas, "test")


def custodian_of(rest: Rest, history: History, most: int = 3) -> Custodian:
    log = Conditions(print)
    return Custodian(rest, QuotaTable(history, log), Pace(1e6), log, most)


def take(
    cluster: FakePulsar,
    folder: Path,
    in_force: dict[str, FloatArray],
    *,
    times: int = 1,
    most: int = 3,
    taken: int | None = None,
) -> list[str]:
    """Take over what may be, ``taken`` groups in all; what was asked for, "method path"."""
    settings = settings_for(cluster, folder)

    async def scene() -> None:
        async with cluster.rest() as rest:
            custodian = custodian_of(rest, settings.history, most)
            for _ in range(times):
                await custodian.tend(list(in_force), (), in_force)
            assert taken in (None, custodian.taken)

    run_virtually(scene())
    return [f"{asked.method} {asked.path}" for asked in cluster.asked]


def test_a_change_while_the_table_is_read_is_not_overwritten(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = settings_for(cluster, tmp_path).history
    record(history, "g", "h", messages=300.0)
    cluster.put("g", publishRateInMsgs=300)
    others = {"dispatchRateInMsgs": 40, "replicationDispatchRateInMsgs": 400}
    cluster.put("h", publishRateInMsgs=300, **others)

    def slow(history: History) -> object:
        rows = list_groups(history)
        cluster.put("g", publishRateInMsgs=50)
        return rows

    monkeypatch.setattr("quotaplane.enforce.agent.quota_table.list_groups", slow)
    told = np.array([LATER_MS, -np.inf])
    take(cluster, tmp_path, {"g": told, "h": told})
    assert cluster.groups["g"]["publishRateInMsgs"] == 50
    assert cluster.groups["h"]["publishRateInMsgs"] == -1
    assert others.items() <= cluster.groups["h"].items()
    # Nothing else is named, so nothing else can be overwritten.
    bodies = [json.loads(asked.body) for asked in cluster.asked if asked.method == "PUT"]
    assert bodies == [
        {"publishRateInMsgs": 300, "publishRateInBytes": -1},  # the copy
        {"publishRateInMsgs": -1},
    ]


def test_only_what_has_limits_in_force_in_each_dimension_is_taken(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    history = settings_for(cluster, tmp_path).history
    record(history, "g", "h", messages=300.0, of_bytes=4000.0)
    cluster.put("g", publishRateInMsgs=300, publishRateInBytes=4000)
    cluster.put("h", publishRateInMsgs=300, publishRateInBytes=4000)
    take(
        cluster,
        tmp_path,
        {"g": np.array([LATER_MS, -np.inf]), "h": np.array([LATER_MS, LATER_MS])},
    )
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert cluster.groups["h"]["publishRateInMsgs"] == -1
    assert cluster.groups["h"]["publishRateInBytes"] == -1


def test_limits_told_before_the_quota_was_recorded_do_not_count(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    record(settings_for(cluster, tmp_path).history, "g", messages=300.0)
    cluster.put("g", publishRateInMsgs=300)
    take(cluster, tmp_path, {"g": np.array([1e12, -np.inf])})
    assert cluster.groups["g"]["publishRateInMsgs"] == 300


@pytest.mark.parametrize("lost", ["the rows", "the table"])
def test_what_the_table_loses_while_it_is_taken_over_has_its_copy(
    cluster: FakePulsar, tmp_path: Path, lost: str
) -> None:
    """From the copies the sync makes the rows again."""
    history = settings_for(cluster, tmp_path).history
    groups = [f"g{i}" for i in range(9)]
    record(history, *groups, messages=300.0)
    for group in groups:
        cluster.put(group, publishRateInMsgs=300)
    real = cluster.find
    deleted: list[str] = []

    def find(method: str, path: str) -> Answer:
        if method == "PUT" and not deleted:
            deleted.extend(groups)
            if lost == "the rows":
                delete_groups(history, groups, "ann")
            else:
                shutil.rmtree(history.path)
        return real(method, path)

    cluster.find = find  # type: ignore[method-assign]
    told = dict.fromkeys(groups, np.array([LATER_MS, LATER_MS]))
    take(cluster, tmp_path, told, most=100, times=2, taken=9)
    for group in groups:
        assert cluster.groups[f"{group}.taken-over"]["publishRateInMsgs"] == 300


def test_a_quota_that_the_cluster_still_has_was_not_taken_over(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    record(settings_for(cluster, tmp_path).history, "g", messages=300.0)
    cluster.put("g", publishRateInMsgs=300)
    cluster.answers["PUT resourcegroups/g"] = Answer(204)
    told = {"g": np.array([LATER_MS, LATER_MS])}
    asked = take(cluster, tmp_path, told, times=2, taken=0)
    # Looked at, looked at with the copy, copied, taken over, read back: each time.
    copy, look = "resourcegroups/g.taken-over", "GET resourcegroups/g"
    first = [look, f"GET {copy}", look, f"PUT {copy}", f"GET {copy}", look]
    take_it = ["PUT resourcegroups/g", look]
    assert asked == [*first, *take_it, look, f"GET {copy}", look, *take_it]
    cluster.answers.clear()
    take(cluster, tmp_path, told, times=2, taken=1)
    assert cluster.groups["g"]["publishRateInMsgs"] == -1


def test_a_quota_that_was_rounded_up_for_the_cluster_is_recorded(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    history = settings_for(cluster, tmp_path).history
    record(history, "g", "h", messages=99.5, of_bytes=0.4)
    cluster.put("g", publishRateInMsgs=100, publishRateInBytes=1)
    cluster.put("h", publishRateInMsgs=99, publishRateInBytes=1)
    told = np.array([LATER_MS, LATER_MS])
    take(cluster, tmp_path, {"g": told, "h": told}, taken=1)
    assert cluster.groups["g"]["publishRateInMsgs"] == -1
    assert cluster.groups["h"]["publishRateInMsgs"] == 99


def test_a_quota_of_zero_is_not_touched(cluster: FakePulsar, tmp_path: Path) -> None:
    record(settings_for(cluster, tmp_path).history, "g", messages=0.0)
    cluster.put("g", publishRateInMsgs=0)
    told = np.array([LATER_MS, LATER_MS])
    take(cluster, tmp_path, {"g": told})
    assert cluster.groups["g"]["publishRateInMsgs"] == 0


@pytest.mark.parametrize(
    ("limits", "b1_is_owned", "in_force"),
    [
        ([100, 100], True, True),
        # Rolled out on one broker only: the other would have no limit at all.
        ([100, INF], True, False),
        # Not told yet: likewise.
        ([100, NAN], True, False),
        ([100, NAN], False, True),
    ],
)
def test_limits_are_in_force_only_if_every_broker_is_limited(
    limits: list[float], b1_is_owned: bool, in_force: bool
) -> None:
    layout = layout_of({"s": "b0", "t": "b1" if b1_is_owned else ""}, "g")
    wanted = np.full((2, 4), INF)
    wanted[:, 0] = limits
    wanted[np.isnan(limits)] = NAN
    free = np.ones((2, 2), np.bool_)
    rates = Rates(
        *(wanted, wanted, free, ~free, ~free, np.zeros((2, 2)), np.zeros((2, 4))),
        *(~free, ~free),
    )
    none = np.zeros(0, np.int64)
    moves = Moves(none, none, np.zeros((0, 2)), ~free)
    noted = GroupsInForce().after(layout, wanted, rates, moves, np.array([7.0]))
    assert list(noted.since_ms) == (["g"] if in_force else [])


@pytest.mark.parametrize("take_over", [True, False])
def test_rates_of_a_group_that_the_table_lost_stay(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take_over: bool
) -> None:
    settings = settings_for(cluster, tmp_path, take_over=take_over)
    cluster.add("a", used=500.0)
    cluster.put("g")
    record(settings.history, "g", messages=200.0)
    link = Link()
    link.tell("pulsar://b0", 200.0, dispatch=70.0)

    def lose() -> None:
        delete_groups(settings.history, ["g"], "test")
        link.remove("pulsar://b0")

    def reads_of_g() -> int:
        return [f"{a.method} {a.path}" for a in list(cluster.asked)].count("GET resourcegroups/g")

    async def scene() -> list[str]:
        async with enforcing(cluster, settings, link) as running:
            await running.until(lambda: len(cluster.rates) == 2)
            lose()
            if not take_over:
                await running.until(lambda: not cluster.rates)
                return running.lines
            await running.until(lambda: bool(running.lines))
            # No limit that is told of it counts any more: no quota says how much is right.
            link.tell("pulsar://b0", 1e9)
            await running.ticks(10)
            assert cluster.published() == {"a": 200}
            assert len(cluster.rates) == 2
            assert len(running.lines) == 1
            # It is back, and lost again.
            record(settings.history, "g", messages=100.0)
            link.tell("pulsar://b0", 100.0)
            await running.until(lambda: cluster.published() == {"a": 100})
            # The next look at lost groups ends with a read of the group, so two reads show a look.
            read_before = reads_of_g()
            await running.until(lambda: reads_of_g() >= read_before + 2)
            lose()
            await running.until(lambda: "missing groups" in running.enforcer.status().conditions)
            # Detached it has no limits any more.
            cluster.namespaces["acme/orders"] = None
            await running.until(lambda: not cluster.rates)
        return running.lines

    lines = run_virtually(scene())
    told = "missing groups: resource groups 'g': not in the table any more, while namespaces are"
    assert [line.startswith(told) for line in lines[:1]] == [True] * take_over


def test_a_removal_that_the_table_knows_nothing_of_lifts_no_limit_above_the_quota(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(cluster, tmp_path, take_over=True)
    cluster.add("a", used=500.0)
    record(settings.history, "g", messages=100.0)
    link = Link()
    link.tell("pulsar://b0", 60.0)

    async def scene() -> list[str]:
        async with enforcing(cluster, settings, link) as running:
            await running.until(lambda: cluster.published() == {"a": 60})
            link.remove("pulsar://b0")
            link.tell("pulsar://other", 1e9)
            await running.until(lambda: cluster.published() == {"a": 100})
            await running.ticks(5)
            assert cluster.published() == {"a": 100}
        return running.lines

    assert run_virtually(scene()) == []


def test_while_the_quotas_cant_be_read_what_was_taken_over_stays_as_it_is(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    settings = settings_for(cluster, tmp_path, take_over=True)
    cluster.add("a", used=500.0)
    shutil.rmtree(Path(settings.history.path))
    link = Link()
    link.tell("pulsar://b0", 200.0)

    async def scene() -> list[str]:
        async with enforcing(cluster, settings, link) as running:
            await running.ticks(10)
            assert not cluster.rates
        return running.lines

    assert "rates stay as they are" in "".join(run_virtually(scene()))


def test_groups_are_looked_at_in_turn(cluster: FakePulsar, tmp_path: Path) -> None:
    groups = [f"g{i}" for i in range(6)]
    for group in groups:
        cluster.put(group)
    told = dict.fromkeys(groups, np.array([LATER_MS, LATER_MS]))
    asked = take(cluster, tmp_path, told, times=1)
    assert len(asked) == 3
    cluster.asked.clear()
    asked = take(cluster, tmp_path, told, times=2)
    assert sorted(asked) == [f"GET resourcegroups/{group}" for group in groups]


def test_a_group_without_namespaces_and_row_gets_its_copy_at_the_end(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    settings = settings_for(cluster, tmp_path)
    record(settings.history, "gone", "left", messages=300.0)
    told = np.array([LATER_MS, LATER_MS])
    for group in ("gone", "left"):
        cluster.put(group, publishRateInMsgs=300)

    async def scene() -> set[str]:
        async with cluster.rest() as rest:
            custodian = custodian_of(rest, settings.history)
            await custodian.tend(["gone", "left"], (), {"gone": told, "left": told})
            assert custodian.hidden == {"gone", "left"}
            # No namespace is attached to either any more; one is deleted, here and there.
            delete_groups(settings.history, ["gone", "left"], by="test")
            del cluster.groups["gone"]
            await custodian.tend([], (), {})
            assert custodian.hidden == set()
            return await custodian.give_all_back([], 20.0)

    assert run_virtually(scene()) == set()
    assert cluster.groups["left"]["publishRateInMsgs"] == 300
    assert "gone" not in cluster.groups


def test_an_enforcer_hides_a_new_quota_once_its_limits_were_told(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(cluster, tmp_path, take_over=True)
    cluster.add("a", used=500.0)
    cluster.put("g", publishRateInMsgs=300)
    link = Link()
    link.tell("pulsar://b0", 200.0)
    record(settings.history, "g", messages=300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings, link) as running:
            await running.until(lambda: cluster.published() == {"a": 200})
            before = cluster.paths().count("resourcegroups/g")
            await running.until(lambda: cluster.paths().count("resourcegroups/g") > before + 3)
            assert cluster.groups["g"]["publishRateInMsgs"] == 300
            # Told, and not in force.
            slow = Answer(500, {"reason": "upset"})
            cluster.answers["POST persistent/acme/orders/a/publishRate"] = slow
            link.tell("pulsar://b0", 100.0)
            await running.until(lambda: running.enforcer.status().errors >= 3)
            assert cluster.groups["g"]["publishRateInMsgs"] == 300
            del cluster.answers["POST persistent/acme/orders/a/publishRate"]
            await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == -1)
            assert cluster.published() == {"a": 100}

    run_virtually(scene())
