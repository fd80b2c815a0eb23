"""A cluster that begins to refuse requests is a condition; its items are the requests."""

from __future__ import annotations

import pytest

from quotaplane.agents.known_conditions import ACCESS_REFUSED
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.http_answers import AccessWatch
from tests.unit.agents.condition_cases import Printed
from tests.unit.pulsar_admin.cluster_cases import Answer, RestServer

GROUP = "/admin/v2/resourcegroups/rg"


class Watched(Printed):
    """A watch with a clock that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.watch = AccessWatch("http://b:8080", self.conditions)

    def record(self, *answers: tuple[str, int]) -> None:
        for path, status in answers:
            self.watch.record("GET", path, status)

    def requests(self) -> frozenset[str]:
        return self.conditions.items(ACCESS_REFUSED)


@pytest.mark.parametrize("status", [401, 403])
def test_it_begins_with_the_first_refused_request_and_ends_with_the_last(status: int) -> None:
    watched = Watched()
    watched.record(("/a?x=1", 200), ("/a?x=2", status), ("/b", status), ("/a", status))
    assert watched.requests() == {"GET /a", "GET /b"}
    ((_, line),) = watched.lines()
    assert line.startswith(f"access refused: GET /a: {status} of Pulsar's REST API at http://b:808")
    watched.record(("/a", 200))
    assert watched.requests() == {"GET /b"}
    watched.record(("/b", 404))  # it does not exist, which the cluster says only to those admitted
    assert not watched.requests()
    assert watched.lines() == [("recovered", "access refused: over after 0 s (3 times)")]


@pytest.mark.parametrize(
    "answers",
    [
        # A refusal at the start is an error of the start.
        [("/a", 401), ("/b", 403)],
        [("/a", 200), ("/a", 404), ("/a", 412), ("/a", 429), ("/a", 500)],
    ],
)
def test_what_is_no_refusal(answers: list[tuple[str, int]]) -> None:
    watched = Watched()
    watched.record(*answers)
    assert (watched.requests(), watched.lines()) == (frozenset(), [])


def test_what_is_not_asked_again_is_forgotten_after_ten_minutes() -> None:
    watched = Watched()
    watched.record(("/a", 200), ("/gone", 403))
    watched.now_s = 300.0
    watched.record(("/b", 403))
    for now_s, refused in ((601.0, 1), (899.0, 1), (901.0, 0)):
        watched.now_s = now_s
        assert len(watched.requests()) == refused


async def test_a_token_that_expires_while_a_client_runs() -> None:
    heard, server = Printed(), RestServer()
    async with server.rest(heard.conditions, token="t") as rest:
        for status, refused in ((401, 0), (204, 0), (401, 1), (401, 1), (204, 0)):
            server.answers["GET resourcegroups/rg"] = Answer(status)
            if status == 401:
                with pytest.raises(ClusterError, match="401"):
                    await rest.get(GROUP)
            else:
                await rest.get(GROUP)
            assert len(rest.conditions.items(ACCESS_REFUSED)) == refused
    assert [kind for kind, _ in heard.lines()] == ["warning", "recovered"]
