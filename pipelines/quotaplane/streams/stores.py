"""Stores as Spark reaches them: Hadoop's options from the settings, and its connectors.

The deltalake package reaches stores by itself; Spark needs a connector for each kind, and the same
keys by Hadoop's names.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError

from quotaplane.errors import ConfigError
from quotaplane.files import umask_of_hadoop
from quotaplane.history.store import storage_options
from quotaplane.parsing.folders import local_folder, spark_uri
from quotaplane.settings import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Connector(NamedTuple):
    jar: str
    """The begin of its name."""
    remedy: str


_CONNECTORS: Final = {
    "s3a": _Connector("hadoop-aws", "run ./spark-submit.sh --setup s3"),
    "gs": _Connector("gcs-connector", "give gcs-connector-hadoop3-latest.jar with --jars"),
    "abfss": _Connector(
        "hadoop-azure", "give hadoop-azure-3.4.1.jar and the jars that it needs with --jars"
    ),
}
"""Spark itself comes with that of hdfs."""

_HIDING: Final = ("--packages", "--driver-class-path", "spark.jars", "extraClassPath")
"""Options of Spark with which a connector may come from anywhere."""

_WITHOUT_CLASSES: Final = ("ClassNotFoundException", "NoClassDefFoundError", "No FileSystem for")

_S3_NAMES: Final = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "token": "session.token",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "default_region": "endpoint.region",
    "region": "endpoint.region",
}
_FROM_ENVIRONMENT: Final = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables that the deltalake package obeys, too; each side looks for keys by itself."""
_AWS_CHAIN: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
"""Variables, files and roles of a machine, as the deltalake package looks for keys."""
_ANONYMOUS: Final = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_AZURE_LOGIN: Final = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"


def check_connectors(places: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Check that Spark will find its connectors, before it is started.

    Where that can't be seen here, ``connect`` says it.

    Raises:
        ConfigError: one is missing.
    """
    arguments = environment.get("PYSPARK_SUBMIT_ARGS")
    if arguments is None:  # a cluster started this process
        return
    words = shlex.split(arguments)
    given = dict(pairwise(words))
    told = arguments
    if "--properties-file" in given:
        told += Path(given["--properties-file"]).read_text("utf-8", errors="replace")
    if any(hiding in told for hiding in _HIDING):
        return
    folders = environment.get("SPARK_DIST_CLASSPATH", "").split(":")
    folders.append(f"{environment.get('SPARK_HOME', '')}/jars/*")
    jars = [jar for each in folders if each.endswith("/*") for jar in Path(each[:-2]).glob("*.jar")]
    names = [jar.name for jar in (*jars, *map(Path, given.get("--jars", "").split(",")))]
    for place in places:
        connector = _CONNECTORS.get(_scheme(place))
        if connector and not any(name.startswith(connector.jar) for name in names):
            raise _missing(place, connector)


def connect(spark: SparkSession, history: History, places: Iterable[str]) -> None:
    """Let a session reach stores with the history's keys; what Spark's own options say goes first.

    The keys are neither on a command line nor among Spark's options, which its page shows.

    Raises:
        ConfigError: a connector is missing.
    """
    jvm: Any = spark.sparkContext._jvm
    jsc: Any = spark.sparkContext._jsc
    hadoop, own = jsc.hadoopConfiguration(), spark.sparkContext.getConf()
    schemes = {_scheme(place) for place in places if local_folder(place) is None}
    for key, value in hadoop_options(schemes, storage_options(history) or {}).items():
        if not own.contains(f"spark.hadoop.{key}"):
            hadoop.set(key, value)
    for place in places:
        if local_folder(place) is not None:
            continue
        try:
            jvm.org.apache.hadoop.fs.Path(spark_uri(place)).getFileSystem(hadoop)
        except Py4JJavaError as error:
            reason = str(error.java_exception)
            if not any(text in reason for text in _WITHOUT_CLASSES):
                raise ConfigError(f"{place}: {reason.splitlines()[0]}") from None
            connector = _CONNECTORS.get(_scheme(place), _Connector("", "see its documentation"))
            raise _missing(place, connector) from None


def hadoop_options(
    schemes: Iterable[str],
    options: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Hadoop's options for stores, by Spark's schemes, from those of the deltalake package.

    >>> told = {"AWS_ACCESS_KEY_ID": "a", "AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}
    >>> hadoop_options(["s3a"], told, {})
    {'fs.s3a.access.key': 'a', 'fs.s3a.endpoint': 'http://127.0.0.1:9000',
    'fs.s3a.path.style.access': 'true'}
    """
    named = {key.lower(): value for key, value in options.items()}
    found: dict[str, str] = {}
    if "s3a" in schemes:
        variables = {k: environment[k] for k in _FROM_ENVIRONMENT if k in environment}
        found |= _of_s3({key.lower(): value for key, value in variables.items()} | named)
    if "abfss" in schemes:
        found |= _of_azure(named)
    if "gs" in schemes:
        found |= _of_google(named)
    return found


def _of_s3(named: Mapping[str, str]) -> dict[str, str]:
    short = {key.removeprefix("aws_"): value for key, value in named.items()}
    found = {f"fs.s3a.{name}": short[key] for key, name in _S3_NAMES.items() if key in short}
    if "fs.s3a.endpoint" in found:
        # The deltalake package writes the bucket into the path, unless it is told otherwise.
        in_path = short.get("virtual_hosted_style_request", "false").lower() != "true"
        found["fs.s3a.path.style.access"] = str(in_path).lower()
    if short.get("skip_signature", "false").lower() == "true":
        found["fs.s3a.aws.credentials.provider"] = _ANONYMOUS
    elif "fs.s3a.access.key" not in found:
        found["fs.s3a.aws.credentials.provider"] = _AWS_CHAIN
    return found


def _of_azure(named: Mapping[str, str]) -> dict[str, str]:
    short = {key.removeprefix("azure_").removeprefix("storage_"): v for key, v in named.items()}
    if {"client_id", "client_secret", "tenant_id"} <= short.keys():
        login = f"https://login.microsoftonline.com/{short['tenant_id']}/oauth2/token"
        return {
            "fs.azure.account.auth.type": "OAuth",
            "fs.azure.account.oauth.provider.type": _AZURE_LOGIN,
            "fs.azure.account.oauth2.client.endpoint": login,
            "fs.azure.account.oauth2.client.id": short["client_id"],
            "fs.azure.account.oauth2.client.secret": short["client_secret"],
        }
    key = short.get("account_key", short.get("access_key"))
    if key is None or "account_name" not in short:
        return {}
    return {f"fs.azure.account.key.{short['account_name']}.dfs.core.windows.net": key}


def _of_google(named: Mapping[str, str]) -> dict[str, str]:
    file = named.get("google_service_account") or named.get("google_application_credentials")
    if file is None:
        return {}
    return {
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": file,
    }


def _scheme(place: str) -> str:
    return spark_uri(place).partition("://")[0]


def _missing(place: str, connector: _Connector) -> ConfigError:
    return ConfigError(f"{place}: Spark lacks the connector of this store: {connector.remedy}")


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
    """The warning if a folder on HDFS should be private and is not; else None.

    Files of the history are written without Hadoop's Java, which alone follows our umask: they get
    HDFS's usual rights, so a folder above them must be private.
    """
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
