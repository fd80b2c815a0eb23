"""A broker leaves the cluster's list: how soon the others have its share, and the replay of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from quotaplane.replay.verify import Verified, verify
from quotaplane.settings import History
from quotaplane.sim.broker_fleet import Report
from quotaplane.wire.shard_inputs import DEPARTURES
from tests.closed_loop.conftest import START_MS, Loop, at, settings_with
from tests.closed_loop.recorded_loop import RecordedLoop

DIES_S = 20
"""From this second on ``c`` neither uses nor reports."""
END_S = 40
QUOTA = 90.0
EXPIRE_S = 15
SETTINGS: dict[str, Any] = {
    "brokers": {"stale_after_intervals": 10, "expire_after_intervals": EXPIRE_S},
    "limits": {"lease_s": 100.0, "refresh_rounds": 5},
}


def without_c(made: list[Report]) -> list[Report]:
    ended_ms = START_MS + 1000 * DIES_S
    return [one for one in made if one.broker != "c" or one.published_at_ms < ended_ms]


def run(listed_until_s: int = END_S, kind: type[Loop] = Loop, *args: Any) -> Loop:
    """The loop, in which the cluster's list has ``c`` until this second."""
    hungry = [(0.0, 80.0)]
    left = {"c": START_MS + 1000 * listed_until_s}
    loop = kind(
        *args,
        {"g": {"a": hungry, "b": hungry, "c": [*hungry, (DIES_S, 0.0)]}},
        {"g": {"publish_messages": QUOTA}},
        settings=settings_with(**SETTINGS),
        mangle=without_c,
        departures=lambda t_s: left if t_s >= listed_until_s else {},
    )
    return loop.run(END_S)


def unused_s(loop: Loop) -> float:
    """For how many seconds' worth of quota the others do without the share of ``c``."""
    limits = loop.series("limit", "g")[DIES_S:, :2].sum(axis=1)
    return float(np.maximum(QUOTA - limits, 0.0).sum() / (QUOTA / 3))


def first_s(loop: Loop) -> int:
    """The first second in which the others have all of the quota."""
    limits = loop.series("limit", "g")[:, :2].sum(axis=1)
    return int(np.flatnonzero(limits[DIES_S:] > 0.95 * QUOTA)[0]) + DIES_S


def test_the_share_is_in_force_elsewhere_in_the_round_after_the_list() -> None:
    by_list, by_silence = run(DIES_S + 2), run()
    # Limits that are decided in a round are in force in the next.
    assert first_s(by_list) == DIES_S + 3
    # Its last report was read a moment after it was published, from when on silence counts.
    assert first_s(by_silence) == DIES_S + EXPIRE_S + 1
    assert unused_s(by_list) < 0.25 * unused_s(by_silence)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(path=str(tmp_path_factory.mktemp("departed") / "history"))
    run(DIES_S + 2, RecordedLoop, history)
    return history


@pytest.mark.nightly
def test_a_replay_knows_who_had_left(recorded: History) -> None:
    verified = Verified()
    assert [one.problem for one in verify(recorded, at(0), at(END_S), verified)] == []
    assert verified.rounds == END_S
    limits = DeltaTable(str(Path(recorded.path) / "limits")).to_pyarrow_table()
    ended = [row for row in limits.to_pylist() if row["ended"]]
    assert [(row["broker"], row["ended_because"]) for row in ended] == [("c", "departed")]


@pytest.mark.nightly
def test_without_the_recorded_departures_a_replay_decides_otherwise(recorded: History) -> None:
    """So the test above shows that they count."""
    table = DeltaTable(str(Path(recorded.path) / "recording"))
    kinds = table.to_pyarrow_table(columns=["kind"])["kind"].to_pylist()
    assert kinds.count(DEPARTURES) == 2 * (END_S - DIES_S - 2), "one for each shard and round"
    table.delete(f"kind = '{DEPARTURES}'")
    assert [one.problem for one in verify(recorded, at(0), at(END_S), Verified())] != []
