"""A job says if all users of an HDFS can read its history."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from quotaplane.streams.stores import warning_about_readers


class HadoopPath:
    """Hadoop's Path, and its file system, with these rights."""

    rights: dict[str, str]

    def __init__(self, uri: str) -> None:
        self._place = PurePosixPath("/", uri.removeprefix("hdfs://h:1").strip("/"))

    def getFileSystem(self, _: object) -> HadoopPath:  # noqa: N802
        return self

    def getFileStatus(self, path: HadoopPath) -> Any:  # noqa: N802
        text = self.rights[str(path._place)]
        return SimpleNamespace(getPermission=lambda: SimpleNamespace(toString=lambda: text))

    def getParent(self) -> HadoopPath | None:  # noqa: N802
        return None if self._place.name == "" else HadoopPath(str(self._place.parent))


def warned(place: str, **rights: str) -> str | None:
    class Path(HadoopPath):
        pass

    HadoopPath.rights = {f"/{name}": text for name, text in rights.items()} | {"/": "rwxr-xr-x"}
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=Path))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)))
    java = SimpleNamespace(hadoopConfiguration=lambda: None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=java))
    return warning_about_readers(spark, place)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_a_history_that_others_can_read_is_warned_about_with_the_remedy() -> None:
    line = warned("hdfs://h:1/history", history="rwxr-xr-x")
    assert line == (
        "all users of this HDFS can read the history (rwxr-xr-x): "
        "hdfs dfs -chmod 700 hdfs://h:1/history"
    )


def test_a_private_folder_above_it_is_enough() -> None:
    assert warned("hdfs://h:1/history", history="rwxr-x---") is None
    nested = {"qp": "rwx------", "qp/history": "rwxr-xr-x"}
    assert warned("hdfs://h:1/qp/history", **nested) is None
    assert warned("hdfs://h:1/qp/history", **{**nested, "qp": "rwxr-xr-x"}) is not None


def test_nothing_is_said_where_others_may_read_or_there_are_no_rights() -> None:
    assert warned("s3a://bucket/history") is None
    os.umask(0o022)
    assert warned("hdfs://h:1/history", history="rwxr-xr-x") is None
