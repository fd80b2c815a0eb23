"""Runs recorded rounds through the quota job's own program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import unpack
from quotaplane.errors import ConfigError
from quotaplane.groups.ids import ids_of
from quotaplane.history.damage import round_of_record
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.tables import LIMITS, RECORDING
from quotaplane.model import Round
from quotaplane.quota.config import EarlierLimits
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.replay.recorded import RoundInputs
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.shard_inputs import GROUPS, pack_groups, unpack_groups

LIMIT_ROWS = pa.schema([field.remove_metadata() for field in LIMITS.schema])


@dataclass(frozen=True)
class Changes:
    """The differences from the recorded run."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values by key in the settings file: ``{"limits.max_step": 0.1}``."""
    groups: pa.Table = field(default_factory=GROUPS.empty_table)
    """Rows of changed groups, in force from the first round on (``shard_inputs.GROUPS``)."""

    def __bool__(self) -> bool:
        return bool(self.settings) or bool(len(self.groups))


@dataclass(frozen=True)
class Played:
    """The result of a round."""

    stamp: Round
    limits: pa.Table
    """Rows of the table ``limits``."""
    usage: pa.Table
    """Rows of the table ``usage`` that limits were decided with, without the columns of the round;
    may lack columns."""
    differing_states: tuple[int, ...]
    """Shards whose state before the round is not the recorded one."""


class Player:
    """Runs rounds in order; a shard begins with its first recorded state."""

    def __init__(self, changes: Changes | None = None) -> None:
        self._changes = changes or Changes()
        self._settings: Mapping[str, Any] | None = None
        self._program: RecordedProgram | None = None
        self._epoch = -1
        self._states: dict[int, ShardState] = {}

    def play(self, rounds: Iterable[RoundInputs]) -> Iterator[Played]:
        """Run rounds.

        Raises:
            InputError, ConfigError: the changed settings are wrong.
            HistoryError: a round is damaged.
        """
        for recorded in rounds:
            with round_of_record(RECORDING.name, recorded.stamp.epoch, recorded.stamp.seq):
                self._prepare(recorded)
                played = self._round(recorded)
            yield played

    def _prepare(self, recorded: RoundInputs) -> None:
        if recorded.stamp.epoch != self._epoch:
            self._epoch, self._states, self._program = recorded.stamp.epoch, {}, None
        if recorded.settings is not None:
            self._settings, self._program = recorded.settings, None
        if self._program is None and self._settings is not None:
            settings = self._changed()
            earlier = EarlierLimits.of(self._settings)
            program = quota_program(settings, self._epoch, earlier)
            self._program = RecordedProgram(program, records=True)

    def _changed(self) -> Settings:
        assert self._settings is not None
        recorded = self._settings["settings"]
        try:
            return changed_settings(recorded, self._changes.settings)
        except ConfigError as error:
            if self._changes.settings:
                raise
            raise ValueError(str(error)) from None  # not the caller's changes, so no InputError

    def _round(self, recorded: RoundInputs) -> Played:
        tables: dict[str, list[pa.Table]] = {"limits": [], "usage": []}
        differing = []
        for shard, arrived in sorted(recorded.arrived.items()):
            known, blob = self._states.get(shard), recorded.states.get(shard)
            begins = known is None and blob is not None
            if blob is not None and known is not None and not self._changes:
                differing += [shard] if dump(known) != blob else []
            state = load(blob) if begins and blob is not None else known
            if state is None or self._program is None:
                continue  # the shard's state, or the settings, are not known yet
            inputs = self._with_groups(arrived, shard, begins)
            batch = Batch(shard, recorded.stamp.seq, recorded.stamp.now_ms)
            self._states[shard], outputs = self._program.run(state, inputs, batch)
            for output in outputs:
                if output.kind in tables:
                    tables[output.kind] += unpack(output.payload)
        limits = pa.concat_tables(
            [LIMIT_ROWS.empty_table()]
            + [plain(stamped(LIMITS, rows, recorded.stamp)) for rows in tables["limits"]]
        )
        # A round without usable reports has no usage.
        counted = [rows.filter(rows["counted"]) for rows in tables["usage"]]
        usage = pa.concat_tables([pa.table({}), *counted], promote_options="permissive")
        return Played(recorded.stamp, limits, usage, tuple(differing))

    def _with_groups(
        self, arrived: Mapping[str, list[bytes]], shard: int, begins: bool
    ) -> Mapping[str, list[bytes]]:
        """The inputs, with the changed groups in place of the recorded ones."""
        changed = self._changes.groups
        if not len(changed) or self._settings is None:
            return arrived
        shards = int(self._settings["settings"]["shards"])
        payloads = []
        if arrived.get("groups"):
            recorded = unpack_groups(arrived["groups"])
            others = pc.invert(pc.is_in(recorded["group"], value_set=changed["group"]))
            payloads += [p for _, p in pack_groups(recorded.filter(others), shards)]
        if begins:
            payloads += [p for of_shard, p in pack_groups(changed, shards) if of_shard == shard]
        inputs = {kind: values for kind, values in arrived.items() if kind != "groups"}
        return {**inputs, "groups": payloads} if payloads else inputs


def changed_groups(rows: pa.Table | None) -> pa.Table:
    """Rows of groups (``registry.table.list_groups``) as ``Changes`` takes them; None: none."""
    if rows is None:
        return GROUPS.empty_table()
    count = len(rows)
    ids = pa.array(ids_of(rows["group"].to_pylist()), pa.int64())
    rows = rows.append_column("group_id", ids)
    rows = rows.append_column("deleted", pa.array([False] * count))
    rows = rows.append_column("version", pa.array([0] * count, pa.int64()))
    return rows.select(GROUPS.names).cast(GROUPS)


def plain(rows: pa.Table) -> pa.Table:
    """Rows of the table ``limits`` with plain columns, as they are read."""
    return rows.select(LIMIT_ROWS.names).cast(LIMIT_ROWS)


def changed_settings(recorded: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """The recorded settings with the given values.

    >>> changed_settings({"law": {"name": "max_min"}}, {"limits.max_step": 0.5}).limits.max_step
    0.5

    Raises:
        ConfigError: there is no such key, or the value is wrong.
    """
    raw: dict[str, Any] = {
        "transport": {"kind": "delta", "path": "/unused"},
        "history": {"path": "/unused"},
        "checkpoint": "/unused",
        **{name: dict(v) if isinstance(v, Mapping) else v for name, v in recorded.items()},
    }
    for key, value in changes.items():
        section, _, name = key.partition(".")
        if name and isinstance(raw.setdefault(section, {}), dict):
            raw[section][name] = value
        else:
            raw[key] = value
    return parse_settings(raw, "--set")
