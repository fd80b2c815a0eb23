"""The command line of the proofs: measure contenders, keep the records, write the page."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from benchmarks.program import ROOT
from quotaplane.console.option_parser import OptionParser

_NONE: Final = "none"


class NamedContender(Protocol):
    """All that the command knows of a contender."""

    @property
    def name(self) -> str: ...


ContenderT = TypeVar("ContenderT", bound=NamedContender)
RecordT = TypeVar("RecordT")


@dataclass(frozen=True)
class Proof(Generic[ContenderT, RecordT]):
    """A proof, which measures each contender on a cluster of its own."""

    name: str
    """For example ``balance-proof``: its target in the Makefile, and its folder in ``data``."""
    contenders: Sequence[ContenderT]
    record: type[RecordT]
    """The dataclass of a record."""
    run: Callable[..., Sequence[RecordT]]
    """Measures a contender; gets it, an empty folder, and a function that prints progress. Where
    there are ``scenarios`` also ``only``, the names of those that are asked for; empty: all."""
    write: Callable[[Path, Sequence[RecordT], Sequence[ContenderT]], Path]
    """Writes the page to a folder; returns its path."""
    scenarios: Sequence[str] = ()
    """Those that can be measured one by one; records have the attribute ``scenario`` then."""


def run_proof(
    proof: Proof[ContenderT, RecordT], argv: Sequence[str], description: str | None
) -> None:
    """Measure the contenders that are asked for, then write the page from all records there are.

    Raises:
        ConfigError: an option is wrong.
    """
    by_name = {contender.name: contender for contender in proof.contenders}
    asked = _options(proof, argv, description)
    folders = {name: asked.folder.resolve() / name for name in by_name}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops what was started, too
    begun = time.monotonic()

    def say(words: str) -> None:
        print(f"{time.monotonic() - begun:4.0f} s  {words}", flush=True)

    for name in asked.contenders or by_name:
        if name != _NONE:
            _measure(proof, by_name[name], folders[name], say, asked.only)
    records = [each for folder in folders.values() for each in read_records(folder, proof.record)]
    say(f"written: {proof.write(asked.docs, records, proof.contenders)}")


def _measure(
    proof: Proof[ContenderT, RecordT],
    contender: ContenderT,
    folder: Path,
    say: Callable[[str], None],
    only: Sequence[str],
) -> None:
    """Replace the records of what is measured."""
    kept: list[Any] = read_records(folder, proof.record) if only else []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chosen = {"only": only} if proof.scenarios else {}
    new: list[Any] = list(proof.run(contender, folder, say, **chosen))
    write_records(folder, [*(each for each in kept if each.scenario not in only), *new])


def _options(
    proof: Proof[ContenderT, RecordT], argv: Sequence[str], description: str | None
) -> argparse.Namespace:
    name, contenders = proof.name, [each.name for each in proof.contenders]
    parser = OptionParser(
        prog=f"make {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = ", ".join(contenders)
    parser.add_argument(
        "contenders",
        nargs="*",
        metavar="CONTENDER",
        help=f"{known}, or {_NONE}: only write the page again; default: all",
    )
    parser.set_defaults(only=[])
    if proof.scenarios:
        parser.add_argument(
            "--only",
            action="append",
            choices=proof.scenarios,
            metavar="SCENARIO",
            help=f"measure only this one, or these ({', '.join(proof.scenarios)})",
        )
    parser.add_argument("--folder", type=Path, default=ROOT / "data" / name)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs/measured")
    asked = parser.parse_args(argv)
    for chosen in asked.contenders:  # not argparse's `choices`: with `*` it refuses an empty list
        if chosen not in (*contenders, _NONE):
            parser.error(f"{chosen!r}: must be one of {known}, {_NONE}")
    return asked


def write_records(folder: Path, records: Sequence[Any]) -> None:
    """Keep a contender's records, which are dataclasses, as JSON: a line each."""
    lines = (json.dumps(asdict(record)) + "\n" for record in records)
    _file(folder).write_text("".join(lines))


def read_records(folder: Path, kind: type[RecordT]) -> list[RecordT]:
    """The opposite of ``write_records``; empty if the contender was not measured."""
    if not _file(folder).exists():
        return []
    read = TypeAdapter(kind).validate_json
    return [read(line) for line in _file(folder).read_text().splitlines()]


def _file(folder: Path) -> Path:
    return folder / "records.jsonl"
