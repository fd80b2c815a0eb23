"""The kinds of a group's options: a number, one of some words, or JSON.

An option has its columns of the table ``resource_groups``, checks their values, parses a value that
a person wrote, and reads rows into the arrays of a shard's state.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from quotaplane.errors import InputError
from quotaplane.groups.pulsar_fields import PulsarFields
from quotaplane.groups.terms_by_broker import TermsByBroker
from quotaplane.model import RATE_COLUMNS, FloatArray
from quotaplane.parsing.decimals import how_to_write, parse_decimal
from quotaplane.parsing.strict_json import parse_case
from quotaplane.throttle.terms import TermsByDimension

OptionArray: TypeAlias = npt.NDArray[Any]
"""An option of a shard's groups: (groups,), or (dimensions, groups)."""

_MOST_WHOLE: Final = 2**53 - 1
"""Whole numbers beyond it are out of every range, and a float does not have all of them."""


@dataclass(frozen=True, kw_only=True)
class Option(ABC):
    """An option of a group, besides its quotas."""

    name: str
    help: str
    """A description for the command line, the comments of the table's columns and the docs."""

    metavar: ClassVar[str | None] = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns in the table."""
        return (self.name,)

    @property
    @abstractmethod
    def column_type(self) -> pa.DataType:
        """The type of each of its columns."""

    @property
    @abstractmethod
    def null_means(self) -> Any:
        """The default: what null in its columns stands for. It is never written down."""

    @property
    @abstractmethod
    def allowed(self) -> str:
        """The allowed values, in a word or two."""

    @property
    def default_text(self) -> str:
        """The default as people read it."""
        return str(self.null_means)

    @property
    def comment(self) -> str:
        """The comment of its columns."""
        return f"{self.help}; null = {self.default_text}"

    @abstractmethod
    def parse(self, given: Any, field: str) -> object:
        """A value as people write it, which need not be in range yet.

        Raises:
            InputError: it is not of the option's kind; names the field.
        """

    @abstractmethod
    def fits(self, values: pa.Array) -> pa.BooleanArray:
        """Which values of a column may be there; null for null."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """The condition for a value, to follow "must be" in a message."""

    def flaws(self, column: str, values: pa.Array) -> Iterator[tuple[int, str]]:
        """The rows of a column with a value that is not allowed, and a message for each."""
        bad = pc.and_not(pc.is_valid(values), self.fits(values).fill_null(True))
        for row in np.flatnonzero(bad.to_numpy(False)).tolist():
            value = values[row].as_py()
            yield row, f"{column}: must be {self.rule}, not {repr(value).removesuffix('.0')}"


@dataclass(frozen=True, kw_only=True)
class ArrayOption(Option):
    """An option that is an array in a shard's state."""

    by_dimension: ClassVar[bool] = False

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The type of the array in memory."""

    @property
    def dtype_at_rest(self) -> np.dtype[Any]:
        """The type of the array in a checkpoint."""
        return self.dtype

    @property
    def default_code(self) -> Any:
        """The default as the array has it."""
        return self.dtype.type(self.null_means)

    def filled(self, groups: int) -> OptionArray:
        """The array of this many groups, all with the default."""
        return np.full(groups, self.default_code, self.dtype)

    @abstractmethod
    def read(self, rows: pa.Table) -> OptionArray:
        """The array of the groups in ``rows``, whose columns may be absent.

        A value that is not allowed becomes the nearest allowed one, or the default.
        """


@dataclass(frozen=True, kw_only=True)
class NumberOption(ArrayOption):
    """A number within a range.

    >>> priority = NumberOption(name="p", help="", least=-9, most=9, default=1, is_whole=True)
    >>> priority.read(pa.table({"p": [None, 70, -3]})).tolist()
    [1, 9, -3]
    >>> priority.comment, priority.dtype_at_rest
    ('; null = 1', dtype('int8'))
    """

    least: float
    most: float
    default: float
    is_whole: bool = False

    metavar = "N"

    @property
    def column_type(self) -> pa.DataType:
        """A whole number has 64 bits."""
        return pa.int64() if self.is_whole else pa.float64()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its column."""
        return np.dtype(np.int64 if self.is_whole else np.float64)

    @property
    def dtype_at_rest(self) -> np.dtype[Any]:
        """A whole number is kept as small as its range allows."""
        if not self.is_whole:
            return self.dtype
        for bits in (8, 16, 32):
            if -(2 ** (bits - 1)) <= self.least and self.most < 2 ** (bits - 1):
                return np.dtype(f"int{bits}")
        return self.dtype

    @property
    def allowed(self) -> str:
        """Its range."""
        return f"{self.least:g} to {self.most:g}"

    @property
    def null_means(self) -> float:
        """``default``."""
        return self.default

    @property
    def default_text(self) -> str:
        """The default, without ".0"."""
        return f"{self.default:g}"

    @property
    def rule(self) -> str:
        """Its range."""
        return f"a number from {self.allowed}"

    def parse(self, given: Any, field: str) -> float:
        """A number, or a text of one."""
        value = number(given)
        if not math.isfinite(value):
            raise InputError(f"{field}: must be a number, not {given!r}{how_to_write(given)}")
        if not self.is_whole:
            return value
        if value != round(value):
            raise InputError(f"{field}: must be a whole number, not {given!r}")
        if abs(value) > _MOST_WHOLE:
            raise InputError(f"{field}: must be {self.rule}, not {given!r}")
        return int(value)

    def fits(self, values: pa.Array) -> pa.BooleanArray:
        """Those within the range."""
        return pc.and_(pc.greater_equal(values, self.least), pc.less_equal(values, self.most))

    def read(self, rows: pa.Table) -> OptionArray:
        """Clipped to the range."""
        return self._read(rows, self.name)

    def _read(self, rows: pa.Table, column: str) -> OptionArray:
        return np.clip(read_numbers(rows, column, self.default), self.least, self.most).astype(
            self.dtype
        )


