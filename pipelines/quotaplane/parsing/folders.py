"""Paths and URIs of folders that several programs open, and must read alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator

_READ_DIFFERENTLY: Final = re.compile(r"[%\\^|*?\[\]{}\x00-\x1f\x7f]")
"""delta-rs decodes ``%20``, takes a backslash for ``/`` and fails at others; Spark and DuckDB take
some for patterns."""
_NO_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!//)")

FOR_SPARK: Final = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfss": "abfss", "hdfs": "hdfs"}
"""The schemes of stores that Spark and the deltalake package read alike, and Spark's names."""


def local_folder(uri: str) -> Path | None:
    """The folder of a table; None if it is on an object store.

    >>> local_folder("file:///data/my%20history/usage")
    PosixPath('/data/my history/usage')
    >>> local_folder("s3://bucket/history/usage") is None
    True
    """
    if "://" not in uri:
        return Path(uri).absolute()
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def location(uri: str) -> str:
    """A folder's place for messages: an absolute path, or the URI of a store.

    >>> location("s3://bucket/history"), location("file:///data/history")
    ('s3://bucket/history', '/data/history')
    """
    return str(local_folder(uri) or uri)


def spark_uri(uri: str) -> str:
    """The URI by which Spark finds a folder, whatever file system is Hadoop's default.

    Hadoop takes it as it is written, without ``%20`` for a space.

    >>> spark_uri("/data/my history"), spark_uri("s3://bucket/history")
    ('file:///data/my history', 's3a://bucket/history')
    """
    folder = local_folder(uri)
    if folder is not None:
        return f"file://{folder}"
    scheme, _, rest = uri.partition("://")
    return f"{FOR_SPARK[scheme]}://{rest}"


def checked_folder(uri: str) -> str:
    """A folder's path, or the URI of one on a store, if all readers find the same folder by it.

    Raises:
        ValueError: it is empty, or delta-rs, Spark, DuckDB and Python would not.

    >>> checked_folder("/data/my history"), checked_folder("file:///data/my%20history")
    ('/data/my history', '/data/my history')
    >>> checked_folder("/data/a%20b")
    Traceback (most recent call last):
    ValueError: '/data/a%20b' has the character '%', with which some readers find another folder ...
    """
    if not uri.strip():
        raise ValueError("is empty: name a folder")
    if _NO_URI.match(uri):
        raise ValueError(f"{uri!r} is neither a path nor a URI: write scheme://, or ./ before it")
    is_uri = "://" in uri
    parts = urlsplit(uri)
    if is_uri and parts.scheme not in ("file", *FOR_SPARK):
        raise ValueError(
            f"{uri!r}: there are no folders at {parts.scheme}://; write a path, or a URI of "
            f"{', '.join(FOR_SPARK)}"
        )
    if is_uri and parts.scheme != "file" and not parts.netloc:
        raise ValueError(f"{uri!r} names no {'host' if parts.scheme == 'hdfs' else 'bucket'}")
    if is_uri and parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ValueError(f"{uri!r} names the host {parts.netloc!r}: write file:///")
    name = location(uri)
    found = _READ_DIFFERENTLY.search(name) or (is_uri and re.search("[?#]", uri))
    if found:
        raise ValueError(
            f"{name!r} has the character {found[0]!r}, with which some readers find another folder"
            " or none: choose a path without it"
        )
    return name if is_uri else uri


FolderUri = Annotated[str, AfterValidator(checked_folder)]
"""A setting that names a folder; a local one is a path then, without ``file://``."""
