"""``quotaplane doctor``: checks the tables and checkpoints on disk, and mends broken tables.

A checkpoint is whole if its streaming query can continue from it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.cli.doctor_stores import fetch_checkpoint, stored_tables
from quotaplane.cli.history_options import add_history_options, history_at
from quotaplane.console.answers import (
    TABLE,
    add_answer_options,
    answer_form,
    json_of,
    print_answer,
    table_text,
)
from quotaplane.console.terminal import inform
from quotaplane.deltalog.diagnose import Diagnosis, Finding, Mending, diagnose
from quotaplane.deltalog.error_text import one_line, with_advice
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import LOG, local_folder
from quotaplane.deltalog.mend import mend
from quotaplane.errors import ConfigError, HistoryError, QuotaplaneError, TransportError
from quotaplane.history.disk_reserve import with_reserve
from quotaplane.history.store import location_of, nobody_writing, open_table
from quotaplane.history.tables import RESOURCE_GROUPS, TABLES
from quotaplane.registry.rows_after import unreported_names
from quotaplane.registry.table import list_groups
from quotaplane.settings import DeltaTransport, History, Settings, load_settings
from quotaplane.transport.base import REPORTS_AND_LIMITS

FOUND: Final = 10
"""Exit code: something is broken."""
MENDED: Final = 11
"""Exit code: something was broken, and everything was repaired."""

_EPILOG: Final = f"""\
Checks the log and each byte of the data files of each table of the history and of the embedded
transport's topics, and the job's checkpoint folder. Prints a line for each, and each broken file
with what mending would lose. Files without a checksum (unchecked) get one from `quotaplane
maintain`. Only reads, so it may run beside the jobs. It also lists groups and brokers
whose names hardly any report will have, such as client-id=app; they are no damage.

--mend sets each broken table back to its last whole commit. Nothing is deleted: broken files and
the commits after them are moved to a folder doctor-TIME beside the tables. Stop the jobs first.

exit codes: 0 whole, {FOUND} something is broken, {MENDED} all that was broken is mended
"""


class _Table(NamedTuple):
    """A table to check."""

    name: str
    """For messages."""
    folder: Path
    rewritten: bool
    """Its files are rewritten by updates, not only appended to."""
    history: History | None
    """The history that it belongs to; None = a topic."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.epilog = _EPILOG
    add_history_options(parser)
    parser.add_argument("--mend", action="store_true", help="mend what can be mended")
    add_answer_options(parser, csv=False)


def run(args: argparse.Namespace) -> int:
    """Check, and mend if asked to.

    Raises:
        ConfigError: the settings or the options are wrong, or there is no history.
        HistoryError: the history can't be mended, for instance as something is writing to it.
        TransportError: the same for a topic.
    """
    settings = load_settings(args.conf) if args.conf else None
    history = settings.history if settings else history_at(args.history)
    if local_folder(history.path) is None:
        inform(
            f"history at {location_of(history)}: a store keeps what it acknowledged, so files are "
            "compared by name and size, and nothing there can be mended"
        )
    tables = [*_tables_of(history), *(_topics_of(settings) if settings else ())]
    found = _examine(history, tables, settings)
    if not (found.problems and args.mend):
        print_answer(args, lambda: json_of(found.as_json()), found.as_text)
        return FOUND if found.problems else 0
    if answer_form(args) == TABLE:
        print(found.as_text(), flush=True)
    mended: dict[str, str] = {}
    with_reserve(history, lambda: _mend(history, tables, mended))
    now = _examine(history, tables, settings)
    print_answer(
        args,
        lambda: json_of({**found.as_json(), "mended": mended, "afterwards": now.as_json()}),
        now.as_text,
    )
    return FOUND if now.problems else MENDED


def _tables_of(history: History) -> Iterator[_Table]:
    folder = local_folder(history.path)
    if folder is None:
        return
    if not any((folder / name).exists() for name in TABLES):
        raise ConfigError(f"there is no history at {folder}: check --conf or --history")
    for table in TABLES.values():
        yield _Table(table.name, folder / table.name, table.has_change_feed, history)


def _topics_of(settings: Settings) -> Iterator[_Table]:
    if not isinstance(settings.transport, DeltaTransport):
        return
    root = Path(settings.transport.path).absolute()
    for name in (*REPORTS_AND_LIMITS, settings.transport.attachments_topic):
        if (root / name).exists():
            yield _Table(f"topic {name}", root / name, rewritten=False, history=None)


