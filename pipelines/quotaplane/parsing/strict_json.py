"""Reads JSON cases and scenarios of users strictly; errors name the wrong field."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from quotaplane.errors import InputError
from quotaplane.model import MAX_RATE
from quotaplane.parsing.bounded_json import is_unicode
from quotaplane.parsing.decimals import DOUBTFUL_ZERO, is_doubtful_zero

Rate = Annotated[float, Field(ge=0, le=MAX_RATE)]
"""A rate per second: finite, not negative."""

Weight = Annotated[float, Field(ge=1e-9, le=1e9)]
"""A broker's weight; only ratios between weights matter."""

Priority = Annotated[int, Field(ge=-1000, le=1000)]
"""Demands of higher priority are met first."""


class CaseModel(BaseModel):
    """Base class of models for user input: unknown keys are errors, values are not converted."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )


Case = TypeVar("Case", bound=BaseModel)


def load_case(path: str, model: type[Case]) -> Case:
    """Read a JSON file (``-`` is stdin) and check it against a model.

    Raises:
        InputError: in one line the file, the field and what is wrong.
    """
    return parse_case(read_json(path), model, source=source_name(path))


def source_name(path: str) -> str:
    """The name of the input in errors: the file's absolute path, or ``stdin``."""
    return "stdin" if path == "-" else str(Path(path).absolute())


def read_json(path: str) -> object:
    """Parse a JSON file strictly: UTF-8, no duplicate keys, no NaN, Infinity or ``-0``.

    Raises:
        InputError: the file can't be read, or is not such JSON.
    """
    return parse_json(read_text(path), source_name(path))


def read_text(path: str, most_bytes: int | None = None) -> str:
    """Read a text file of a user (``-`` is stdin) as UTF-8.

    Raises:
        InputError: the file can't be read, is not UTF-8, or has more than ``most_bytes``.
    """
    source = source_name(path)
    read = -1 if most_bytes is None else most_bytes + 1
    try:
        if path != "-":
            with Path(path).open("rb") as file:
                data = file.read(read)
        elif sys.stdin is None:
            raise InputError("stdin is closed; give a file, or pipe the input into the command")
        else:
            data = sys.stdin.buffer.read(read)
    except OSError as error:
        raise InputError(f"{source}: can't be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the path
        raise InputError(f"{source}: can't be read: {error}") from None
    if most_bytes is not None and len(data) > most_bytes:
        raise InputError(f"{source}: larger than {most_bytes >> 20} MB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not UTF-8 (byte {error.start})") from None


def parse_json(text: str, source: str) -> object:
    """Parse JSON strictly: no duplicate keys, no NaN, Infinity or ``-0``.

    ``source`` names it in errors.

    Raises:
        InputError: the text is not such JSON.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise InputError(f"{source}: {key}: the key occurs twice")
            result[key] = value
        return result

    def fraction(digits: str) -> float:
        if is_doubtful_zero(digits):
            raise InputError(f"{source}: {digits}: {DOUBTFUL_ZERO}")
        return float(digits)

    def whole(digits: str) -> int:
        return int(digits) or int(fraction(digits))

    def refuse(name: str) -> NoReturn:
        raise InputError(f"{source}: {name} is not a JSON number; leave the key out or use null")

    try:
        parsed: object = json.loads(
            text,
            object_pairs_hook=unique,
            parse_float=fraction,
            parse_int=whole,
            parse_constant=refuse,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{source}: not JSON: {error.msg} ({where})") from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply") from None
    except ValueError:
        raise InputError(f"{source}: a whole number has too many digits") from None
    if not is_unicode(text, parsed):
        raise InputError(f"{source}: a text in it is not Unicode")
    return parsed


def parse_case(raw: object, model: type[Case], source: str) -> Case:
    """Check parsed JSON against a model; ``source`` names it in errors.

    Raises:
        InputError: the first wrong field, as ``source: path.to.field: what is wrong``.
    """
    if not isinstance(raw, dict):
        raise InputError(f"{source}: must be an object, not {json_type(raw)}")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise InputError(first_of_all(error, raw, source)) from None


def first_of_all(
    error: ValidationError, raw: object, source: str, unsaid: Collection[str] = ("[key]",)
) -> str:
    """The first thing that pydantic found wrong in ``raw``, and how many more there are.

    ``unsaid``: parts of pydantic's paths that are no keys of ``raw``.
    """
    first, more = error.errors(include_url=False)[0], error.error_count() - 1
    field = ".".join(str(part) for part in first["loc"] if part not in unsaid)
    where = f"{source}: {field}" if field else source  # no single field is wrong
    also = f" (and {more} more)" if more else ""
    return f"{where}: {explain(first, raw)}{also}"


def first_error(error: ValidationError) -> str:
    """The first thing that pydantic found wrong, in one line that begins with the field."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    text = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        text = _TEXTS["extra_forbidden"]
    return f"{field}: {text}" if field else text


def check_expressions(texts: Iterable[str]) -> None:
    """Check regular expressions.

    Raises:
        ValueError: the first text that is none, or that Java and later Pythons read differently
            than this one, which only warns: sets of characters within each other (``[[a]b]``).
    """
    for text in texts:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)
                re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
        except FutureWarning as warning:
            raise ValueError(
                f"{text!r} is not a clear regular expression: {str(warning).lower()}; put a "
                "backslash before '[', '-', '&', '~' and '|' that mean themselves in brackets"
            ) from None


_WANTED: Final = {
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "a string",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
}

_TEXTS: Final = {
    "missing": "is required",
    "extra_forbidden": "unknown key",
    "finite_number": "must be a finite number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "bool_parsing": "must be true or false",
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
}


def explain(error: Mapping[str, Any], raw: object) -> str:
    """The problem of a value in a few words, to follow its name.

    ``error`` is one of pydantic's ``errors()`` about ``raw``.
    """
    kind = error["type"]
    if kind in _WANTED:
        found = _at(raw, error["loc"])
        if kind == "float_type" and isinstance(found, int) and not isinstance(found, bool):
            return "must be a number of 64 bits"
        return f"must be {_WANTED[kind]}, not {json_type(found)}"
    if kind in _TEXTS:
        return _TEXTS[kind].format(**error.get("ctx", {}))
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _at(raw: Any, path: tuple[int | str, ...]) -> object:
    for part in path:
        try:
            raw = raw[part]
        except (KeyError, IndexError, TypeError):  # a marker of pydantic, such as "[key]"
            continue
    return raw


def json_type(value: object) -> str:
    """Describe the type of a JSON value.

    >>> json_type("10"), json_type(None), json_type(True)
    ('a string', 'null', 'true')
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {str: "a string", dict: "an object", list: "a list", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
