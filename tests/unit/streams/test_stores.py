"""Stores as Spark reaches them: URIs, Hadoop's options, connectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quotaplane.errors import ConfigError
from quotaplane.history.store import table_uri
from quotaplane.parsing.folders import spark_uri
from quotaplane.query.spark_engine import register_views
from quotaplane.registry.table import ensure_history
from quotaplane.settings import DeltaTransport, History
from quotaplane.streams.batch_attempts import BatchAttempts
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.group_events import group_events
from quotaplane.streams.stores import check_connectors, hadoop_options
from quotaplane.transport import open_transport


class Recording:
    """Anything: takes any call, and keeps the places that Spark is given."""

    def __init__(self, places: list[str]) -> None:
        self._places = places

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *given: Any, **_: Any) -> Any:
        self._places += [each for each in given if isinstance(each, str) and "/" in each]
        return self

    def __iter__(self) -> Any:
        return iter(())


@pytest.fixture
def spark() -> tuple[Any, list[str]]:
    places: list[str] = []
    return Recording(places), places


def test_whatever_spark_opens_is_a_whole_uri(
    spark: tuple[Any, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop resolves a plain path by its default file system, which may be another one."""
    session, places = spark
    monkeypatch.chdir(tmp_path)
    history = History(path="a history")
    ensure_history(history)
    group_events(session, history, 2)
    register_views(session, history, "SELECT * FROM resource_groups")
    open_transport(DeltaTransport(kind="delta", path="topics")).read_reports(session)
    monkeypatch.setattr(CheckpointFolder, "unfinished_batch", lambda _: None)
    folder = CheckpointFolder(session, "checkpoint")
    folder.read("quotaplane.json")
    places.append(BatchAttempts(folder, "quota").checkpoint)
    assert set(places) == {
        f"file://{tmp_path}/a history/resource_groups",
        f"file://{tmp_path}/topics/reports",
        f"file://{tmp_path}/checkpoint",
        f"file://{tmp_path}/checkpoint/quotaplane.json",
    }


@pytest.mark.parametrize(
    ("given", "for_python", "for_spark"),
    [
        ("file:///data/my%20history/", "/data/my history", "file:///data/my history"),
        ("file://localhost/data/h", "/data/h", "file:///data/h"),
        ("s3://bucket/h", "s3://bucket/h", "s3a://bucket/h"),
        ("s3a://bucket/h", "s3a://bucket/h", "s3a://bucket/h"),
        ("hdfs://names:8020/h", "hdfs://names:8020/h", "hdfs://names:8020/h"),
        ("gs://bucket/h", "gs://bucket/h", "gs://bucket/h"),
    ],
)
def test_a_place_is_the_same_for_all(given: str, for_python: str, for_spark: str) -> None:
    history = History(path=given)
    assert history.path == for_python
    assert spark_uri(history.path) == for_spark
    assert table_uri(history, "usage") == f"{for_python}/usage"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("ftp://host/h", "there are no folders at ftp://.*s3, s3a, gs, abfss, hdfs"),
        ("file://data/h", "names the host 'data': write file:///"),
        ("s3:///h", "names no bucket"),
    ],
)
def test_a_place_that_only_some_can_open_is_refused(given: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        History(path=given)


KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        (KEYS, {}, {"access.key": "a", "secret.key": "b"}),
        (
            {**KEYS, "aws_region": "r", "AWS_ENDPOINT_URL": "http://h", "AWS_SESSION_TOKEN": "t"},
            {"AWS_REGION": "other"},
            {
                "access.key": "a",
                "secret.key": "b",
                "session.token": "t",
                "endpoint": "http://h",
                "endpoint.region": "r",
                "path.style.access": "true",
            },
        ),
        (
            {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true", "AWS_SKIP_SIGNATURE": "true"},
            {"AWS_ENDPOINT_URL": "http://h", "AWS_ACCESS_KEY_ID": "of both by themselves"},
            {
                "endpoint": "http://h",
                "path.style.access": "false",
                "aws.credentials.provider": (
                    "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
                ),
            },
        ),
    ],
)
def test_keys_are_told_once(
    given: dict[str, str], environment: dict[str, str], expected: dict[str, str]
) -> None:
    found = hadoop_options({"s3a"}, given, environment)
    assert found == {f"fs.s3a.{key}": value for key, value in expected.items()}


def test_keys_of_other_stores() -> None:
    azure = {"AZURE_STORAGE_ACCOUNT_NAME": "n", "AZURE_STORAGE_ACCOUNT_KEY": "k"}
    assert hadoop_options({"abfss"}, azure, {}) == {
        "fs.azure.account.key.n.dfs.core.windows.net": "k"
    }
    google = {"GOOGLE_SERVICE_ACCOUNT": "/keys.json"}
    assert hadoop_options({"gs"}, google, {})["fs.gs.auth.service.account.json.keyfile"] == (
        "/keys.json"
    )
    assert hadoop_options({"hdfs"}, {**azure, **google}, {}) == {}


def test_a_missing_connector_is_told_before_spark_starts(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    launched = {
        "PYSPARK_SUBMIT_ARGS": "'--master' 'local[2]' pyspark-shell",
        "SPARK_DIST_CLASSPATH": f"{jars}/*",
    }
    places = ["/data/history", "s3://bucket/checkpoint"]
    refusal = r"^s3://bucket/checkpoint: Spark lacks .*: run \./spark-submit\.sh --setup s3$"
    with pytest.raises(ConfigError, match=refusal):
        check_connectors(places, launched)
    with pytest.raises(ConfigError, match=r"gcs-connector.* with --jars"):
        check_connectors(["gs://bucket/h"], launched)
    for more in ("--jars a.jar,/x/hadoop-aws-3.4.1.jar", "--packages a:b:1"):
        check_connectors(places, {**launched, "PYSPARK_SUBMIT_ARGS": f"{more} pyspark-shell"})
    check_connectors(places, {})
    (jars / "hadoop-aws-3.4.1.jar").touch()
    check_connectors(places, launched)
