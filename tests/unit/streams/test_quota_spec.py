"""The start of the quota job: its checkpoint's note, and a history whose quotas are gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quotaplane.errors import HistoryError
from quotaplane.history.store import ensure_tables, has_table
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.quota.config import EarlierLimits
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import Checkpoint
from quotaplane.streams.job import prepare
from quotaplane.streams.quota import job
from quotaplane.streams.quota.job import QuotaSpec
from tests.histories import make_history
from tests.job import put_quotas, write_round
from tests.unit.history.history_cases import NOON_MS, rounds
from tests.unit.streams.shard_cases import job_settings

LATER_MS = NOON_MS + 7_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a job whose history has a round of an earlier epoch."""
    settings = job_settings(tmp_path, reports={"interval_s": 1.0})
    make_history(settings.history)
    with HistoryWriter(settings.history, app_id="earlier") as writer:
        writer.append_round(Round(4, 1, NOON_MS), {"rounds": rounds()})
    return settings


def started(settings: Settings, now_ms: int, note: dict[str, object] | None = None) -> QuotaSpec:
    """A start on a checkpoint of epoch 9, new or with this note, when the clock shows this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job.time, "time", lambda: now_ms / 1000)
        spec = QuotaSpec(settings)
        spec.accept(Checkpoint("x", 9, 1, spec.checkpoint_note if note is None else note))
    return spec


def test_a_batch_that_runs_again_after_a_restart_has_the_same_settings(settings: Settings) -> None:
    """Else the state that it leaves, and a replay of it, would depend on when the job restarted."""
    first = started(settings, NOON_MS)
    note = dict(first.checkpoint_note)
    with HistoryWriter(settings.history, app_id="x") as writer:
        writer.append_round(Round(9, 0, LATER_MS), {"rounds": rounds()})
    again = started(settings, LATER_MS, note)
    assert again.program(9) == first.program(9)


def test_the_note_has_when_earlier_limits_end(settings: Settings) -> None:
    spec = started(settings, NOON_MS - 5_000)
    until_ms = NOON_MS - 5_000  # a round of a clock that was ahead counts as one of now
    assert spec.program(9).program.step.earlier == EarlierLimits(until_ms, 0)
    assert started(settings, LATER_MS).program(9).program.step.earlier == EarlierLimits(NOON_MS, 0)


@pytest.fixture
def new_settings(tmp_path: Path) -> Settings:
    return job_settings(tmp_path)


def test_a_job_refuses_a_history_whose_quotas_are_gone(
    new_settings: Settings, tmp_path: Path
) -> None:
    put_quotas(new_settings, g=100.0)
    write_round(new_settings.history, epoch=1)
    groups = tmp_path / "history" / "resource_groups"
    groups.rename(tmp_path / "away")
    with pytest.raises(HistoryError, match=r"resource_groups at .* is missing.*restore"):
        prepare(QuotaSpec(new_settings))
    assert not groups.exists()
    (tmp_path / "away").rename(groups)
    prepare(QuotaSpec(new_settings)).close()


def test_without_any_round_the_table_is_made(new_settings: Settings, tmp_path: Path) -> None:
    ensure_tables(new_settings.history)  # as a start that was killed amid it
    shutil.rmtree(tmp_path / "history" / "resource_groups")
    prepare(QuotaSpec(new_settings)).close()
    assert has_table(new_settings.history, "resource_groups")


def test_an_administrator_can_begin_anew(new_settings: Settings, tmp_path: Path) -> None:
    ensure_tables(new_settings.history)
    write_round(new_settings.history, epoch=1)
    shutil.rmtree(tmp_path / "history" / "resource_groups")
    put_quotas(new_settings, g=50.0)  # as `quotaplane groups put --init` does
    prepare(QuotaSpec(new_settings)).close()