class _Examination(NamedTuple):
    """The state of all tables and checkpoints."""

    states: list[tuple[object, ...]]
    """Rows of ``_STATE``."""
    problems: list[tuple[object, ...]]
    """Rows of ``_PROBLEM``; none: nothing is broken."""
    doubts: list[str]
    """Lines about names of groups and brokers that no report will have."""

    def as_json(self) -> dict[str, object]:
        return {
            "tables": [dict(zip(_STATE, row, strict=True)) for row in self.states],
            "problems": [dict(zip(_PROBLEM, row, strict=True)) for row in self.problems],
            "doubts": self.doubts,
        }

    def as_text(self) -> str:
        parts = [table_text(_STATE, self.states)]
        if self.problems:
            titles = [name.replace("_", " ") for name in _PROBLEM]
            parts.append(table_text(titles, self.problems))
        if self.doubts:
            parts.append("\n".join(self.doubts))
        return "\n\n".join(parts)


_STATE: Final = ("table", "version", "files", "unchecked", "state")
_PROBLEM: Final = ("table", "file", "problem", "mending_loses")


def _examine(history: History, tables: Sequence[_Table], settings: Settings | None) -> _Examination:
    states: list[tuple[object, ...]] = []
    problems: list[tuple[object, ...]] = []
    opened: list[DeltaTable] = []
    for stored in stored_tables(history) if local_folder(history.path) is None else ():
        version = None if stored.table is None else stored.table.version()
        opened += [] if stored.table is None else [stored.table]
        state = "broken" if stored.problems else "whole"
        states.append((stored.name, version, stored.files, stored.files, state))
        problems += [(stored.name, *problem, _ON_STORES) for problem in stored.problems]
    for table in tables:
        diagnosis = _diagnosed(table)
        state = "broken" if diagnosis.findings else "whole"
        version = None if diagnosis.version < 0 else diagnosis.version
        states.append((table.name, version, diagnosis.files, diagnosis.unchecked, state))
        problems += [(table.name, *finding) for finding in diagnosis.findings]
    all_tables = chain(opened, _opened(tables))
    for findings in () if settings is None else _checkpoints_of(settings, all_tables):
        states.append(("checkpoint", None, None, None, "broken" if findings else "whole"))
        problems += [("checkpoint", *finding) for finding in findings]
    return _Examination(states, problems, _doubts(tables, problems))


def _doubts(tables: Sequence[_Table], problems: Sequence[tuple[object, ...]]) -> list[str]:
    broken = {name for name, *_ in problems}
    for table in tables:
        if table.name == RESOURCE_GROUPS.name and table.name not in broken and table.history:
            return list(unreported_names(list_groups(table.history)))
    return []


def _opened(tables: Sequence[_Table]) -> Iterator[DeltaTable]:
    for table in tables:
        with suppress(DeltaError, OSError):
            yield DeltaTable(table.folder)


def _checkpoints_of(settings: Settings, tables: Iterable[DeltaTable]) -> Iterator[list[Finding]]:
    folder = local_folder(settings.checkpoint)
    if folder is None:
        with TemporaryDirectory() as copy:
            if fetch_checkpoint(settings.history, settings.checkpoint, Path(copy)):
                yield checkpoint_findings(Path(copy), tables)
    elif folder.is_dir() and any(folder.iterdir()):
        try:
            yield checkpoint_findings(folder, tables)
        except OSError as error:
            yield [_unreadable(folder, error)]


def _diagnosed(table: _Table) -> Diagnosis:
    try:
        # Without a log, but with files, it is one whose log is lost.
        if not ((table.folder / LOG).is_dir() or find_fault(str(table.folder))):
            missing = Finding(
                *(str(table.folder), "is missing"),
                "can't be mended: the job would create it without rows",
            )
            return Diagnosis(-1, 0, 0, [missing], Mending())
        diagnosis = diagnose(table.folder, rewritten=table.rewritten)
    except OSError as error:
        return Diagnosis(-1, 0, 0, [_unreadable(table.folder, error)], Mending())
    if not diagnosis.findings and table.history is not None:
        try:
            open_table(table.history, table.folder.name)
        except QuotaplaneError as error:
            diagnosis.findings.append(Finding(LOG, str(error), "can't be mended here"))
    return diagnosis


