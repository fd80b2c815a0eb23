"""Small histories made by hand, each with questions and their exact answers: ``by_hand/*.yaml``.

tests/unit/query/test_audits.py asks DuckDB, tests/spark/test_audits.py asks Spark. In a file:

* Times are seconds since noon, of rounds as of cells of answers.
* ``rounds``: what each wrote. Rates have the key ``broker group``; ``10 to 110 every 20`` are the
  rounds of several seconds. A report was published ``at`` the second of its round if it does not
  say otherwise.
* ``changes`` of quotas: second, person, group, quota, and perhaps its dimension, policy or reason.
* ``cases``: questions to the file's audit, unless they name another one. ``with`` has the period
  and parameters. ``rows`` have all columns of the answer if they do not name some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import yaml

from quotaplane.history.store import table_uri
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.history.writer import HistoryWriter
from quotaplane.laws import Reason
from quotaplane.model import BASIC, DIMENSIONS, Round
from quotaplane.query.answer import Answer
from quotaplane.query.usage_by_day import roll_up
from quotaplane.query.views import BEGINNING
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.history.history_cases import INF, NAN, NOON_MS, brokers, limits, rounds, usage
from tests.unit.sim.recorded_history import at, set_commit_time

Build = Callable[[History], None]
Rows = Sequence[Sequence[Any]]

_FOLDER: Final = Path(__file__).parent / "by_hand"
_WORDS: Final = {"unlimited": INF, "unchanged": NAN, "ended": NAN}
"""Instead of numbers, where rates are."""


@dataclass(frozen=True)
class Case:
    """A question to a history, and its answer."""

    name: str
    build: Build
    audit: str
    rows: Rows
    columns: Sequence[str] = ()
    """Columns of the answer that ``rows`` have; none: all."""
    since: datetime = BEGINNING
    until: datetime | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)


class Built:
    """Histories in a folder, each built once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[Build, History] = {}

    def history(self, build: Build) -> History:
        """The history that a function builds."""
        if build not in self._built:
            history = History(path=str(self._folder / str(len(self._built))))
            build(history)
            self._built[build] = history
        return self._built[build]


def write(history: History, happened: Mapping[float, Mapping[str, Any]], epoch: int = 1) -> None:
    """Rounds by the second they happened at; each is its own seq."""
    make_history(history)
    with HistoryWriter(history, f"checkpoint-{epoch}") as writer:
        for seq, (second, tables) in enumerate(happened.items()):
            stamp = Round(epoch, seq, _ms(second))
            writer.append_round(stamp, {"rounds": rounds(), **tables})


def change(
    history: History,
    second: float,
    by: str,
    group: str,
    quota: float | None,
    dimension: str = DIMENSIONS[0],
    *,
    why: str | None = None,
    **policy: Any,
) -> None:
    """Set a quota and policy, or delete a group (None), at a time."""
    make_history(history)
    if quota is None:
        delete_groups(history, [group], by)
    else:
        quotas = np.full((1, len(DIMENSIONS)), NAN)
        quotas[0, DIMENSIONS.index(dimension)] = quota
        columns = {name: pa.array([value]) for name, value in policy.items()}
        put_groups(
            history, [group], quotas, by, policy=pa.table(columns) if columns else None, why=why
        )
    set_commit_time(Path(table_uri(history, RESOURCE_GROUPS.name)), _ms(second))


def used(second: float, *rows: tuple[str, str, float], **options: Any) -> dict[str, Any]:
    return {"usage": usage(rows, published_at_ms=_ms(second), **options)}


def given(*rows: tuple[str, str, float], **options: Any) -> dict[str, Any]:
    return {"limits": limits(rows, **options)}


def equal(found: Answer, columns: Sequence[str], rows: Rows) -> None:
    """Check an answer; numbers may differ in the last bits."""
    places = [found.columns.index(name) for name in columns or found.columns]
    answered = [tuple(_utc(row[place]) for place in places) for row in found.rows]
    assert len(answered) == len(rows), answered
    for row, wanted in zip(answered, rows, strict=True):
        assert len(row) == len(wanted), row
        assert all(map(_same, row, wanted)), f"{row} is not {wanted}"


def _ms(second: float) -> int:
    return NOON_MS + int(second * 1000)


def _utc(value: Any) -> Any:
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else value


