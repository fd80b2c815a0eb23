"""Audits: questions to the history, each an SQL file in ``audits/``.

The first comment line of a file is the question. Lines ``-- :name = value  meaning`` declare
parameters with defaults, and ``-- violations: every row`` or ``-- violations: rows where COLUMN``
says which rows of the answer are violations; without it the audit only reports. A query has two
more parameters, the times ``:since`` and ``:until``, and sees the views that ``quotaplane.query``
describes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quotaplane.errors import InputError
from quotaplane.parsing.decimals import parse_decimal
from quotaplane.query.answer import Answer
from quotaplane.settings import Limits

FOLDER: Final = Path(__file__).parent / "audits"

_PARAMETER: Final = re.compile(r"^-- :(\w+) = (\S+)  (.+)$", re.MULTILINE)
_VIOLATIONS: Final = re.compile(r"^-- violations: (.+)$", re.MULTILINE)
_WHICH: Final = re.compile(r"every row|rows where (?P<column>\w+)")
_EVERY_ROW: Final = ""


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
    """Has the named parameters ``:since``, ``:until`` and those of ``parameters``."""
    parameters: Mapping[str, Parameter]
    violation: str | None
    """The column that is true in rows that are violations; "": every row is; None: none is."""
    place: str
    """For messages: the name, or the path of the file."""

    def values(self, given: Mapping[str, float] | None = None) -> dict[str, float]:
        """The values of all parameters: those given, and the defaults.

        Raises:
            InputError: the audit has no such parameter.
        """
        values = {name: parameter.default for name, parameter in self.parameters.items()}
        for name, value in (given or {}).items():
            if name not in values:
                raise InputError(f"audit {self.name} has no parameter {name}")
            values[name] = value
        return values

    def of_settings(self, limits: Limits) -> dict[str, float]:
        """The parameters that a settings file sets: ``over``, if the audit has it."""
        return {"over": limits.over} if "over" in self.parameters else {}

    def violations(self, answer: Answer) -> int:
        """The number of rows of an answer that are violations.

        Raises:
            InputError: the answer lacks the column of violations.
        """
        if self.violation is None:
            return 0
        if self.violation == _EVERY_ROW:
            return len(answer.rows)
        if self.violation not in answer.columns:
            raise InputError(
                f"its comment says `violations: rows where {self.violation}`, but the answer has "
                "no such column"
            )
        place = answer.columns.index(self.violation)
        return sum(1 for row in answer.rows if row[place])


def list_audits() -> list[Audit]:
    """The audits that come with quotaplane, sorted by name."""
    return [
        parse_audit(file.stem, file.read_text("utf-8")) for file in sorted(FOLDER.glob("*.sql"))
    ]


def load_audit(name: str) -> Audit:
    """Load an audit by name, or any SQL file of the same form by its path.

    Raises:
        InputError: there is no such audit (the message lists all), or its comments are wrong.
    """
    if name.endswith(".sql"):
        path = Path(name).absolute()
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{path}: can't be read: it is not UTF-8 text") from None
        except OSError as error:
            raise InputError(f"{path}: can't be read: {error.strerror or error}") from None
        try:
            return parse_audit(path.stem, text, str(path))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    audits = {audit.name: audit for audit in list_audits()}
    if name not in audits:
        raise InputError(f"there is no audit {name!r}; there are {', '.join(audits)}")
    return audits[name]


def parse_audit(name: str, sql: str, place: str | None = None) -> Audit:
    r"""The audit that the text of a file declares; ``place`` is the name by default.

    >>> audit = parse_audit("busy", "-- Who is busy?\n-- :rate = 10  from\nSELECT :rate")
    >>> audit.question, audit.parameters["rate"].default, audit.violation is None
    ('Who is busy?', 10.0, True)

    Raises:
        InputError: its comment on violations is wrong, or a default is no number.
    """
    first = sql.partition("\n")[0]
    question = first.removeprefix("--").strip() if first.startswith("--") else name
    parameters = {m[1]: Parameter(_default(m[1], m[2]), m[3]) for m in _PARAMETER.finditer(sql)}
    return Audit(name, question, sql, parameters, _violation(sql), place or name)


def _default(name: str, text: str) -> float:
    value = parse_decimal(text)
    if not 0 <= value < math.inf:
        raise InputError(f"parameter {name}: must be a number of 0 or more, not {text!r}")
    return value


def _violation(sql: str) -> str | None:
    declared = _VIOLATIONS.search(sql)
    if declared is None:
        return None
    which = _WHICH.fullmatch(declared[1].strip())
    if which is None:
        raise InputError(
            f"`violations: {declared[1].strip()}` must be `every row` or `rows where COLUMN`"
        )
    return which["column"] or _EVERY_ROW
