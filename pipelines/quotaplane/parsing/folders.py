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


def checked_folder(uri: str) -> str:
    """A folder's path or URI, if all readers find the same folder by it.

    Raises:
        ValueError: it is empty, or delta-rs, Spark, DuckDB and Python would not.

    >>> checked_folder("/data/my history")
    '/data/my history'
    >>> checked_folder("/data/a%20b")
    Traceback (most recent call last):
    ValueError: '/data/a%20b' has the character '%', with which some readers find another folder ...
    """
    if not uri.strip():
        raise ValueError("is empty: name a folder")
    if _NO_URI.match(uri):
        raise ValueError(f"{uri!r} is neither a path nor a URI: write scheme://, or ./ before it")
    name = str(local_folder(uri) or uri)
    found = _READ_DIFFERENTLY.search(name) or ("://" in uri and re.search("[?#]", uri))
    if found:
        raise ValueError(
            f"{name!r} has the character {found[0]!r}, with which some readers find another folder"
            " or none: choose a path without it"
        )
    return uri


FolderUri = Annotated[str, AfterValidator(checked_folder)]
"""A setting that names a folder."""