def _same(value: Any, wanted: Any) -> bool:
    is_number = isinstance(wanted, float | int) and not isinstance(wanted, bool)
    if is_number and isinstance(value, datetime):
        return bool(value == at(wanted))
    if is_number and isinstance(value, float | int) and not isinstance(value, bool):
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return bool(value == wanted)


def _cases_of(file: Path) -> Iterator[Case]:
    for story in yaml.load(file.read_text(), yaml.CSafeLoader).values():
        build = _builder(story)
        for name, case in story["cases"].items():
            asked = dict(case.get("with", {}))
            times = {word: at(asked.pop(word)) for word in ("since", "until") if word in asked}
            yield Case(
                name,
                build,
                case.get("audit", file.stem),
                [[_cell(value) for value in row] for row in case["rows"]],
                case.get("columns", ()),
                parameters=asked,
                **times,
            )


def _cell(value: Any) -> Any:
    """Parts, such as ``15/86400``, are written as such."""
    is_part = isinstance(value, str) and value.replace("/", "").isdigit() and "/" in value
    return float(Fraction(value)) if is_part else value


def _builder(story: Mapping[str, Any]) -> Build:
    def build(history: History) -> None:
        for epoch, name in ((1, "rounds"), (2, "rounds_of_epoch_2")):
            happened = {
                second: found
                for seconds, found in story.get(name, {}).items()
                for second in _seconds(seconds)
            }
            written = {second: _tables(second, happened[second]) for second in sorted(happened)}
            if written:
                write(history, written, epoch)
        for second, by, group, quota, *more in story.get("changes", ()):
            to = None if quota == "deleted" else _WORDS.get(quota, quota)
            change(history, second, by, group, to, **(more[0] if more else {}))
        if "rolled_up_at" in story:
            roll_up(history, at(story["rolled_up_at"]))

    return build


def _seconds(text: float | str) -> Sequence[float]:
    if not isinstance(text, str):
        return [text]
    first, _, last, *step = text.split()
    return range(int(first), int(last) + 1, int(step[-1]) if step else 1)


_OF_ROUNDS: Final = {"duration_s", "renewal_age_s"}


def _tables(second: float, found: Any) -> dict[str, pa.Table]:
    tables: dict[str, list[pa.Table]] = {}
    for each in found if isinstance(found, list) else [found]:
        for kind in each.keys() & {"usage", "limits", "brokers", *_OF_ROUNDS}:
            options = {name: value for name, value in each.items() if name != kind}
            name, table = _table(second, kind, each[kind], options)
            tables.setdefault(name, []).append(table)
    return {
        name: pa.concat_tables(parts, promote_options="default") for name, parts in tables.items()
    }


def _table(second: float, kind: str, given: Any, options: dict[str, Any]) -> tuple[str, pa.Table]:
    if kind in _OF_ROUNDS:
        return "rounds", rounds(**{f"{kind.removesuffix('_s')}_ms": 1000 * given})
    if kind == "brokers":
        return kind, brokers([(name, status, _ms(seen)) for name, (status, seen) in given.items()])
    rows = [(*name.split(" ", 1), _WORDS.get(rate, rate)) for name, rate in given.items()]
    if kind == "limits":
        reason = Reason[options.pop("reason", "fair_share").upper()]
        options |= {name: float(options[name]) for name in options.keys() & {"quota", "demand"}}
        return kind, limits(rows, reason, **options)
    for name, from_ms in (("window_s", 0), ("started_at", NOON_MS)):
        if name in options:
            options[f"{name.removesuffix('_s')}_ms"] = from_ms + 1000 * options.pop(name)
    return kind, usage(rows, _ms(options.pop("at", second)), **options)


def _exceeds_in(dimension: str) -> Build:
    def build(history: History) -> None:
        happened = {
            0: given(("b", "g", 50.0), dimension=dimension),
            10: used(10, ("b", "g", 60.0), dimension=dimension),
        }
        write(history, happened)

    return build


_FAIR: Final = "saturated: fair share"
BY_HAND: Final = (
    *(case for file in sorted(_FOLDER.glob("*.yaml")) for case in _cases_of(file)),
    *(
        Case(
            name,
            _exceeds_in(name),
            "exceeded",
            [["b", "g", name, 10, 10, 1, 50.0, 60.0, _FAIR, True]],
        )
        for name in DIMENSIONS[BASIC:]
    ),
)
