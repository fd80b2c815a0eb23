"""A list without many known namespaces or topics is not accepted at once: rates would go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.pace import Pace
from quotaplane.pulsar_admin.placement import NamespaceRead, Placement
from quotaplane.topics.topic_layout import Layout
from tests.unit.enforce.enforce_cluster import FakePulsar, full
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.virtual_loop import run_virtually

pytestmark = pytest.mark.slow

NAMESPACES = [f"acme/n{i}" for i in range(6)]


@pytest.fixture
def cluster() -> FakePulsar:
    """Six attached namespaces of a tenant, a topic each."""
    fake = FakePulsar()
    fake.namespaces = dict.fromkeys(NAMESPACES, "g")
    fake.topics = {full("t", name) for name in NAMESPACES}
    return fake


def looked(
    cluster: FakePulsar,
    *changes: Callable[[], object],
    namespace_read: NamespaceRead = lambda *_: None,
) -> tuple[list[int], list[str]]:
    """After each change and a look: how many topics there are; and what was said."""
    lines: list[str] = []

    async def scene() -> list[int]:
        async with cluster.rest() as rest:
            note = Conditions(lines.append).note
            placement = Placement(rest, "blue", Pace(1e6), note, namespace_read)
            layout: Layout | None = None
            counts = []
            for change in changes:
                change()
                await placement.read_namespaces()
                layout = placement.changed() or layout
                assert layout is not None
                counts.append(len(layout.topics))
            return counts

    return run_virtually(scene()), lines


def nothing() -> None:
    pass


def answers(cluster: FakePulsar, path: str, answer: Answer) -> Callable[[], None]:
    return lambda: cluster.answers.update({f"GET {path}": answer})


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("tenants", Answer(200, [])),
        ("tenants", Answer(404)),
        ("tenants", Answer(401)),
        ("namespaces/acme", Answer(200, [])),
        ("namespaces/acme", Answer(404)),
        ("namespaces/acme", Answer(500)),
    ],
)
def test_a_list_alone_takes_nothing_away(cluster: FakePulsar, path: str, answer: Answer) -> None:
    counts, _ = looked(cluster, nothing, answers(cluster, path, answer), *[nothing] * 4)
    assert counts == [6] * 6


def test_many_that_are_detached_are_believed_after_three_looks(cluster: FakePulsar) -> None:
    groups: list[str | None] = []

    def read(_: str, namespace: str, policies: object, group: str | None, begun_s: float) -> None:
        if namespace == NAMESPACES[0]:
            groups.append(group)

    def detach(*names: str) -> Callable[[], None]:
        return lambda: cluster.namespaces.update(dict.fromkeys(names))

    counts, lines = looked(
        cluster, nothing, detach(*NAMESPACES[:5]), *[nothing] * 3, namespace_read=read
    )
    assert counts == [6, 6, 6, 1, 1]
    assert groups == ["g", "g", "g", "g", None], "the rate of a namespace stays as long"
    begun, over = lines
    assert begun.startswith("attachments: 5 of 6 attached namespaces seem to have lost their group")
    assert "attachments: over after" in over
    cluster.namespaces |= dict.fromkeys(NAMESPACES, "g")
    assert looked(cluster, nothing, detach(*NAMESPACES[:3]), nothing) == ([6, 3, 3], [])


def test_namespaces_that_are_deleted_say_so_themselves(cluster: FakePulsar) -> None:
    counts, lines = looked(cluster, nothing, cluster.namespaces.clear, *[nothing] * 3)
    assert counts == [6, 6, 6, 0, 0]
    assert len(lines) == 2


def test_many_topics_that_are_not_listed_are_gone_after_three_looks(cluster: FakePulsar) -> None:
    name = NAMESPACES[0]
    parts = [f"p-partition-{i}" for i in range(3)]
    cluster.topics |= {full(topic, name) for topic in (*"abc", *parts)}
    cluster.partitioned = {full("p", name)}
    every = 6 + 3 + 1
    for path in (f"persistent/{name}", f"persistent/{name}/partitioned"):
        cluster.answers.clear()
        empty = answers(cluster, path, Answer(200, []))
        counts, _ = looked(cluster, nothing, empty, nothing, cluster.answers.clear)
        few = path.endswith("partitioned")  # one of eight: believed at once
        assert counts == [every, *[every - few] * 2, every]
    cluster.answers.clear()
    gone = answers(cluster, f"persistent/{name}", Answer(200, []))
    counts, _ = looked(cluster, nothing, gone, nothing, nothing)
    assert counts == [every, every, every, 5]


@pytest.mark.parametrize("failing", ["", "/partitioned"])
def test_trouble_with_a_list_of_topics_is_told(cluster: FakePulsar, failing: str) -> None:
    path = f"persistent/{NAMESPACES[0]}{failing}"
    fail = answers(cluster, path, Answer(500))
    counts, lines = looked(cluster, nothing, fail, *[nothing] * 3, cluster.answers.clear, nothing)
    assert counts == [6] * 7
    begun, over = lines
    assert begun.startswith(f"topics: {NAMESPACES[0]}: ")
    assert begun.endswith("; retrying")
    assert over.startswith("topics: over after ")
    assert over.endswith(" (4 times)")
