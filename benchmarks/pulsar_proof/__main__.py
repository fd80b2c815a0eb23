"""Run the proof and write docs/measured/pulsar-proof.md and its plots: ``make pulsar-proof``.

Each contender has a fresh cluster of its own; about nine minutes each. The records are kept in
data/pulsar-proof, and the page can be written from them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.proof_command import Proof, run_proof
from benchmarks.pulsar_proof.contenders import CONTENDERS
from benchmarks.pulsar_proof.page import write
from benchmarks.pulsar_proof.run import run
from benchmarks.quota_proof.record import Record
from quotaplane.streams.script import run_job


def main(argv: Sequence[str]) -> None:
    """Measure, then write the page from all records."""
    run_proof(Proof("pulsar-proof", CONTENDERS, Record, run, write), argv, __doc__)


if __name__ == "__main__":
    run_job(main)
