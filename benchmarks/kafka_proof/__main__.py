"""Run the proof and write docs/measured/kafka-proof.md and its plots: ``make kafka-proof``.

Each contender has a fresh cluster of its own; eight minutes each for stock brokers, fifteen for
ours. The records are kept in data/kafka-proof, and the page can be written from them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.kafka_proof.contenders import CONTENDERS
from benchmarks.kafka_proof.page import write
from benchmarks.kafka_proof.record import KafkaRecord
from benchmarks.kafka_proof.run import run
from benchmarks.kafka_proof.scenarios import ALL
from benchmarks.proof_command import Proof, run_proof
from quotaplane.streams.script import run_job


def main(argv: Sequence[str]) -> None:
    """Measure, then write the page from all records."""
    names = [scene.name for scene in ALL]
    proof = Proof("kafka-proof", CONTENDERS, KafkaRecord, run, write, scenarios=names)
    run_proof(proof, argv, __doc__)


if __name__ == "__main__":
    run_job(main)
