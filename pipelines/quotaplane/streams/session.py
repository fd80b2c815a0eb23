"""Starts the Spark session of every job and test.

Options common to all are in ``conf/spark-defaults.conf``. ``./spark-submit.sh`` finds Spark, its
jars and its Python, and passes them on in the environment. This module adds the options that only
the running job knows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from quotaplane.errors import ConfigError, QuotaplaneError
from quotaplane.files import umask_of_hadoop
from quotaplane.settings import Protections
from quotaplane.streams.spark_log import SparkLog, in_cluster_mode
from quotaplane.streams.spark_protection import check_protected

LAUNCHED_BY: Final = "PYSPARK_SUBMIT_ARGS"
"""Environment variable with the master, the jars and the administrator's Spark options."""

_NOTHING_ALLOWED: Final = Protections()


def build_session(
    name: str,
    conf: Mapping[str, str] | None = None,
    *,
    log_level: str = "warn",
    log: SparkLog | None = None,
    security: Protections = _NOTHING_ALLOWED,
) -> SparkSession:
    """Start Spark, or return the running session with ``conf`` applied to it.

    Args:
        name: shown in Spark's UI and by the cluster manager; the launcher's ``--name`` wins.
        conf: options that depend on the settings, as ``{"spark.sql.shuffle.partitions": "2"}``;
            they win over ``conf/spark-defaults.conf`` and over the administrator's options.
        log_level: of Spark's own log; ``QUOTAPLANE_LOG_LEVEL`` wins. The JVM reads it when it
            starts, so only a process's first session sets it.
        log: receives Spark's output; None: it is printed on stderr.
        security: whether a remote master may be one that does not authenticate and encrypt.

    Raises:
        ConfigError: this process was not started by the launcher; or the master is remote, and the
            cluster would not be protected.
        QuotaplaneError: Spark did not start.
    """
    submit_args = os.environ.get(LAUNCHED_BY)
    if submit_args is None and not in_cluster_mode():
        raise ConfigError(
            f"{name}: no Spark options in {LAUNCHED_BY}; start jobs with ./spark-submit.sh JOB"
        )
    os.environ.setdefault("QUOTAPLANE_LOG_LEVEL", log_level)
    conf = {**umask_of_hadoop(), **(conf or {})}
    builder = SparkSession.builder
    if "--name" not in (submit_args or "").split():
        builder = builder.appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        if SparkContext._active_spark_context is None:
            _start_jvm(conf, log)
            if not security.allow_unprotected_spark:
                # The JVM has read all places where options may be: command line and files.
                check_protected({**dict(SparkConf().getAll()), **conf})
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        reason = " ".join(str(error).split())
        where = "" if log is None else f": {log.last_line()} (Spark's log {log.place})"
        raise QuotaplaneError(f"Spark did not start: {reason}{where}") from error


def _start_jvm(conf: Mapping[str, str], log: SparkLog | None) -> None:
    """Start Spark's JVM as PySpark would, with its output sent to ``log`` if there is one."""
    if log is None or in_cluster_mode():
        # If a cluster started the JVM, the cluster has its output.
        SparkContext._ensure_initialized(conf=_not_yet_set(conf))
        return
    end = log.collect()
    try:
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            _not_yet_set(conf), {"stdout": end, "stderr": end}
        )
    finally:
        os.close(end)
    SparkContext._ensure_initialized(gateway=gateway)


def _not_yet_set(conf: Mapping[str, str]) -> SparkConf:
    """Options for a JVM that does not run yet."""
    options = SparkConf(loadDefaults=False)
    for key, value in conf.items():
        options.set(key, value)
    return options
