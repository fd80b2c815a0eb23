"""Keys for the stateful operator with which Spark puts one shard into each shuffle partition.

Spark puts a row into partition ``pmod(murmur3(key), partitions)``. If the key were the shard's
number, shards 0 and 1 would share one of two partitions, and one core would do the work of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quotaplane.model import IntArray

_SEED: Final = 42  # seed of Spark's HashPartitioning
_TRIES: Final = 64  # keys tried per shard; the odds that one shard gets none are 1 in e**64


def partition_of(keys: Sequence[int] | IntArray, partitions: int) -> IntArray:
    """The shuffle partition of each int key: Spark's ``pmod(hash(key), partitions)``.

    >>> partition_of([0, 1, 2, 3], 2).tolist()
    [1, 1, 0, 1]
    """
    words = np.asarray(keys, np.int64).astype(np.uint32)
    words = words * np.uint32(0xCC9E2D51)
    words = (words << np.uint32(15) | words >> np.uint32(17)) * np.uint32(0x1B873593)
    words = words ^ np.uint32(_SEED)
    words = (words << np.uint32(13) | words >> np.uint32(19)) * np.uint32(5) + np.uint32(0xE6546B64)
    words = words ^ np.uint32(4)
    words = (words ^ words >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    words = (words ^ words >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    words = words ^ words >> np.uint32(16)
    return words.view(np.int32).astype(np.int64) % partitions


def keys_of_shards(shards: int) -> IntArray:
    """For each shard, the smallest key that Spark puts into the partition of the same number.

    >>> keys_of_shards(2).tolist()
    [2, 0]
    """
    partition = partition_of(np.arange(_TRIES * shards), shards)
    return np.unique(partition, return_index=True)[1]