def _unreadable(folder: Path, error: OSError) -> Finding:
    """The finding of a file that may be intact once the disk can be read again."""
    file = Path(error.filename or folder)
    name = str(file.relative_to(folder)) if folder in file.parents else str(file)
    reason = error.strerror or one_line(error)
    return Finding(name, f"can't be read: {reason}", "can't be mended before it can be read")


def _mend(history: History, tables: Sequence[_Table], mended: dict[str, str]) -> None:
    """Repair broken tables; adds the new place of each table's broken files to ``mended``."""
    aside = f"doctor-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}Z"
    with nobody_writing(history) as free, ExitStack() as locks:
        if not free:
            raise HistoryError(
                f"something is writing to the history at {location_of(history)}: stop the jobs "
                "before mending it"
            )
        for table in tables:
            diagnosis = _diagnosed(table)
            if not diagnosis.mending:
                continue
            if table.history is None:
                _lock_topic(locks, table.folder)
            target = table.folder.parent / aside / table.folder.name
            try:
                mend(table.folder, diagnosis.mending, target)
            except (DeltaError, OSError) as error:
                kind = TransportError if table.history is None else HistoryError
                raise kind(f"{table.folder}: can't be mended: {with_advice(error)}") from None
            mended[table.name] = str(target)
            inform(f"mended {table.name}; the broken files are in {target}")


_ON_STORES: Final = "can't be mended: get the file back by the store's own versions or backups"


def _lock_topic(locks: ExitStack, folder: Path) -> None:
    try:
        file = locks.enter_context((folder.parent / f".{folder.name}.lock").open("a"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TransportError(f"{folder}: something is writing to it: stop it first") from None
    except OSError as error:
        raise TransportError(f"{folder}: can't be mended: {with_advice(error)}") from None


_LOSS: Final = (
    "can't be mended: start the job with a new checkpoint folder "
    "(docs/operate/runbook/the-checkpoint-is-lost.md)"
)
_NOTE: Final = "quotaplane.json"
_VERSION: Final = "v1"
"""The first line of each file in Spark's logs of a query."""


def checkpoint_findings(folder: Path, tables: Iterable[DeltaTable]) -> list[Finding]:
    """The problems of a checkpoint folder; ``tables`` are those that its query may read.

    Spark does not wait for the disk, so after a power loss the newest files may be empty, or the
    checkpoint and the tables may not match.

    Raises:
        OSError: a file can't be read.
    """
    problems = dict(_problems(folder, tables))
    return [Finding(file, problem, _LOSS) for file, problem in problems.items()]


def _problems(folder: Path, tables: Iterable[DeltaTable]) -> Iterator[tuple[str, str]]:
    for name in (_NOTE, "metadata"):
        try:
            json.loads((folder / name).read_bytes())
        except FileNotFoundError:
            yield name, "is missing"
        except ValueError:
            yield name, "is empty or cut off"
    for log in ("offsets", "commits"):
        for file in _newest(folder / log):
            lines = file.read_text("utf-8", "replace").splitlines()
            if not lines or lines[0] != _VERSION:
                yield f"{log}/{file.name}", "is empty or cut off"
    for file in _newest(folder / "offsets")[:1]:
        yield from _ahead(file, tables)


def _newest(folder: Path) -> list[Path]:
    """The two newest files of one of Spark's logs, the newest first."""
    files = [file for file in folder.glob("*") if file.name.isdigit()]
    return sorted(files, key=lambda file: int(file.name), reverse=True)[:2]


def _ahead(offsets: Path, tables: Iterable[DeltaTable]) -> Iterator[tuple[str, str]]:
    """Tables that end before what the query has read: it would skip their next rows."""
    read: dict[str, int] = {}
    for line in offsets.read_text("utf-8", "replace").splitlines():
        try:
            source: Any = json.loads(line)
            read[source["reservoirId"]] = int(source["reservoirVersion"])
        except (ValueError, KeyError, TypeError):
            continue
    for table in tables:
        version, identity = table.version(), str(table.metadata().id)
        name = PurePosixPath(table.table_uri).name
        # Offsets name the next version to read, so one version more is correct.
        if read.get(identity, 0) > version + 1:
            yield (
                f"offsets/{offsets.name}",
                f"says that {name} was read up to version {read[identity]}, but its newest "
                f"version is {version}",
            )
