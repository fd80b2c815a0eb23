"""Makes a checkpoint with another number of shards, from which the job goes on as if nothing had
been: with the states of all shards, divided anew, and with the input that comes next.

Spark reads the states from the old checkpoint. A query with one batch, which begins with the new
states and has no input, writes them into a new folder. There they get the number of the old one's
last batch, and its offsets: so batches are numbered on. Nothing in the old folder changes.

The new checkpoint claims to lead, with an epoch of its own, before it can be used. So the old one
does not start any more, and a job that runs in it all the same ends before it writes a round.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from quotaplane.errors import ConfigError
from quotaplane.history.writer import HistoryWriter
from quotaplane.streams.checkpoint import NOTE, Checkpoint, CheckpointFolder
from quotaplane.streams.job import JobSpec
from quotaplane.streams.operator import INITIAL_SCHEMA, operate
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.shard_program import ShardProgram, State
from quotaplane.streams.skipped_batches import empty_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHANGELOGS: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"


def reshard(
    spark: SparkSession,
    spec: JobSpec,
    new: JobSpec,
    redistribute: Callable[[Sequence[Any], ShardProgram[Any]], Sequence[Any]],
    changed_note: Callable[[Checkpoint], Mapping[str, Any]],
) -> Checkpoint:
    """Make the checkpoint of ``new`` from that of ``spec``; see the module.

    Args:
        spark: a session.
        spec: the job with the old checkpoint.
        new: the same job with the new one, and its number of shards.
        redistribute: from the states of all shards, and the program, those of the new shards.
        changed_note: what the new checkpoint notes, given the old one.

    Raises:
        ConfigError: the old checkpoint can't be used, or is in use; the new folder is there.
        HistoryError: the history, or a state, can't be read.
    """
    old, target = CheckpointFolder(spark, spec.checkpoint), CheckpointFolder(spark, new.checkpoint)
    checkpoint = _at_rest(old, spec)
    batches = old.newest_batches()
    _, batch = batches
    assert batch is not None
    if target.exists():
        raise ConfigError(f"checkpoint {target.path}: there is something already")
    shards = new.settings.shards
    program = spec.program(checkpoint.epoch)
    states = [program.load(blob) for blob in stored_states(spark, old.path, program.name, batch)]
    with _deleted_if_not_made(target):
        with target.usable():
            target.write(NOTE, "quotaplane reshard did not end")  # no job starts with such a note
        _write_states(spark, target, program, redistribute(states, program), old.entry(batch) or "")
        with target.usable():
            _number(target, old, batch, shards)
        if old.newest_batches() != batches:
            raise ConfigError(f"checkpoint {old.path}: a job runs in it: stop it, and begin again")
        checkpoint_id = uuid.uuid4().hex
        epoch = new.new_epoch(checkpoint_id)
        # From here on no other process writes a round that it had not begun before.
        if old.newest_batches() != batches:
            raise ConfigError(
                f"checkpoint {old.path}: a job ran in it meanwhile, and ends with its next round; "
                "begin again then"
            )
        resharded = Checkpoint(checkpoint_id, epoch, shards, changed_note(checkpoint))
        with target.usable():
            target.write_note(resharded)
    return resharded


@contextmanager
def _deleted_if_not_made(folder: CheckpointFolder) -> Iterator[None]:
    try:
        yield
    except BaseException:
        folder.delete()
        raise


def _at_rest(folder: CheckpointFolder, spec: JobSpec) -> Checkpoint:
    """The checkpoint, of whose last batch nothing is left to do.

    A batch that began counts as never begun if its job lost the lead before anything of the batch
    was in the history: then it published nothing, and the next batch reads its input.

    Raises:
        ConfigError: there is no checkpoint, it is not the newest, or a batch is not finished.
    """
    checkpoint = folder.noted()
    begun, batch = folder.newest_batches()
    if checkpoint is None or begun is None or batch is None:
        raise ConfigError(f"checkpoint {folder.path}: no job has finished a batch in it")
    spec.accept(checkpoint)
    if begun == batch:
        return checkpoint
    history = HistoryWriter(spec.settings.history, checkpoint.id, (), spec.last_table)
    with history:
        written = history.last_seq()
    if spec.leadership.newest() == checkpoint.id or (written or 0) > batch:
        raise ConfigError(
            f"checkpoint {folder.path}: batch {begun} is not finished: start the job, stop it "
            "with SIGTERM, and begin again"
        )
    return checkpoint


def stored_states(spark: SparkSession, path: str, name: str, batch: int) -> Iterator[bytes]:
    """The states of all shards after a batch, as the program dumped them."""
    stored = spark.read.format("statestore").options(
        path=path, stateVarName=name, batchId=batch, flattenCollectionTypes=False
    )
    rows = stored.load().selectExpr("list_value[0].blob AS blob").toArrow()
    return (blob.as_py() for blob in rows["blob"])


def _write_states(
    spark: SparkSession,
    folder: CheckpointFolder,
    program: ShardProgram[State],
    states: Sequence[State],
    logged: str,
) -> None:
    """Run a query's batch 0 in a folder, whose states are these afterwards.

    ``logged``: an entry of Spark's offset log, whose time the batch has.
    """
    shards = len(states)
    version, metadata, *_ = _with_partitions(logged, shards).splitlines()
    # So Spark runs the batch although nothing arrives.
    folder.write("offsets/0", "\n".join((version, metadata, "{}")))
    blobs = pa.table(
        {
            "key": pa.array(keys_of_shards(shards), pa.int32()),
            "blob": pa.array([program.dump(state) for state in states], pa.binary()),
        }
    )
    # Without changelogs each shard has all in one file.
    with _options(spark, {_PARTITIONS: str(shards), _CHANGELOGS: "false"}):
        # The key may be null in the job's events, so here, too.
        columns = "'' AS kind", "octet_length(value) AS key", "value AS payload"
        events = empty_source(spark).selectExpr(*columns)
        initial = spark.createDataFrame(blobs, INITIAL_SCHEMA)
        outputs = operate(events, program, shards, initial=initial)
        writer = outputs.writeStream.format("noop").option("checkpointLocation", folder.path)
        writer.trigger(once=True).start().awaitTermination()


@contextmanager
def _options(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key) or "" for key in options}
    for key, value in options.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def _number(made: CheckpointFolder, old: CheckpointFolder, batch: int, shards: int) -> None:
    """Let the only batch in ``made`` be the last one of ``old``: its number, offsets and time."""
    for log in ("offsets", "commits"):
        made.delete(log)
    for seq in range(max(batch - 1, 0), batch + 1):  # Spark wants the one before, too
        made.write(f"offsets/{seq}", _with_partitions(old.entry(seq) or "", shards))
    made.write(f"commits/{batch}", old.read(f"commits/{batch}") or "")
    for shard in range(shards) if batch else ():
        # A state is numbered by the batch that begins with it.
        folder = f"state/0/{shard}"
        made.rename(f"{folder}/1.zip", f"{folder}/{batch + 1}.zip")


def _with_partitions(logged: str, shards: int) -> str:
    r"""An entry of Spark's offset log, for a query with so many shuffle partitions.

    >>> _with_partitions('v1\n{"conf": {"spark.sql.shuffle.partitions": "2"}}\n{"r": 5}', 3)
    'v1\n{"conf": {"spark.sql.shuffle.partitions": "3"}}\n{"r": 5}'
    """
    version, metadata, *offsets = logged.splitlines()
    changed = json.loads(metadata)
    changed["conf"][_PARTITIONS] = str(shards)
    return "\n".join((version, json.dumps(changed), *offsets))
