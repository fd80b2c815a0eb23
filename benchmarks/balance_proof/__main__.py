"""Run the proof and write docs/measured/balance-proof.md and its plots: ``make balance-proof``.

Each contender has a fresh cluster of its own; about 14 minutes each. The records are kept in
data/balance-proof, and the page can be written from them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.balance_proof.contenders import CONTENDERS
from benchmarks.balance_proof.page import write
from benchmarks.balance_proof.record import SceneRecord
from benchmarks.balance_proof.run import run
from benchmarks.proof_command import Proof, run_proof
from quotaplane.streams.script import run_job


def main(argv: Sequence[str]) -> None:
    """Measure, then write the page from all records."""
    run_proof(Proof("balance-proof", CONTENDERS, SceneRecord, run, write), argv, __doc__)


if __name__ == "__main__":
    run_job(main)
