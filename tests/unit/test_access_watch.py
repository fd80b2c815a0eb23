"""A cluster that begins to refuse requests is an alarm, and its end is a line."""

from __future__ import annotations

import asyncio

import pytest

from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.access_watch import AccessWatch
from quotaplane.pulsar_admin.rest import Rest
from tests.unit.cluster_cases import Answer, RestServer

GROUP = "/admin/v2/resourcegroups/rg"


class Watched:
    """A watch with a clock that a test sets, and its lines."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.lines: list[str] = []
        self.watch = AccessWatch("http://b:8080", self.lines.append, lambda: self.now_s)

    def note(self, *answers: tuple[str, int]) -> None:
        for path, status in answers:
            self.watch.note("GET", path, status)


@pytest.mark.parametrize("status", [401, 403])
def test_one_line_when_it_begins_and_one_when_it_ends(status: int) -> None:
    watched = Watched()
    watched.note(("/a", 200), ("/a", status), ("/b", status), ("/a", status))
    assert watched.watch.refused == 2
    (line,) = watched.lines
    assert line.startswith(f"ACCESS REFUSED: Pulsar's REST API at http://b:8080: GET /a: {status};")
    watched.note(("/a", 200))
    assert (watched.watch.refused, len(watched.lines)) == (1, 1)
    watched.note(("/b", 404))  # it does not exist, which the cluster says only to those admitted
    assert watched.watch.refused == 0
    assert watched.lines[1:] == [
        "access restored: Pulsar's REST API at http://b:8080 admits all requests again (refused: 3)"
    ]
    watched.note(("/a", status))
    assert len(watched.lines) == 3


def test_a_refusal_at_the_start_is_an_error_of_the_start() -> None:
    watched = Watched()
    watched.note(("/a", 401), ("/b", 403))
    assert (watched.watch.refused, watched.lines) == (0, [])


def test_other_failures_are_no_refusals() -> None:
    watched = Watched()
    watched.note(("/a", 200), ("/a", 404), ("/a", 412), ("/a", 429), ("/a", 500))
    assert (watched.watch.refused, watched.lines) == (0, [])


def test_what_is_not_asked_again_is_forgotten_after_ten_minutes() -> None:
    watched = Watched()
    watched.note(("/a", 200), ("/gone", 403))
    watched.now_s = 300.0
    watched.note(("/b", 403))
    watched.now_s = 601.0
    assert watched.watch.refused == 1
    watched.note(("/b", 403))
    watched.now_s = 1200.0
    assert watched.watch.refused == 1
    watched.now_s = 1202.0
    assert watched.watch.refused == 0
    assert watched.lines[-1].startswith("access restored")


def test_requests_are_remembered_to_a_bound() -> None:
    watched = Watched()
    watched.note(("/a", 200), *((f"/{n}", 403) for n in range(10_100)))
    assert watched.watch.refused == 10_000


def test_a_token_that_expires_while_a_client_runs() -> None:
    lines: list[str] = []

    async def ask(rest: Rest) -> None:
        with pytest.raises(ClusterError, match="401"):
            await rest.get(GROUP)

    async def run(server: RestServer) -> None:
        async with Rest(server.transport(token="t"), say=lines.append) as rest:
            server.answers["GET resourcegroups/rg"] = Answer(401)
            await ask(rest)
            assert (rest.access.refused, lines) == (0, [])
            server.answers["GET resourcegroups/rg"] = Answer(204)
            await rest.get(GROUP)
            server.answers["GET resourcegroups/rg"] = Answer(401)
            await ask(rest)
            await ask(rest)
            assert rest.access.refused == 1
            server.answers["GET resourcegroups/rg"] = Answer(204)
            await rest.get(GROUP)
            assert rest.access.refused == 0

    with RestServer() as server:
        asyncio.run(run(server))
    assert [line.partition(":")[0] for line in lines] == ["ACCESS REFUSED", "access restored"]