@dataclass(frozen=True, kw_only=True)
class RateOption(NumberOption):
    """A number for each dimension.

    >>> RateOption(name="floor", help="", least=0, most=1, default=0).columns[0]
    'floor_publish_messages_per_s'
    """

    by_dimension = True

    @property
    def columns(self) -> tuple[str, ...]:
        """One for each dimension."""
        return tuple(f"{self.name}_{column}" for column in RATE_COLUMNS)

    def filled(self, groups: int) -> OptionArray:
        """(dimensions, groups)"""
        return np.full((len(RATE_COLUMNS), groups), self.default_code, self.dtype)

    def read(self, rows: pa.Table) -> OptionArray:
        """(dimensions, groups)"""
        return np.stack([self._read(rows, column) for column in self.columns])


@dataclass(frozen=True, kw_only=True)
class ChoiceOption(ArrayOption):
    """One of a few words, the first by default; its code in an array is its index among them.

    >>> mode = ChoiceOption(name="mode", help="", choices=("hard", "soft"))
    >>> mode.read(pa.table({"mode": ["soft", None, "loud"]})).tolist()
    [1, 0, 0]
    """

    choices: tuple[str, ...]

    @property
    def column_type(self) -> pa.DataType:
        """The word."""
        return pa.string()

    @property
    def null_means(self) -> str:
        """The first word."""
        return self.choices[0]

    @property
    def allowed(self) -> str:
        """The words."""
        return ", ".join(self.choices)

    @property
    def rule(self) -> str:
        """The words."""
        return f"one of {self.allowed}"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a word's code."""
        return np.dtype(np.uint8)

    @property
    def default_code(self) -> Any:
        """The first word's."""
        return np.uint8(0)

    def parse(self, given: Any, field: str) -> str:
        """Any text."""
        if not isinstance(given, str):
            raise InputError(f"{field}: must be {self.rule}, not {given!r}")
        return given

    def fits(self, values: pa.Array) -> pa.BooleanArray:
        """The words."""
        return pc.is_in(values, pa.array(self.choices))

    def read(self, rows: pa.Table) -> OptionArray:
        """Unknown words are the default."""
        if self.name not in rows.column_names:
            return np.zeros(len(rows), self.dtype)
        known = pc.index_in(rows[self.name].combine_chunks(), value_set=pa.array(self.choices))
        codes: OptionArray = known.fill_null(0).to_numpy().astype(self.dtype)
        return codes


@dataclass(frozen=True, kw_only=True)
class JsonOption(Option):
    """JSON in one form, as ``model`` writes it; the quota step has arrays of its own for it."""

    model: type[TermsByBroker] | type[TermsByDimension] | type[PulsarFields]
    rule_in_words: str
    default_in_words: str

    metavar = "FILE|JSON"

    @property
    def column_type(self) -> pa.DataType:
        """The text."""
        return pa.string()

    @property
    def null_means(self) -> str:
        """An empty object."""
        return "{}"

    @property
    def default_text(self) -> str:
        """In words."""
        return self.default_in_words

    @property
    def allowed(self) -> str:
        """Any JSON that the model reads."""
        return "JSON"

    @property
    def comment(self) -> str:
        """The comment of its columns."""
        return f"JSON: {super().comment}"

    @property
    def rule(self) -> str:
        """In words."""
        return self.rule_in_words

    def parse(self, given: Any, field: str) -> str:
        """JSON that is parsed already."""
        return parse_case(given, self.model, field).text()

    def fits(self, values: pa.Array) -> pa.BooleanArray:
        """Those that the model can read."""
        texts = values.dictionary_encode()  # many groups have the same text
        good = [self._reads(text) for text in texts.dictionary.to_pylist()]
        return pa.array(good, pa.bool_()).take(texts.indices)

    def _reads(self, text: str) -> bool:
        try:
            self.model.model_validate_json(text)
        except ValidationError:
            return False
        return True


def number(given: object) -> float:
    """A number; NaN for anything else, and for a text that not all programs read alike.

    >>> number("1e3"), number(True), number("0100")
    (1000.0, nan, nan)
    """
    if isinstance(given, str):
        return parse_decimal(given)
    try:
        # A bool is a number to Python, but ``true`` in a quota is a mistake.
        return math.nan if isinstance(given, bool) else float(given)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return math.nan


def read_numbers(rows: pa.Table, column: str, default: float) -> FloatArray:
    """A column of numbers (rows,), which may be absent; ``default`` for null and NaN."""
    if column not in rows.column_names:
        return np.full(len(rows), default)
    values: FloatArray = (
        rows[column]
        .cast(pa.float64(), safe=False)
        .fill_null(default)
        .combine_chunks()
        .to_numpy(zero_copy_only=False)
    )
    return np.where(np.isnan(values), default, values)
