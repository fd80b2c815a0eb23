"""A standby's rehearsal runs a round of the job, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from quotabalance.job.job import BalanceSpec
from quotaplane.streams import rehearsal
from quotaplane.streams.job import JobSpec, prepare
from quotaplane.streams.quota.job import QuotaSpec
from tests.job import put_quotas, settings_in

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("kind", [QuotaSpec, BalanceSpec])
def test_it_goes_through_the_operator_twice(
    kind: type[JobSpec], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    spec = kind(settings_in(tmp_path, shards=2))
    put_quotas(spec.settings, g=100.0)
    prepare(spec).close()
    before = {*tmp_path.rglob("*")}
    rows: list[int] = []
    frame = type(spark.range(1))
    to_arrow = frame.toArrow

    def counted(self: DataFrame) -> object:
        found = to_arrow(self)
        rows.append(found.num_rows)
        return found

    monkeypatch.setattr(frame, "toArrow", counted)
    said: list[str] = []
    rehearsal.rehearse(spark, spec, said.append)
    assert said == []
    assert len(rows) == 2
    assert all(rows), "the operator gave outputs"
    assert {*tmp_path.rglob("*")} == before


def test_a_rehearsal_that_fails_is_a_warning(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = QuotaSpec(settings_in(tmp_path, shards=2))
    put_quotas(spec.settings, g=100.0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    said: list[str] = []
    rehearsal.rehearse(spark, spec, said.append)
    assert len(said) == 1
    assert said[0].startswith("the rehearsal failed, so the first round may be slow: ")
