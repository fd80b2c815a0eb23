"""Extras of the package: ``pip install quotaplane[NAME]``, and the packages that each brings.

Modules import these packages plainly. ``missing_packages_named`` is around commands, jobs and the
functions that open a transport, so a package that is missing is one line that says what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from quotaplane.errors import ConfigError

EXTRAS: Final = {
    "spark": ("pyspark", "py4j", "delta", "pandas"),
    "kafka": ("kafka",),
    "pulsar": ("pulsar", "httpx"),
    "admin": ("plotly", "rich", "prometheus_client"),
    "server": ("fastapi", "starlette", "uvicorn", "jwt", "cryptography"),
    "tracing": ("opentelemetry",),
}
"""By extra: the packages that are imported. Those of several extras are at the first."""


@contextmanager
def missing_packages_named() -> Iterator[None]:
    """Turn the import error of a missing package into the name of the extra that brings it.

    Raises:
        ConfigError: a package of an extra is not installed.

    >>> with missing_packages_named():
    ...     raise ModuleNotFoundError(name="pulsar.schema")
    Traceback (most recent call last):
    ...
    quotaplane.errors.ConfigError: the package pulsar is missing: pip install 'quotaplane[pulsar]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((name for name, brings in EXTRAS.items() if package in brings), None)
        if extra is None:
            raise
        raise ConfigError(
            f"the package {package} is missing: pip install 'quotaplane[{extra}]'"
        ) from None
