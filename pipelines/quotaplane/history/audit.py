"""Runs audits, the SQL files in ``audits/``, on the history with Spark.

The first comment line of a file is the question it answers; lines ``-- :name = value  meaning``
declare parameters with defaults. A query sees each table as a view of the same name, and two more
views: ``resource_group_changes`` (the change feed: version, changed_at, changed_by, change, and
the row) and
``limit_values`` (``audits/_limit_values.sql``). ``LATERAL VIEW by_dimension('{}_per_s') AS
dimension, rate`` makes a row per dimension out of columns per dimension (``{}``); it takes several
columns, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quotaplane.errors import InputError
from quotaplane.history.ddl import sql_type
from quotaplane.history.store import open_table, table_uri
from quotaplane.history.tables import RESOURCE_GROUPS, TABLES, Table
from quotaplane.laws.explain import reason_text
from quotaplane.model import DIMENSIONS
from quotaplane.settings import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER: Final = Path(__file__).parent / "audits"
_BY_DIMENSION: Final = re.compile(r"\bby_dimension\(([^()]*)\)")
_PARAMETER: Final = re.compile(r"^-- :(\w+) = ([\d.]+)  (.+)$", re.MULTILINE)
BEGINNING: Final = datetime(1970, 1, 2, tzinfo=timezone.utc)
"""Earlier than any history: the default of ``since``."""


@dataclass(frozen=True)
class Parameter:
    """A number that an audit takes."""

    default: float
    meaning: str
    """For ``--help``."""


@dataclass(frozen=True)
class Audit:
    """One audit."""

    name: str
    question: str
    sql: str
    """Has the named parameter ``:since`` and those of ``parameters``."""
    parameters: Mapping[str, Parameter]


def list_audits() -> list[Audit]:
    """The audits that come with quotaplane, sorted by name."""
    return [_parsed(file) for file in sorted(FOLDER.glob("[!_]*.sql"))]


def load_audit(name: str) -> Audit:
    """Load an audit by name, or any SQL file of the same form by its path.

    Raises:
        InputError: no such audit; the message lists all.
    """
    if name.endswith(".sql"):
        try:
            return _parsed(Path(name))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name}: can't be read: {error}") from None
    audits = {audit.name: audit for audit in list_audits()}
    if name not in audits:
        raise InputError(f"there is no audit {name!r}; there are {', '.join(audits)}")
    return audits[name]


def expanded(sql: str) -> str:
    """SQL in which each ``by_dimension`` is Spark's ``stack``.

    >>> expanded("by_dimension('{}_per_s')").split(", ")[1:4]
    ["'publish_messages'", 'publish_messages_per_s', "'publish_bytes'"]
    """

    def stack(found: re.Match[str]) -> str:
        columns = [name.strip().strip("'") for name in found[1].split(",")]
        rows = (
            ", ".join([f"'{dimension}'", *(column.format(dimension) for column in columns)])
            for dimension in DIMENSIONS
        )
        return f"stack({len(DIMENSIONS)}, {', '.join(rows)})"

    return _BY_DIMENSION.sub(stack, sql)


def _parsed(file: Path) -> Audit:
    sql = expanded(file.read_text(encoding="utf-8"))
    first = sql.partition("\n")[0]
    question = first.removeprefix("--").strip() if first.startswith("--") else file.name
    parameters = {m[1]: Parameter(float(m[2]), m[3]) for m in _PARAMETER.finditer(sql)}
    return Audit(file.stem, question, sql, parameters)


def parse_since(text: str, now: datetime, option: str = "--since") -> datetime:
    """Parse a point in time: ISO 8601 (UTC by default), or an age.

    ``option`` is named in errors.

    >>> noon = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    >>> parse_since("90m", noon).isoformat()
    '2026-03-01T10:30:00+00:00'
    >>> parse_since("2026-02-28", noon).isoformat()
    '2026-02-28T00:00:00+00:00'

    Raises:
        InputError: it is neither.
    """
    ago = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if ago:
        unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[ago[2]]
        return now - timedelta(**{unit: int(ago[1])})
    try:
        # Python 3.10 does not parse the Z.
        at = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        raise InputError(
            f"{option}: {text!r} is neither a time (2026-03-01T12:00:00Z) "
            "nor an age (30s, 15m, 2h, 7d)"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def register_views(spark: SparkSession, history: History, sql: str | None = None) -> None:
    """Create views of the history's tables as they are now: all, or those that ``sql`` names.

    Raises:
        HistoryError: a table is missing or has another schema.
    """
    limit_values = expanded((FOLDER / "_limit_values.sql").read_text("utf-8"))
    spark.udf.register("reason_text", reason_text, "string")
    text = None if sql is None else f"{sql} {limit_values}" if "limit_values" in sql else sql

    def wanted(name: str) -> bool:
        return text is None or re.search(rf"\b{name}\b", text) is not None

    for name in filter(wanted, TABLES):
        open_table(history, name)
        rows = spark.read.format("delta").load(table_uri(history, name))
        _completed(rows, TABLES[name]).createOrReplaceTempView(name)
    if wanted("resource_group_changes"):
        _changes(spark, history).createOrReplaceTempView("resource_group_changes")
    if wanted("limit_values"):
        spark.sql(limit_values).createOrReplaceTempView("limit_values")


def _changes(spark: SparkSession, history: History) -> DataFrame:
    # Who deleted a row is only in the commit, not in the row.
    commits = open_table(history, RESOURCE_GROUPS.name).history()
    users = [(entry["version"], entry.get("userName")) for entry in commits]
    by_version = spark.createDataFrame(users, "_commit_version long, user string")
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", min(version for version, _ in users))
        .load(table_uri(history, RESOURCE_GROUPS.name))
    )
    feed = _completed(feed, RESOURCE_GROUPS)
    return feed.join(by_version, "_commit_version").selectExpr(
        "_commit_version AS version",
        "_commit_timestamp AS changed_at",
        "coalesce(user, updated_by) AS changed_by",
        "_change_type AS change",
        *(n for n in RESOURCE_GROUPS.schema.names if not n.startswith("updated")),
    )


def _completed(rows: DataFrame, table: Table) -> DataFrame:
    """Add null columns that the table lacks, as no job of this version has opened it yet."""
    lacking = [field for field in table.schema if field.name not in rows.columns]
    nulls = (f"CAST(NULL AS {sql_type(field.type)}) AS {field.name}" for field in lacking)
    return rows.selectExpr("*", *nulls)


def ask(
    spark: SparkSession,
    audit: Audit,
    since: datetime = BEGINNING,
    parameters: Mapping[str, float] | None = None,
) -> DataFrame:
    """Run an audit on the views (``register_views``).

    Raises:
        InputError: the audit has no such parameter.
    """
    values = {name: parameter.default for name, parameter in audit.parameters.items()}
    for name, value in (parameters or {}).items():
        if name not in values:
            raise InputError(f"audit {audit.name} has no parameter {name}")
        values[name] = value
    # As text, because Spark would read a datetime in the session's time zone.
    since_text = since.astimezone(timezone.utc).isoformat()
    return spark.sql(audit.sql, args={"since": since_text, **values})
