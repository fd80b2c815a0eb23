"""Finds out whether other users of an HDFS can read the history.

Its files are written without Hadoop's Java, which alone follows our umask: they get HDFS's usual
rights, so a folder above them must be private.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from quotaplane.files import umask_of_hadoop


def others_may_read(rights: Sequence[str]) -> bool:
    """Whether users that are neither owner nor group can read a folder.

    ``rights`` are those of the folder and of all above it, as ``rwxr-x---``.

    >>> others_may_read(["rwxr-xr-x", "rwxr-xr-x"])
    True
    >>> others_may_read(["rwxr-xr-x", "rwx------", "rwxr-xr-x"])
    False
    """
    return all(each[8] in "xt" for each in rights) and rights[0][6] == "r"


def warning_about_readers(spark: SparkSession, place: str) -> str | None:
    """The warning if a folder on HDFS should be private and is not; else None."""
    (umask,) = umask_of_hadoop().values()
    if not place.startswith(("hdfs://", "viewfs://")) or not int(umask, 8) & 0o4:
        return None
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    path = hadoop.Path(place)
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    rights = []
    while path is not None:
        rights.append(str(files.getFileStatus(path).getPermission().toString()))
        path = path.getParent()
    if not others_may_read(rights):
        return None
    return f"all users of this HDFS can read the history ({rights[0]}): hdfs dfs -chmod 700 {place}"
