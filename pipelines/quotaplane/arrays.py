"""Small array operations that several rooms use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from quotaplane.model import FloatArray, IntArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


def map_arrays(change: Callable[..., npt.NDArray[Any]], record: Record, *others: Record) -> Record:
    """The record with ``change(array, *those of the others)`` in place of every array.

    Arrays of records within it are changed, too; all else stays.
    """
    changed: dict[str, Any] = {}
    for field in fields(record):
        value, *more = (getattr(each, field.name) for each in (record, *others))
        if isinstance(value, np.ndarray):
            changed[field.name] = change(value, *more)
        elif is_dataclass(value):
            changed[field.name] = map_arrays(change, value, *more)
    return replace(record, **changed)


def taken(record: Record, chosen: Any) -> Record:
    """Select along the last axis of every array; ``chosen``: a mask, indexes or a slice."""
    return map_arrays(lambda array: array[..., chosen], record)


def to_single(rates: FloatArray) -> FloatArray:
    """Round rates, from 0, down to float32 precision: limits still add up to at most the quota.

    >>> float(to_single(np.array([1 / 3]))[0]) <= 1 / 3
    True
    """
    single = rates.astype(np.float32)
    bits = single.view(np.int32)
    bits -= single > rates  # the next lower one; np.nextafter takes several times as long
    return single.astype(np.float64)


def to_half(values: FloatArray) -> FloatArray:
    """Round to float16, the precision in which the state keeps noise and deviations."""
    most = float(np.finfo(np.float16).max)
    half: FloatArray = np.clip(values, -most, most).astype(np.float16).astype(np.float64)
    return half


def find(keys: IntArray, wanted: IntArray) -> IntArray:
    """The index of each ``wanted`` key (m,) in ``keys`` (n,), which ascend; -1: it is not there.

    >>> find(np.array([3, 5]), np.array([5, 4, 9])).tolist()
    [1, -1, -1]
    """
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)


def last_values(values: FloatArray, before: FloatArray, key: IntArray) -> FloatArray:
    """(k, m) the ``values`` of entries; NaN is replaced by the last value of the same key.

    ``before`` (k, n): the values that the n keys had before. Entries are sorted by key.

    >>> values, before = np.array([[np.nan, 1.0, np.nan, np.nan]]), np.array([[5.0, 6.0]])
    >>> last_values(values, before, np.array([0, 0, 0, 1]))
    array([[5., 1., 1., 6.]])
    """
    if not np.isnan(values).any():
        return values
    last = np.take_along_axis(values, last_positions(values, key), axis=1)
    return np.where(np.isnan(last), before[:, key], last)


def last_positions(values: FloatArray, key: IntArray) -> IntArray:
    """(k, m) for each entry, the position of the last value up to it that is not NaN.

    Only entries of the same key count; without any value it is the position of the first of these.
    Entries are sorted by key.

    >>> key = np.array([0, 0, 1, 1, 1])
    >>> last_positions(np.array([[1.0, np.nan, np.nan, 4.0, np.nan]]), key)
    array([[0, 0, 2, 3, 3]])
    """
    positions = np.arange(len(key))
    first = np.where(np.diff(key, prepend=-1) != 0, positions, 0)
    return np.maximum.accumulate(np.where(np.isnan(values), first, positions), axis=1)
