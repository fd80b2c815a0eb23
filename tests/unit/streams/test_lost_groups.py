"""A job does not make an empty table of quotas in the place of one that is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quotaplane.errors import HistoryError
from quotaplane.history.store import ensure_tables, has_table
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.job import prepare
from quotaplane.streams.quota.job import QuotaSpec
from tests.job import put_quotas, write_round


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return parse_settings(
        {
            "transport": {"kind": "delta", "path": str(tmp_path / "topics")},
            "history": {"path": str(tmp_path / "history")},
            "checkpoint": str(tmp_path / "checkpoint"),
        }
    )


def test_a_job_refuses_a_history_whose_quotas_are_gone(settings: Settings, tmp_path: Path) -> None:
    put_quotas(settings, g=100.0)
    write_round(settings.history, epoch=1)
    groups = tmp_path / "history" / "resource_groups"
    groups.rename(tmp_path / "away")
    with pytest.raises(HistoryError, match=r"resource_groups at .* is missing.*restore"):
        prepare(QuotaSpec(settings))
    assert not groups.exists()
    (tmp_path / "away").rename(groups)
    prepare(QuotaSpec(settings)).close()


def test_without_any_round_the_table_is_made(settings: Settings, tmp_path: Path) -> None:
    ensure_tables(settings.history)  # as a start that was killed amid it
    shutil.rmtree(tmp_path / "history" / "resource_groups")
    prepare(QuotaSpec(settings)).close()
    assert has_table(settings.history, "resource_groups")


def test_an_administrator_can_begin_anew(settings: Settings, tmp_path: Path) -> None:
    write_round_of_a_new_history(settings)
    shutil.rmtree(tmp_path / "history" / "resource_groups")
    put_quotas(settings, g=50.0)  # as `quotaplane groups put --init` does
    prepare(QuotaSpec(settings)).close()


def write_round_of_a_new_history(settings: Settings) -> None:
    """A history with a round."""
    ensure_tables(settings.history)
    write_round(settings.history, epoch=1)
