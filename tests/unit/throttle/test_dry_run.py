"""Dry runs: recorded requests get the answers of the laws, from whatever files, in any pieces."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli import recorded_events
from quotaplane.cli.dry_run import definitions_of
from quotaplane.cli.main import main
from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.throttle import bank
from quotaplane.throttle.bank import LAWS
from quotaplane.throttle.definitions import quotas_of
from quotaplane.throttle.dry_runs import DECIDED, METRICS, REASONS, Tried, answer, begin
from quotaplane.throttle.types import Requests, ThrottleLaw

pytestmark = pytest.mark.slow

T0 = 1_690_000_000_000
HARD = '{"*": {"mode": "hard"}}'
LAWS_IN_TURN = {
    name: f'{{"*": {{"law": "{law.value}", "mode": "{mode}", "samples": {samples}}}}}'
    for name, law, mode, samples in zip(
        "abcde",
        [*LAWS, LAWS[0]],
        ["soft", "hard", "soft", "hard", "hard"],
        [1, 3, 5, 1, 2],
        strict=True,
    )
}


def definitions(**rates: float | None) -> pa.Table:
    return pa.table(
        {
            "group": list(rates),
            "publish_messages_per_s": pa.array(rates.values(), pa.float64()),
            "publish_bytes_per_s": pa.array([7.0] * len(rates), pa.float64()),
            "throttle": [LAWS_IN_TURN.get(name, HARD) for name in rates],
        }
    )


def events(*rows: tuple[Any, Any, Any], **more: Any) -> pa.Table:
    """(entity, milliseconds after T0, units) each, in order."""
    entity, at, units = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {
        "entity": pa.array(entity, pa.string()),
        "at_ms": pa.array([None if ms is None else T0 + ms for ms in at], pa.int64()),
        "units": pa.array(units, pa.float64()),
        "dimension": pa.nulls(len(rows), pa.string()),
    }
    return pa.table({**columns, **more})


def tried(quotas: pa.Table, *pieces: pa.Table) -> Tried:
    """The results of all pieces together."""
    entities, found = begin(quotas), []
    for piece in pieces:
        entities, one = answer(entities, piece)
        found.append(one)
    decisions, metrics, rejected = (pa.concat_tables(tables) for tables in zip(*found, strict=True))
    return Tried(decisions, pa.concat_tables([metrics, entities.metrics()]), rejected)


@st.composite
def traffic(draw: st.DrawFn) -> pa.Table:
    n = draw(st.integers(1, 40))
    names = sorted(draw(st.lists(st.sampled_from("abcdexyz"), min_size=n, max_size=n)))
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 90, 1000, 2500]), min_size=n, max_size=n))
    units = draw(st.lists(st.sampled_from([0.0, 1.0, 3.0, 8.0]), min_size=n, max_size=n))
    kinds = st.sampled_from(["publish_messages", "publish_bytes"])
    dimension = draw(st.lists(kinds, min_size=n, max_size=n))
    rows = events(*zip(names, np.cumsum(gaps).tolist(), units, strict=True))
    rows = rows.set_column(3, "dimension", pa.array(dimension))
    return rows.sort_by([("entity", "ascending"), ("dimension", "ascending")])


@given(whole=traffic(), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_events_may_be_cut_into_pieces_anywhere(whole: pa.Table, cuts: list[int]) -> None:
    quotas = definitions(a=5.0, b=5.0, c=2.0, d=3.0, e=1.0, x=None)
    at_once = tried(quotas, whole)
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    in_parts = tried(quotas, *(whole.slice(low, high - low) for low, high in pairwise(edges)))
    assert in_parts.decisions.equals(at_once.decisions)
    assert in_parts.metrics.equals(at_once.metrics)


@given(whole=traffic())
def test_each_entity_gets_the_answers_of_its_law(whole: pa.Table) -> None:
    quotas = definitions(a=5.0, b=5.0, c=2.0, d=3.0, e=1.0, x=None)
    decisions = tried(quotas, whole).decisions
    for name in set(whole["entity"].to_pylist()):
        for dimension in ("publish_messages", "publish_bytes"):
            mine = pc.and_(
                pc.equal(decisions["entity"], name), pc.equal(decisions["dimension"], dimension)
            )
            rows = decisions.filter(mine)
            alone = pa.array([name]), np.array([DIMENSIONS.index(dimension)])
            _, expected = bank.begin(*quotas_of(quotas, *alone)).answer(
                Requests(
                    np.zeros(len(rows), np.int64),
                    rows["at_ms"].to_numpy(),
                    rows["units"].to_numpy(),
                )
            )
            assert rows["admitted"].to_pylist() == expected.admitted.tolist()
            assert rows["throttle_ms"].to_pylist() == finite(expected.throttle_ms)
            assert rows["balance"].to_pylist() == finite(expected.balance)


def finite(values: FloatArray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def test_the_answer_to_an_event() -> None:
    asked = events(
        ("a", 0, 15.0),
        ("closed", 0, 1.0),
        ("hard", 0, 15.0),
        ("hard", 1, 15.0),
        ("nobody", 0, 1e9),
        tag=[1, 2, 3, 4, 5],
    )
    found = tried(definitions(a=10.0, hard=10.0, closed=0.0), asked).decisions
    assert found.schema.names[5:] == DECIDED.names
    assert [tuple(row.values())[4:] for row in found.to_pylist()] == [
        (1, True, 500, -5.0),
        (2, True, 0, -1.0),
        (3, True, 0, -5.0),
        (4, False, 499, pytest.approx(-4.99)),
        (5, True, 0, None),
    ]


def test_a_quota_of_zero_delays_for_ever() -> None:
    soft = pa.table({"group": ["a"], "publish_messages_per_s": [0.0]})
    found = tried(soft, events(("a", 0, 1.0)))
    [row] = found.decisions.to_pylist()
    assert (row["admitted"], row["throttle_ms"], row["balance"]) == (True, None, -1.0)
    [row] = found.metrics.to_pylist()
    assert (row["delayed"], row["refused"], row["throttle_ms"]) == (1, 0, None)


def test_metrics_are_as_of_the_last_event_of_each_entity() -> None:
    rows = [("a", 0, 15.0), ("hard", 2000, 15.0), ("hard", 2500, 5.0), ("x", 7, 3.0)]
    found = tried(definitions(a=10.0, hard=10.0), events(*rows)).metrics
    assert found.schema.equals(METRICS)
    expected = [
        ("a", 1, 0, 1, 15.0, 15.0, 10.0, 1.5, -5.0, 500.0),
        ("hard", 2, 0, 0, 20.0, 20.0, 10.0, 20 / 10.5, -5.0, None),
        ("x", 1, 0, 0, 3.0, 3.0, None, None, None, None),
    ]
    times = found.select(["since", "until"]).to_pylist()
    assert [tuple(round(at.timestamp() * 1000) - T0 for at in row.values()) for row in times] == [
        (0, 0),
        (2000, 2500),
        (7, 7),
    ]
    got = found.drop_columns(["dimension", "since", "until"]).to_pylist()
    assert [tuple(row.values()) for row in got] == expected


def test_an_event_that_cannot_be_used_has_a_reason() -> None:
    nan = float("nan")
    rows = [
        (None, 0, 1.0, "no_entity"),
        ("", None, nan, "no_entity"),
        ("a", None, 1.0, "no_time"),
        ("a", -T0 - 1, 1.0, "no_time"),
        ("a", 0, None, "bad_units"),
        ("a", 0, nan, "bad_units"),
        ("a", 0, float("inf"), "bad_units"),
        ("a", 0, -0.5, "bad_units"),
        ("a", 0, 1.001e18, "bad_units"),
        ("a", 0, 1e18, None),
    ]
    table = events(*(row[:3] for row in rows), tag=[str(n) for n in range(len(rows))])
    odd = events(("a", 0, 1.0), dimension=pa.array(["height"]), tag=["odd"])
    found = tried(definitions(a=10.0), table, odd)
    rejected = dict(
        zip(found.rejected["tag"].to_pylist(), found.rejected["reason"].to_pylist(), strict=True)
    )
    assert rejected == {
        **{str(n): row[3] for n, row in enumerate(rows) if row[3]},
        "odd": "bad_dimension",
    }
    assert {*rejected.values()} == REASONS.keys()
    assert found.decisions["tag"].to_pylist() == ["9"]


def test_a_file_gives_the_definitions_that_groups_put_would_make(tmp_path: Path) -> None:
    groups = [
        {"group": "a", "quotas": ["write 60 reqs/min"], "throttle": {"*": {"mode": "hard"}}},
        {"group": "b", "publish_messages_per_s": 5, "dispatch_bytes_per_s": "unlimited"},
    ]
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps(groups), "utf-8")
    found = definitions_of(str(file))
    law, quotas = quotas_of(found, pa.array(["a", "b", "c"]), np.array([0, 0, 0]))
    assert law.tolist() == [LAWS.index(ThrottleLaw.TOKEN_BUCKET)] * 3
    assert quotas.rate_per_s.tolist() == [1.0, 5.0, float("inf")]
    assert quotas.window_ms[:2].tolist() == [60_000, 1000]
    assert quotas.hard[:2].tolist() == [True, False]


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ({"group": "a::"}, "group 'a::': has an empty part"),
        ({"group": "a", "weight": -1}, "group 'a': weight: must be"),
        ({"group": "a", "publish_messages_per_s": -1}, "publish_messages_per_s: must be a number"),
    ],
)
def test_a_group_that_groups_put_refuses_is_refused(
    tmp_path: Path, group: dict[str, object], problem: str
) -> None:
    file = tmp_path / "quotas.json"
    file.write_text(json.dumps([group]), "utf-8")
    with pytest.raises(InputError, match=problem):
        definitions_of(str(file))


def recorded(n: int, unit: str = "us") -> pa.Table:
    """n events in random order; one in five is of an entity without a quota."""
    random = np.random.default_rng(1)
    per_ms = {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    at = (T0 + random.integers(0, 20_000, n)) * per_ms
    return pa.table(
        {
            "tag": np.arange(n),
            "entity": random.choice(["a", "b", "c", "nobody"], n),
            "at": pa.array(at, pa.timestamp(unit, "UTC")),
            "units": random.choice([0.0, 1.0, 2.5, 9.0], n),
            "dimension": pa.array(random.choice([None, "publish_bytes"], n), pa.string()),
            "position": [f"t/0@{number}" for number in random.permutation(n)],
        }
    )


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    file = tmp_path / "quotas.json"
    groups = [
        {"group": "a", "publish_messages_per_s": 5, "publish_bytes_per_s": 1},
        {"group": "b", "publish_messages_per_s": 5, "throttle": {"*": {"mode": "hard"}}},
        {"group": "c", "publish_bytes_per_s": 100},
    ]
    file.write_text(json.dumps(groups), "utf-8")
    return str(file)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["dry-run", *words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("form", ["delta", "parquet", "folder", "nanoseconds"])
def test_a_dry_run_writes_the_answers_and_sums_them_up(
    form: str,
    quotas: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorded_events, "PIECE", 100)
    rows = recorded(500, "ns" if form == "nanoseconds" else "us")
    path = tmp_path / "events"
    if form == "delta":
        write_deltalake(path, rows)
    elif form == "folder":
        path.mkdir()
        for part in range(2):
            pq.write_table(rows.slice(part * 250, 250), path / f"{part}.parquet")
    else:
        path = tmp_path / "events.parquet"
        pq.write_table(rows, path)
    out = tmp_path / "out"
    code, text, _ = run(capsys, str(path), "--quotas", quotas, "--out", str(out), "--json")
    assert code == 0
    found = json.loads(text)

    rows = rows.append_column("at_ms", rows["at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    rows = rows.append_column("length", pc.utf8_length(rows["position"]))
    order = ["entity", "dimension", "at_ms", "length", "position"]
    ordered = rows.sort_by([(name, "ascending") for name in order])
    expected = tried(definitions_of(quotas), ordered)
    shown = ["tag", "entity", *DECIDED.names]
    written = pa.table(DeltaTable(out / "decisions").to_pyarrow_table()).select(shown)
    assert written.sort_by("tag").equals(expected.decisions.select(shown).sort_by("tag"))
    refused = expected.decisions.filter(pc.invert(expected.decisions["admitted"]))
    delayed = pc.sum(expected.metrics["delayed"]).as_py()
    assert (found["events"], found["refused"], found["delayed"]) == (500, len(refused), delayed)
    assert found["units_refused"] == pc.sum(refused["units"]).as_py()
    assert found["rejected"] == {}
    b = next(row for row in found["most"] if (row["entity"], row["quota_per_s"]) == ("b", 5.0))
    assert b["refused"] == len(refused.filter(pc.equal(refused["entity"], "b")))
    assert found["entities"] == len(expected.metrics) == 8
    assert DeltaTable(out / "metrics").to_pyarrow_table().num_rows == 8
    assert DeltaTable(out / "rejected").to_pyarrow_table().num_rows == 0


def test_tables_are_never_written_twice(
    quotas: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(recorded(10), tmp_path / "events.parquet")
    words = [str(tmp_path / "events.parquet"), "--quotas", quotas, "--out", str(tmp_path / "out")]
    assert run(capsys, *words)[0] == 0
    for name in ("decisions", "metrics", "rejected"):
        code, _, err = run(capsys, *words)
        assert (code, len(err.splitlines())) == (2, 1)
        assert f"has a table {name} already; use another folder" in err
        shutil.rmtree(tmp_path / "out" / name)


def test_the_summary_for_people(
    quotas: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(recorded(500), tmp_path / "events.parquet")
    pq.write_table(recorded(0), tmp_path / "empty.parquet")
    _, text, _ = run(capsys, str(tmp_path / "events.parquet"), "--quotas", quotas, "--table")
    lines = text.splitlines()
    assert lines[0].startswith("500 events of 8 entities, from 2023-07-22T04:26:40.")
    assert lines[2].split()[:2] == ["entity", "dimension"]
    _, text, _ = run(capsys, str(tmp_path / "empty.parquet"), "--quotas", quotas, "--table")
    assert text.startswith("0 events of 0 entities")


def test_without_positions_the_event_with_fewer_units_comes_first(
    tmp_path: Path, quotas: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at = pa.array([T0] * 3, pa.timestamp("ms"))
    rows = pa.table({"entity": ["b"] * 3, "at": at, "units": [8, 1, 4]})
    pq.write_table(rows, tmp_path / "events.parquet")
    out = tmp_path / "out"
    run(capsys, str(tmp_path / "events.parquet"), "--quotas", quotas, "--out", str(out))
    found = DeltaTable(out / "decisions").to_pyarrow_table().sort_by("units")
    assert found["balance"].to_pylist() == [4.0, 0.0, -8.0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda rows: rows.drop_columns(["units"]), "events: column units is missing"),
        (
            lambda rows: rows.set_column(2, "at", rows["tag"]),
            "events: column at must be a timestamp, not bigint",
        ),
        (
            lambda rows: rows.append_column("Admitted", rows["tag"]),
            "events: column Admitted has the name of a column that is added",
        ),
        (
            lambda rows: rows.rename_columns({"units": "Units"}),
            "events: column Units must be called units",
        ),
    ],
)
def test_events_of_another_form_are_refused(
    change: Any, problem: str, quotas: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(change(recorded(1)), tmp_path / "events.parquet")
    code, _, err = run(capsys, str(tmp_path / "events.parquet"), "--quotas", quotas)
    assert (code, err.rstrip()) == (2, f"quotaplane: error: {problem}")


def test_wrong_words_are_one_line(
    quotas: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.parquet").write_text("no Parquet")
    for words, problem in (
        (["e"], "one of the arguments --quotas --conf --history is required"),
        (["e", "--quotas", "nowhere.csv"], "nowhere.csv: can't be read"),
        (["/none", "--quotas", quotas], "/none: can't be read: "),
        ([str(tmp_path / "text.parquet"), "--quotas", quotas], "text.parquet: can't be read: "),
        (["e", "--history", str(tmp_path)], "--quotas"),
    ):
        code, _, err = run(capsys, *words)
        assert (code, len(err.splitlines())) == (2, 1)
        assert problem in err
