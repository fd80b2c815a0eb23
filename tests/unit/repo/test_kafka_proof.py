"""The proof on Kafka: its figures, its page, and what its clients write down."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.kafka_proof.contenders import EACH, OURS, THIRD
from benchmarks.kafka_proof.figures import found_in
from benchmarks.kafka_proof.measured import (
    longest_throttle_s,
    longest_waits,
    rows_of,
)
from benchmarks.kafka_proof.page import FOLDER, write
from benchmarks.kafka_proof.record import KafkaRecord, together
from benchmarks.kafka_proof.run import asked_of
from benchmarks.kafka_proof.scenarios import ALL, GONE, PARTS
from benchmarks.proof_command import Proof, read_records, run_proof, write_records
from benchmarks.quota_proof.record import SLOTS_PER_S
from quotaplane.errors import ConfigError
from tests.unit.repo.pages import ROOT

Series = Callable[[float], float]
WAKES: list[Series] = [lambda t: 400.0, lambda t: 400.0, lambda t: 300.0 if t >= 0 else 0.0]
FAIR: list[Series] = [lambda t: 200.0] * 3


def record(usage: list[Series], contender: str = "each", **more: Any) -> KafkaRecord:
    times = (-10.0 + np.arange(60 * SLOTS_PER_S) / SLOTS_PER_S).tolist()

    def series(of: list[Series]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(float(each(t)) for t in times) for each in of)

    made = KafkaRecord(
        scenario="idle_wakes",
        contender=contender,
        from_s=-10.0,
        quota=(600.0,) * len(times),
        demand=series(WAKES),
        usage=series(usage),
    )
    return replace(made, **more)


def test_figures_of_many_tenants_are_each_of_the_worst_one() -> None:
    slow = record([lambda t: 200.0, lambda t: 200.0, lambda t: 200.0 if t >= 9 else 0.0])
    (worst,) = found_in([record(FAIR, mute_s=2.0), replace(slow, tenant=1)]).values()
    assert worst.seconds_to_fair == pytest.approx(8.4, abs=0.2)
    assert (worst.mute_s, worst.over_settled, worst.utilisation) == (2.0, 0.0, 1.0)
    never = record([lambda t: 200.0, lambda t: 200.0, lambda t: 0.0])
    (worst,) = found_in([record(FAIR), replace(never, tenant=1)]).values()
    assert worst.seconds_to_fair is None
    assert worst.utilisation == pytest.approx(2 / 3)


def test_tenants_together_are_their_sum_and_the_longest_mute() -> None:
    both = together([record(FAIR, mute_s=1.0), record(FAIR, mute_s=3.0, tenant=1)])
    assert (both.quota[0], both.usage[0][0], both.demand[0][-1]) == (1200.0, 400.0, 800.0)
    assert both.mute_s == 3.0


def test_waits_for_a_leader_do_not_count_and_others_do_from_the_event_on() -> None:
    owners: list[Sequence[tuple[float, int | None]]] = [
        [(0.0, 0)],
        [(0.0, 1), (100.0, None), (109.0, 2)],
    ]
    waits = np.array([[101.0, 0, 0.6], [110.5, 1, 10.5], [120.0, 1, 0.9], [99.0, 1, 8.0]])
    assert longest_waits(waits, 2, owners, 90.0, 200.0) == pytest.approx([0.6, 8.0])
    assert longest_waits(waits, 2, owners, 98.0, 200.0) == pytest.approx([0.6, 1.0])
    assert longest_waits(waits, 2, owners, 98.0, 100.0) == pytest.approx([0.0, 1.0])
    assert longest_waits(waits[[1]], 4, owners, 90.0, 200.0) == [0.0] * 4


def test_the_longest_throttle_time_is_that_after_the_event() -> None:
    assert longest_throttle_s(np.array([[1.0, 9000], [3.0, 1500], [4.0, 200]]), 2.0) == 1.5
    assert longest_throttle_s(np.zeros((0, 2)), 2.0) == 0.0


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "waits.csv"
    path.write_text("1,2,3\n4,5,6\n7,8")
    assert rows_of(path, 3).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_bytes_of_a_broker_that_leaves_the_statistics_stay_counted(tmp_path: Path) -> None:
    load = pytest.importorskip("benchmarks.kafka_proof.load")
    path = tmp_path / "wire.csv"
    wire = load._Wire(load._Log(path), "tx")

    def tell(brokers: dict[str, int], messages: int) -> None:
        seen = {name: {"txbytes": size} for name, size in brokers.items()}
        wire.statistics(json.dumps({"name": "client", "brokers": seen, "txmsgs": messages}))

    tell({"a": 100, "b": 50}, 3)
    tell({"a": 120}, 4)
    tell({"a": 130, "b": 7}, 5)
    assert rows_of(path, 3)[:, 1:].tolist() == [[150, 3], [170, 4], [180, 5]]


def test_stock_brokers_have_no_job_that_goes_and_some_scenarios_can_be_left_out() -> None:
    assert asked_of(OURS, ()) == [list(part) for part in PARTS]
    assert GONE[0] not in [scene for part in asked_of(THIRD, ()) for scene in part]
    assert [[s.name for s in part] for part in asked_of(EACH, ["hot", "killed"])] == [
        ["hot"],
        ["killed"],
    ]


def test_names_of_scenarios_are_unique_as_topics_have_them() -> None:
    names = [scene.name for scene in ALL]
    assert len(set(names)) == len(names)


@dataclass
class _Run:
    """In the place of a measurement: writes down what it was asked for."""

    asked: list[Sequence[str]] = field(default_factory=list)

    def __call__(
        self, contender: Any, folder: Path, say: Any, only: Sequence[str]
    ) -> list[KafkaRecord]:
        self.asked.append(only)
        names = only or ["hot", "small"]
        return [record(FAIR, scenario=name, mute_s=float(len(self.asked))) for name in names]


def test_one_scenario_measured_again_replaces_its_records_only(tmp_path: Path) -> None:
    run, pages = _Run(), tmp_path / "docs"
    proof = Proof(
        "kafka-proof", [EACH], KafkaRecord, run, write, scenarios=[scene.name for scene in ALL]
    )
    options = ["each", "--folder", str(tmp_path), "--docs", str(pages)]
    run_proof(proof, options, None)
    run_proof(proof, [*options, "--only", "hot"], None)
    found = {each.scenario: each.mute_s for each in read_records(tmp_path / "each", KafkaRecord)}
    assert found == {"small": 1.0, "hot": 2.0}
    assert run.asked == [[], ["hot"]]
    with pytest.raises(ConfigError, match="invalid choice"):
        run_proof(proof, [*options, "--only", "cold"], None)


def test_records_read_as_they_were_written(tmp_path: Path) -> None:
    first = record(FAIR, mute_s=1.5, start={"the first limits": 12.0})
    write_records(tmp_path, [first])
    assert read_records(tmp_path, KafkaRecord) == [first]


def test_page_shows_what_was_measured_and_names_files_that_are_there(tmp_path: Path) -> None:
    stuck = record([lambda t: 300.0, lambda t: 200.0, lambda t: 1.0], mute_s=9.0)
    third = record(FAIR, "third", others_refused=0.02)
    text = write(tmp_path, [third, stuck], [EACH, THIRD, OURS]).read_text()
    row = "| 400/400/0 → 400/400/300 of 600 | **never** | 0.0 | **83.5%** / 100.0% |"
    assert f"{row} 0.0% / 0.0% | **9.0** / 0.0 |  |" in text
    assert "- Stock, a third on each: met in 0 of 1 scenarios; never fair in 0;" in text
    assert "In 1 scenarios a third of the quota is each broker's fair share" in text
    assert "- Stock, a third on each: it got at least 98.0% of what it wanted" in text
    assert "falls short" not in text
    linked = [link for link in re.findall(r"\]\((\S+?)\)", text) if link.startswith(FOLDER)]
    assert linked
    assert all((tmp_path / link).exists() for link in linked)
    ours = replace(stuck, contender="quotaplane", others_refused=0.03)
    gone = replace(ours, scenario="gone")
    text = write(tmp_path, [ours, gone, third], [EACH, THIRD, OURS]).read_text()
    assert "| - / **83.5%** | - / 0.0% | - / **9.0** | 0% / 0% |" in text
    assert re.sub(r"\s+", " ", text).count(
        "*An idle broker wakes*: never fair, utilisation 83.5%, a client muted for 9.0 s, a client "
        "without a quota lost 3.0%."
    )


@pytest.mark.skipif(
    not (ROOT / f"docs/measured/{FOLDER}.md").exists(), reason="it is not measured yet"
)
def test_the_committed_page_has_the_committed_figures() -> None:
    docs = ROOT / "docs/measured"
    lines = (docs / f"{FOLDER}.md").read_text().replace("*", "").splitlines()
    with (docs / FOLDER / "figures.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        (line,) = (line for line in lines if f"({FOLDER}/{row['scenario']}.svg) |" in line)
        assert row["seconds_to_fair"] or "never" in line
        assert f"{float(row['utilisation']):.1%}" in line
