"""Checks that a Spark cluster authenticates its processes and encrypts what they exchange.

Without authentication, everybody who reaches a port of the driver or of an executor can run code
there, with the job's rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quotaplane.errors import ConfigError

_NEEDED: Final = (
    ("spark.authenticate", "true"),
    ("spark.network.crypto.enabled", "true"),
    ("spark.io.encryption.enabled", "true"),
    ("spark.ui.killEnabled", "false"),
)
_INSTEAD: Final = {"spark.network.crypto.enabled": "spark.ssl.rpc.enabled"}
_DEFAULTS: Final = {"spark.ui.killEnabled": "true"}
"""Spark's own; of the others it is false."""

_SECRET: Final = "spark.authenticate.secret"


def is_remote(master: str) -> bool:
    """Whether a Spark master is anything but processes of this machine.

    >>> [is_remote(m) for m in ("local[*]", "local-cluster[2,1,1024]", "yarn", "spark://h:7077")]
    [False, False, True, True]
    """
    return not master.startswith("local")


def missing_protections(options: Mapping[str, str]) -> list[str]:
    """The options that must be set and are not, as ``key=value``; empty with a local master.

    YARN and Kubernetes make a secret for each application; a standalone cluster needs one that its
    master and workers have, too.

    >>> missing_protections({"spark.master": "yarn", "spark.authenticate": "true",
    ...     "spark.ssl.rpc.enabled": "true", "spark.ui.killEnabled": "false"})
    ['spark.io.encryption.enabled=true']
    """
    master = options.get("spark.master", "local")
    if not is_remote(master):
        return []
    missing = [
        f"{key}={value}"
        for key, value in _NEEDED
        if _value(options, key) != value and _value(options, _INSTEAD.get(key, key)) != value
    ]
    if master.startswith("spark:") and not options.get(_SECRET):
        missing.append(f"{_SECRET}=(that of the cluster)")
    return missing


def _value(options: Mapping[str, str], key: str) -> str:
    return options.get(key, _DEFAULTS.get(key, "false")).strip().lower()


def check_protected(options: Mapping[str, str]) -> None:
    """Check a session's options before it starts.

    Raises:
        ConfigError: the master is remote, and the cluster would not be protected.
    """
    missing = missing_protections(options)
    if missing:
        raise ConfigError(
            f"Spark master {options['spark.master']}: without protection everybody who reaches "
            f"Spark's ports can run code as the job; set {', '.join(missing)} in a file for "
            "--properties-file (docs/operate/deploy.md, A Spark cluster), or allow it with "
            "security.allow_unprotected_spark: true"
        )
