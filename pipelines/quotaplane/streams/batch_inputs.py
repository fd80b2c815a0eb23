"""Inputs that a micro-batch gets from the driver, beside what arrives for its shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark import SparkContext, TaskContext

BATCH_INPUTS: Final = "quotaplane.batchInputs"
"""Local property of the job of a micro-batch: payloads for every shard that runs, by kind."""


def hand_inputs(context: SparkContext, inputs: Mapping[str, bytes]) -> None:
    """Let the tasks of the jobs that this thread starts have these inputs, which are text.

    They must be the same when a batch runs again.
    """
    # The tasks of jobs that this thread starts get its local properties.
    texts = {kind: payload.decode() for kind, payload in inputs.items()}
    context.setLocalProperty(BATCH_INPUTS, json.dumps(texts))


def batch_inputs() -> dict[str, list[bytes]]:
    """In a task: the inputs of the running micro-batch, as ``shard_program.Arrived``."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(BATCH_INPUTS)
    if text is None:
        return {}
    return {kind: [payload.encode()] for kind, payload in json.loads(text).items()}
